"""Templates that the queue keeps, and scrapers that are known."""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from shoal.app import TEMPLATE
from shoal.config import SETTINGS, Settings, beneath
from shoal.control.acting import Acting
from shoal.errors import Usage
from shoal.extract import registry
from shoal.extract.template import Template, TemplateError, parse
from shoal.logs import log
from shoal.queue.base import Paper
from shoal.travelling import OF_THE_RUN, spec_settings
from shoal.view.standing import alive
from shoal.view.words import stamp
from shoal.web.access import Operator, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, Page, TemplateDocument, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.brought import is_brought
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["templates"])

Named = Annotated[str, models.Path(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]

CODE_FRESH = 30.0  # seconds for which code is taken as it was found
LARGEST = 256_000  # bytes of a template's text
_TEXT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/yaml": {"schema": {"type": "string", "maxLength": LARGEST}}},
    }
}


@router.get("/templates", summary="List templates", responses=described(Page), response_class=Response)
async def list_templates(
    room: In, caller: Reader, limit: Limit = 100, cursor_: Annotated[Cursor, Query(alias="cursor")] = ""
) -> Response:
    """By name, the newest version of each; not what batches brought along."""
    after = place("templates", cursor_, str) or ""
    found = [paper for paper in await kept_templates(room) if paper.name > after]
    items = [_listed(paper) for paper in found[:limit]]
    return page(items, cursor("templates", found[limit - 1].name) if len(found) > limit else None)


async def kept_templates(room: Room) -> list[Paper]:
    """Those that people have given a name to."""

    async def ask() -> list[Paper]:
        return [paper for paper in await room.queue.papers(TEMPLATE) if not is_brought(paper.name)]

    return await room.once(("templates",), ask)


def _listed(paper: Paper) -> dict[str, Any]:
    template = _read(paper)
    fields = sorted({name for kind in template.pages for name in kind.fields}) if template else []
    return {
        "name": paper.name,
        "version": paper.version,
        "made_at": stamp(paper.made_at),
        "kinds": [kind.kind for kind in template.pages] if template else [],
        "fields": fields[:100],
        "start": list(template.start[:10]) if template else [],
    }


def _read(paper: Paper) -> Template | None:
    try:
        return msgspec.json.decode(paper.text, type=Template)
    except (msgspec.DecodeError, ValueError):
        return None  # of another version of shoal


@router.get(
    "/templates/{name}",
    summary="One template",
    responses=described(TemplateDocument, 404),
    response_class=Response,
)
async def show_template(
    room: In,
    caller: Reader,
    name: Named,
    version: Annotated[int, Query(ge=0, le=models.BIGGEST, description="0 is the newest.")] = 0,
) -> Response:
    paper = await room.queue.paper(TEMPLATE, name, version)
    if paper is None:
        raise _none(name)
    return answer(_document(paper))


def _none(name: str) -> Problem:
    return no_such("template", name, hint=f"PUT /api/v1/templates/{name} keeps one")


def _document(paper: Paper) -> dict[str, Any]:
    return {
        "name": paper.name,
        "version": paper.version,
        "made_at": stamp(paper.made_at),
        "template": msgspec.json.decode(paper.text),
    }


@router.get(
    "/templates/{name}/versions",
    summary="Versions of a template",
    responses=described(Page, 404),
    response_class=Response,
)
async def list_versions(
    room: In,
    caller: Reader,
    name: Named,
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Newest first."""
    newest = await room.queue.paper(TEMPLATE, name)
    if newest is None:
        raise _none(name)
    start = min(place("versions", cursor_, int) or newest.version, newest.version)
    numbers = list(range(start, max(0, start - limit), -1))
    found = [paper for number in numbers if (paper := await room.queue.paper(TEMPLATE, name, number))]
    left = start - limit
    return page([_listed(paper) for paper in found], cursor("versions", left) if left > 0 else None)


@router.put(
    "/templates/{name}",
    summary="Keep a template",
    responses=described(TemplateDocument, 415),
    response_class=Response,
    openapi_extra=_TEXT,
)
async def keep_template(
    room: In,
    caller: Operator,
    name: Named,
    request: Request,
    check: Annotated[bool, Query(description="Only say whether it is in order.")] = False,
) -> Response:
    """The YAML text of a template. One that differs from the newest becomes a new version."""
    template = await read_template(request, name)
    text = msgspec.json.encode(template).decode()
    if check:
        document = {"name": name, "version": 0, "made_at": None, "template": msgspec.json.decode(text)}
        return answer(document | {"checked": True})
    paper = await room.queue.keep_paper(TEMPLATE, name, text)
    await Acting(room.queue, caller.name).did("template", name, version=paper.version)
    room.touched()
    return answer(_document(paper))


async def read_template(request: Request, name: str) -> Template:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Problem(413, "too-large", f"a template has at most {LARGEST:,} bytes")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem(422, "not-text", "a template is a text in UTF-8") from None
    # In a thread: a long text takes its time, and others are not kept waiting.
    return await asyncio.to_thread(checked, text, name)


def checked(text: str, name: str) -> Template:
    """A template from its text, checked whole; 422 with everything that is wrong with it."""
    try:
        template = parse(
            text,
            source="the template",
            settings=SETTINGS,
            check_setting=lambda name, value: SETTINGS[name].read(value, name),
        )
    except TemplateError as error:
        raise Problem(
            422,
            "template-wrong",
            str(error),
            hint="put that right and send it again",
            problems=[msgspec.to_builtins(one) for one in error.problems],
        ) from None
    if template.name != name:
        raise Problem(422, "other-name", f"the template is called {template.name}, not {name}")
    travelling = {key: value for key, value in template.settings.items() if key in OF_THE_RUN}
    spec_settings(beneath(Settings(), travelling, f"template {name}"))  # a secret would be kept in the queue
    return template


@router.get("/scrapers", summary="List scrapers", responses=described(Page), response_class=Response)
async def list_scrapers(room: In, caller: Reader) -> Response:
    """Those whose code this server finds, and those that workers say they serve."""
    return page(await room.once(("scrapers",), lambda: scrapers(room)), None)


async def scrapers(room: Room) -> list[dict[str, Any]]:
    """By name: where the code is known, its start addresses; and how many workers have it."""
    found = await asyncio.to_thread(known_scrapers, room.settings)
    for mark in await alive(room.queue, room.settings):
        for name in mark.serves:
            one = found.setdefault(name, {"name": name, "mode": "any", "start": [], "workers": 0})
            one["workers"] += 1
    return [found[name] for name in sorted(found)]


def known_scrapers(settings: Settings) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for listed in code_of(settings).values():
        scraper = listed.scraper
        start = list(scraper.start[:10])
        made[scraper.name] = {
            "name": scraper.name, "mode": scraper.mode or "any", "start": start, "workers": 0
        }  # fmt: skip
    return made


def code_of(settings: Settings) -> dict[str, registry.Listed]:
    """Scrapers by name, as far as the settings say where their code is, or it is installed."""
    return _code(tuple(settings.scrapers), int(time.monotonic() / CODE_FRESH))


@lru_cache(maxsize=2)
def _code(places: tuple[str, ...], _: int) -> dict[str, registry.Listed]:
    made: dict[str, registry.Listed] = {}
    for target in (*places, *registry.installed_names()):
        try:
            survey = registry.look(target, places)
        except (Usage, SystemExit) as error:
            log("scraper.broken", "warning", target=target, problem=str(error))
            continue
        for listed in survey.found:
            made.setdefault(listed.scraper.name, listed)
    return made
