"""Submit: addresses and what to take from them, from a form; what is wrong is said beside its field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.control.acting import Acting
from shoal.core import measure
from shoal.web import ordering
from shoal.web.access import Caller
from shoal.web.api import models
from shoal.web.api.templates import kept_templates, scrapers
from shoal.web.pages.look import In, Operator, pages
from shoal.web.pages.render import plain, segment
from shoal.web.problem import Problem
from shoal.web.room import Room

router = pages()
MOST = models.MOST_URLS
EMPTY = {
    "urls": "", "what": "fields", "fields": "title = title::text", "scraper": "", "template": "", "name": "",
    "rate": "", "max_pages": "", "priority": "0", "here": "",
}  # fmt: skip
LONGEST = 4_000_000


@router.get("/submit")
async def submit(request: Request, room: In, caller: Operator) -> Response:
    given = EMPTY | {
        name: request.query_params[name][:2_000] for name in EMPTY if name in request.query_params
    }
    return await _form(request, room, caller, given, {})


@router.post("/submit")
async def submitted(request: Request, room: In, caller: Operator) -> Response:
    form = await request.form(max_part_size=LONGEST)
    given = EMPTY | {name: str(form.get(name, "")) for name in EMPTY}
    wrong: dict[str, str] = {}
    order = _order(given, wrong)
    if order is None:
        return await _form(request, room, caller, given, wrong)
    try:
        placed = await ordering.place(room, order, "")
    except Problem as problem:
        field = (
            "urls" if problem.kind == "no-address" else given["what"] if "template" in problem.kind else ""
        )
        hint = "" if problem.hint.startswith("give ") else problem.hint
        wrong[field or _field_of(problem, given)] = ". ".join(filter(None, (problem.detail, hint)))
        return await _form(request, room, caller, given, wrong)
    await Acting(room.queue, caller.name).did("submit", placed.run.name, addresses=placed.added)
    room.touched()
    if order.here:
        room.crew.wake()
    if placed.rejected:
        shown = {"placed": placed, "nav": "runs", "command": ordering.command_for(room, placed.run)}
        return plain(request, caller, "submitted.html", shown)
    return RedirectResponse(f"/runs/{segment(placed.run.name)}", 303)


def _field_of(problem: Problem, given: Mapping[str, str]) -> str:
    """Beside which field an error belongs that the order as a whole has."""
    for name in ("rate", "max_pages"):
        if name in problem.detail and problem.kind != "fields-wrong":
            return name
    return given["what"] if given["what"] in ("scraper", "template") else "fields"


def _order(given: Mapping[str, str], wrong: dict[str, str]) -> models.NewRun | None:
    """What the form asks for; None where something in it is wrong."""
    urls = [line.strip() for line in given["urls"].splitlines() if line.strip()]
    if not urls and given["what"] != "scraper":
        wrong["urls"] = "Give at least one address, one a line."
    elif len(urls) > MOST:
        wrong["urls"] = (
            f"A form takes {MOST:,} addresses and this has {len(urls):,}. shoal submit takes any number."
        )
    told: dict[str, Any] = {"urls": urls[:MOST]}
    if given["what"] in ("scraper", "template"):
        if not given[given["what"]].strip():
            wrong[given["what"]] = "Choose one."
        told[given["what"]] = given[given["what"]].strip() or None
    else:
        told["fields"] = _fields(given["fields"], wrong)
        told["here"] = bool(given["here"])
        if given["name"].strip():
            told["name"] = given["name"].strip()
    told["settings"] = _settings(given, wrong)
    told["priority"] = _whole(given["priority"] or "0", "priority", wrong)
    if wrong:
        return None
    try:
        return models.NewRun(**told)
    except pydantic.ValidationError as error:
        for one in error.errors()[:10]:
            field = str(one["loc"][0]) if one["loc"] else "urls"
            where = f"line {int(one['loc'][1]) + 1}: " if field == "urls" and len(one["loc"]) > 1 else ""
            wrong.setdefault(field if field in EMPTY else "urls", f"{where}{one['msg']}")
        return None


def _fields(text: str, wrong: dict[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, selector = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip() or not selector.strip():
            wrong["fields"] = f"Line {number} is not NAME = SELECTOR, as in: title = h1::text"
            break
        made[name.strip()] = selector.strip()
    return made


def _settings(given: Mapping[str, str], wrong: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if rate := given["rate"].strip():
        try:
            measure.rate(rate)
            made["rate"] = rate
        except (ValueError, TypeError):
            wrong["rate"] = "Give a number above 0, or a rate such as 30/m."
    if given["max_pages"].strip():
        made["max_pages"] = _whole(given["max_pages"], "max_pages", wrong)
    return made


def _whole(text: str, name: str, wrong: dict[str, str]) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        wrong[name] = "Give a whole number."
        return 0
    if abs(number) > 1_000_000_000 or (name == "max_pages" and number < 0):
        wrong[name] = "This number is out of reason."
    return number


async def _form(
    request: Request, room: Room, caller: Caller, given: Mapping[str, str], wrong: Mapping[str, str]
) -> Response:
    known = await room.once(("scrapers",), lambda: scrapers(room))
    shown = {
        "given": given,
        "wrong": wrong,
        "scrapers": [one["name"] for one in known if one["name"] != "templates"],
        "templates": [paper.name for paper in (await kept_templates(room))[:500]],
        "most": MOST,
        "nav": "runs",
    }
    return plain(request, caller, "submit.html", shown, 422 if wrong else 200)
