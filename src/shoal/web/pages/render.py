"""Rendering: makes a page of a template and its values, and adds what belongs to one reader last.

What a page shows is the same for all who may do the same, so it is rendered once a second at most. What
belongs to one reader (name, theme, CSRF token, flash message) takes the place of placeholders.
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

from shoal.control.webhooks import redacted_url
from shoal.core.cron_words import describe_cron
from shoal.core.forecast import held_seconds
from shoal.runs.progress import describe_cause
from shoal.version import __version__
from shoal.view import formatting, hosts
from shoal.view.run_log import describe_actor
from shoal.view.workers import worker_state
from shoal.web.auth.access import Caller
from shoal.web.auth.session import csrf_token
from shoal.web.context import CACHE_SECONDS, context_of
from shoal.web.pages import flash, text
from shoal.web.pages.actions import EVERY_HOST, PAGE_ACTIONS
from shoal.web.pages.static import asset_url

# Nobody can write these into a text that a page shows: they differ from process to process.
_SALT = secrets.token_hex(8)
CSRF, THEME, FLASH, USER = (f"@{name}-{_SALT}@" for name in ("csrf", "theme", "flash", "user"))
LIVE_SOURCE = "div#live-part"  # what htmx says asks, where only the living part is wanted
THEMES = ("system", "light", "dark")
Gather = Callable[[], Awaitable[Mapping[str, Any]]]

TONES = {
    "running": "good", "working": "good", "finished": "done", "done": "done", "ok": "done", "good": "done",
    "paused": "pause", "stopped": "warn", "waiting": "warn", "delayed": "warn", "draining": "warn",
    "watch": "warn", "warning": "warn", "note": "", "act": "bad", "dead": "bad", "stale": "bad",
    "wrong": "bad", "failed": "bad", "parked": "pause", "cancelled": "off", "moved": "off", "leased": "good",
    "ready": "", "idle": "",
}  # fmt: skip
STATE_LABELS = {"ready": "waiting", "delayed": "retrying", "leased": "in progress", "dead": "failed"}


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
        "count": formatting.count, "size": formatting.size, "lasting": formatting.format_duration,
        "about": formatting.format_about, "actor": describe_actor, "cron": describe_cron, "hook_url": redacted_url,
        "stamp": formatting.iso_time,
        "moment": formatting.local_time, "printable": text.printable, "excerpt": text.excerpt,
        "shorten": text.shorten,
        "safe_link": text.safe_link, "cause": describe_cause, "rate": rate, "percent": percent, "part": part,
        "state": lambda state: STATE_LABELS.get(state, state), "tone": lambda state: TONES.get(state, ""),
        "held": hosts.hold_reason, "pace": formatting.format_pace, "set_by": hosts.pace_set_by,
        "held_seconds": held_seconds, "worker_state": worker_state, "lane_words": formatting.format_held_host,
        "segment": segment, "shorten_middle": text.shorten_middle, "in_flight": formatting.format_in_flight,
    }  # fmt: skip
    made.globals |= {
        "asset_url": asset_url, "query": query, "page_actions": PAGE_ACTIONS, "version": __version__,
        "CSRF": CSRF, "THEME": THEME,
        "FLASH": FLASH, "USER": USER, "icons": {"system": "◐", "light": "☀", "dark": "☾"}, "curl": curl,
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


def current_path(request: Request) -> str:
    """The URL of what is asked for, on this server; names in it may have any character."""
    path = quote(request.url.path, safe="/:@~.-_")
    return f"{path}?{request.url.query}" if request.url.query else path


def query(**given: object) -> str:
    """A query with what is given, or nothing."""
    params = {name.rstrip("_"): str(value) for name, value in given.items() if value not in ("", None, 0, False)}
    return "?" + urlencode(params) if params else ""


def curl(method: str, path: str, body: str = "") -> str:
    """The same as a call; the page fills in its own server's URL."""
    data = f" -H 'Content-Type: application/json' -d '{body}'" if body else ""
    return f'curl -X {method} -H "Authorization: Bearer $SHOAL_TOKEN"{data} {{server_url}}{path}'


def access_level(caller: Caller | None) -> str:
    """What a reader may do, as far as pages differ by it."""
    if caller is None:
        return "nobody"
    return "admin" if caller.has_scope("admin") else "operate" if caller.has_scope("operate") else "read"


def is_live_part(request: Request) -> bool:
    """Whether a page that is shown already asks for its living part alone."""
    return request.headers.get("hx-source") == LIVE_SOURCE


async def page(
    request: Request, caller: Caller, template: str, gather: Gather, *, nav: str, topics: str = "fleet"
) -> Response:
    """A page, or only its living part where a page that is shown already asks for it."""
    context = context_of(request)
    live_part = is_live_part(request)
    access = access_level(caller)
    key = ("page", template, request.url.path, request.url.query, access, live_part)

    async def made() -> str:
        # What a page is made of may have been asked for a while before the page was.
        as_of = await context.queue.now() - round(CACHE_SECONDS * 1e6)
        shown = {"as_of": as_of} | dict(await gather())
        await asyncio.sleep(0)  # others first: drawing holds the loop for some milliseconds
        layout = "live_part.html" if live_part else "base.html"
        more = _common_values(request, access, layout=layout, nav=nav, topics=topics)
        return environment().get_template(template).render(shown | more)

    return personalize(request, caller, await context.cached(key, made))


def _common_values(request: Request, access: str, **more: Any) -> dict[str, Any]:
    return more | {
        "access": access, "may": access in ("operate", "admin"), "admin": access == "admin",
        "current_path": current_path(request), "server_name": context_of(request).name,
    }  # fmt: skip


def render_page(
    request: Request, caller: Caller | None, template: str, shown: Mapping[str, Any], status: int = 200
) -> Response:
    """A page that is nobody else's: a form with what was wrong in it, an error, the login."""
    more = _common_values(request, access_level(caller), layout="base.html", nav="", topics="")
    body = environment().get_template(template).render(more | dict(shown))
    return personalize(request, caller, body, status)


def personalize(request: Request, caller: Caller | None, body: str, status: int = 200) -> Response:
    """Put in what belongs to this reader."""
    theme = request.cookies.get("shoal_theme", "")
    message = flash.read_flash(request) if FLASH in body else None
    csrf = csrf_token(request) if caller is not None else ""
    parts = {
        THEME: theme if theme in THEMES else "system",
        FLASH: _flash_html(message, csrf, request) if message else "",
        CSRF: csrf,
        USER: _user_html(caller, csrf) if caller is not None else "",
    }
    for placeholder, value in parts.items():
        body = body.replace(placeholder, value)
    response = Response(body, status, {"Cache-Control": "no-store", "Vary": "Cookie"}, "text/html")
    if message:
        flash.clear_flash(response)
    return response


def _user_html(caller: Caller, csrf: str) -> str:
    made = environment().get_template("user.html").render(name=caller.name, session=caller.via == "session")
    return made.replace(CSRF, csrf)


def _flash_html(message: flash.FlashMessage, csrf: str, request: Request) -> str:
    made = environment().get_template("flash.html").render(flash=message, current_path=current_path(request))
    return made.replace(CSRF, csrf)
