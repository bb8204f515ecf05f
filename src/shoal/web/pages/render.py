"""Rendering: a template and what it shows become a page; who looks at it is put in last.

What a page shows is the same for all who may do the same, so it is rendered once a second at most. What
belongs to one reader (name, theme, the word of their forms, what was just said) takes the place of marks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from shoal.control.report import cause_words
from shoal.core.forecast import held_seconds
from shoal.version import __version__
from shoal.view import hosts, words
from shoal.view.workers import state_of
from shoal.web.access import Caller
from shoal.web.pages import said, text
from shoal.web.pages.deeds import DEEDS, EVERY_HOST
from shoal.web.pages.static import href
from shoal.web.room import FRESH, Room, room_in
from shoal.web.session import csrf_token

# Nobody can write these into a text that a page shows: they differ from process to process.
_SALT = secrets.token_hex(8)
CSRF, THEME, SAID, WHO = (f"@{name}-{_SALT}@" for name in ("csrf", "theme", "said", "who"))
LIVE = "div#live-part"  # what htmx says asks, where only the living part is wanted
THEMES = ("system", "light", "dark")
Gather = Callable[[], Awaitable[Mapping[str, Any]]]

TONES = {
    "running": "good", "working": "good", "finished": "done", "done": "done", "ok": "done", "good": "done",
    "paused": "pause", "stopped": "care", "waiting": "care", "delayed": "care", "draining": "care",
    "watch": "care", "warning": "care", "note": "", "act": "bad", "dead": "bad", "stale": "bad",
    "wrong": "bad", "failed": "bad", "parked": "pause", "cancelled": "off", "moved": "off", "leased": "good",
    "ready": "", "idle": "",
}  # fmt: skip
SHOWN = {"ready": "waiting", "delayed": "trying again", "leased": "under way", "dead": "failed"}


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("shoal.web.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": words.count, "size": words.size, "lasting": words.lasting, "stamp": words.stamp,
        "moment": words.moment, "visible": text.visible, "some": text.some, "cut": text.cut,
        "outside": text.outside, "cause": cause_words, "rate": rate, "percent": percent, "part": part,
        "state": lambda state: SHOWN.get(state, state), "tone": lambda state: TONES.get(state, ""),
        "held": hosts.why_held, "pace": hosts.pace_words, "set_by": hosts.set_by,
        "spacing": hosts.spacing_words,
        "held_seconds": held_seconds, "worker_state": state_of, "lane_words": words.lane_words,
        "segment": segment, "middle": text.middle, "under_way": words.under_way,
    }  # fmt: skip
    made.globals |= {
        "href": href, "query": query, "deeds": DEEDS, "version": __version__, "CSRF": CSRF, "THEME": THEME,
        "SAID": SAID, "WHO": WHO, "icons": {"system": "◐", "light": "☀", "dark": "☾"}, "curl": curl,
        "EVERY_HOST": EVERY_HOST,
    }  # fmt: skip
    return made


def compile_templates() -> None:
    """All of them at once: whoever opens the first page should not wait for it."""
    made = environment()
    for name in made.list_templates():
        made.get_template(name)


def rate(number: float) -> str:
    """593 · 9.2 · 0.25: as many digits as tell something."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}" if number else "0"


def percent(some: float, of: float) -> str:
    if not of:
        return "–"
    share = 100 * some / of
    return "100 %" if some >= of else f"{share:.1f} %" if 0 < share < 10 or share > 99 else f"{share:.0f} %"


def part(some: float, of: float, whole: float = 1000) -> float:
    """How much of a bar: 0 to `whole`."""
    return round(min(whole, max(0.0, whole * some / of)), 2) if of else 0.0


def segment(name: object) -> str:
    """A name as a part of a path."""
    return quote(str(name), safe=":@~.-_")


def here(request: Request) -> str:
    """The address of what is asked for, on this server; names in it may have any character."""
    path = quote(request.url.path, safe="/:@~.-_")
    return f"{path}?{request.url.query}" if request.url.query else path


def query(**given: object) -> str:
    """A query with what is given, or nothing."""
    told = {
        name.rstrip("_"): str(value) for name, value in given.items() if value not in ("", None, 0, False)
    }
    return "?" + urlencode(told) if told else ""


def curl(method: str, path: str, body: str = "") -> str:
    """The same as a call; the page fills in its own address."""
    data = f" -H 'Content-Type: application/json' -d '{body}'" if body else ""
    return f'curl -X {method} -H "Authorization: Bearer $SHOAL_TOKEN"{data} {{address}}{path}'


def level(caller: Caller | None) -> str:
    """What a reader may do, as far as pages differ by it."""
    if caller is None:
        return "nobody"
    return "admin" if caller.may("admin") else "operate" if caller.may("operate") else "read"


def is_living(request: Request) -> bool:
    """Whether a page that is shown already asks for its living part alone."""
    return request.headers.get("hx-source") == LIVE


async def page(
    request: Request,
    caller: Caller,
    template: str,
    gather: Gather,
    *,
    nav: str,
    topics: str = "fleet",
    status: int = 200,
) -> Response:
    """A page, or only its living part where a page that is shown already asks for it."""
    room = room_in(request)
    living = is_living(request)
    rank = level(caller)
    key = ("page", template, request.url.path, request.url.query, rank, living)

    async def made() -> str:
        # What a page is made of may have been asked for a while before the page was.
        as_of = await room.queue.now() - round(FRESH * 1e6)
        return await draw(
            room,
            template,
            {"as_of": as_of} | dict(await gather()),
            frame="part.html" if living else "frame.html",
            nav=nav,
            topics=topics,
            rank=rank,
            here=here(request),
        )

    return dress(request, caller, await room.once(key, made), status)


async def draw(room: Room, template: str, shown: dict[str, Any], **more: Any) -> str:
    await asyncio.sleep(0)  # others first: drawing holds the loop for some milliseconds
    rank = more["rank"]
    return (
        environment()
        .get_template(template)
        .render(
            shown | more | {"may": rank in ("operate", "admin"), "admin": rank == "admin", "room": room.name}
        )
    )


def plain(
    request: Request, caller: Caller | None, template: str, shown: Mapping[str, Any], status: int = 200
) -> Response:
    """A page that is nobody else's: a form with what was wrong in it, an error, the login."""
    rank = level(caller)
    more = {
        "frame": "frame.html", "nav": "", "topics": "", "rank": rank, "here": here(request),
        "may": rank in ("operate", "admin"), "admin": rank == "admin", "room": room_in(request).name,
    }  # fmt: skip
    body = environment().get_template(template).render(more | dict(shown))
    return dress(request, caller, body, status)


def dress(request: Request, caller: Caller | None, body: str, status: int = 200) -> Response:
    """Put in what belongs to this reader."""
    theme = request.cookies.get("shoal_theme", "")
    told = said.heard(request) if SAID in body else None
    word = csrf_token(request) if caller is not None else ""
    parts = {
        THEME: theme if theme in THEMES else "system",
        SAID: _said(told, word, request) if told else "",
        CSRF: word,
        WHO: _who(caller, word) if caller is not None else "",
    }
    for mark, value in parts.items():
        body = body.replace(mark, value)
    response = Response(body, status, {"Cache-Control": "no-store", "Vary": "Cookie"}, "text/html")
    if told:
        said.forget(response)
    return response


def _who(caller: Caller, word: str) -> str:
    made = environment().get_template("who.html").render(name=caller.name, session=caller.via == "session")
    return made.replace(CSRF, word)


def _said(told: said.Said, word: str, request: Request) -> str:
    made = environment().get_template("said.html").render(said=told, here=here(request))
    return made.replace(CSRF, word)
