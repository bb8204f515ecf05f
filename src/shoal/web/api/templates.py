"""Templates that the queue keeps, and scrapers that are known."""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import RUN_SETTINGS, settings_to_spec
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.extract.template import Template, TemplateError
from shoal.logs import log
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document
from shoal.runs.request import parse_template
from shoal.view.formatting import iso_time
from shoal.view.run_state import live_workers
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, TemplateDocument, response_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found
from shoal.web.submit.inline_templates import is_inline

router = APIRouter(prefix="/api/v1", tags=["templates"])

TemplateName = Annotated[str, models.Path(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]

CODE_MAX_AGE = 30.0  # seconds for which code is taken as it was found
MAX_TEXT = 256_000  # bytes of a template's text
_TEXT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/yaml": {"schema": {"type": "string", "maxLength": MAX_TEXT}}},
    }
}


@router.get("/templates", summary="List templates", responses=response_docs(ListPage))
async def list_templates(
    context: ContextDep, caller: ReaderDep, limit: Limit = 100, cursor_: Annotated[Cursor, Query(alias="cursor")] = ""
) -> Response:
    """By name, the newest version of each; inline templates are not listed."""
    after = read_cursor("templates", cursor_, str) or ""
    found = [document for document in await named_templates(context) if document.name > after]
    items = [_list_item(document) for document in found[:limit]]
    return page_response(items, make_cursor("templates", found[limit - 1].name) if len(found) > limit else None)


async def named_templates(context: ServerContext) -> list[Document]:
    """Those that people have given a name to."""

    async def load() -> list[Document]:
        return [document for document in await context.queue.documents(kinds.TEMPLATE) if not is_inline(document.name)]

    return await context.cached(("templates",), load)


def _list_item(document: Document) -> dict[str, Any]:
    template = _read(document)
    fields = sorted({name for kind in template.pages for name in kind.fields}) if template else []
    return {
        "name": document.name,
        "version": document.version,
        "made_at": iso_time(document.made_at),
        "kinds": [kind.kind for kind in template.pages] if template else [],
        "fields": fields[:100],
        "start": list(template.start[:10]) if template else [],
    }


def _read(document: Document) -> Template | None:
    try:
        return msgspec.json.decode(document.text, type=Template)
    except (msgspec.DecodeError, ValueError):
        return None  # of another version of shoal


@router.get("/templates/{name}", summary="One template", responses=response_docs(TemplateDocument, 404))
async def show_template(
    context: ContextDep,
    caller: ReaderDep,
    name: TemplateName,
    version: Annotated[int, Query(ge=0, le=models.MAX_ID, description="0 is the newest.")] = 0,
) -> Response:
    document = await context.queue.document(kinds.TEMPLATE, name, version)
    if document is None:
        raise _no_such_template(name)
    return json_response(_document(document))


def _no_such_template(name: str) -> Problem:
    return not_found("template", name, hint=f"PUT /api/v1/templates/{name} stores one")


def _document(document: Document) -> dict[str, Any]:
    return {
        "name": document.name,
        "version": document.version,
        "made_at": iso_time(document.made_at),
        "template": msgspec.json.decode(document.text),
    }


@router.get("/templates/{name}/versions", summary="Versions of a template", responses=response_docs(ListPage, 404))
async def list_versions(
    context: ContextDep,
    caller: ReaderDep,
    name: TemplateName,
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Newest first."""
    newest = await context.queue.document(kinds.TEMPLATE, name)
    if newest is None:
        raise _no_such_template(name)
    start = min(read_cursor("versions", cursor_, int) or newest.version, newest.version)
    numbers = list(range(start, max(0, start - limit), -1))
    found = [document for number in numbers if (document := await context.queue.document(kinds.TEMPLATE, name, number))]
    left = start - limit
    return page_response(
        [_list_item(document) for document in found], make_cursor("versions", left) if left > 0 else None
    )


@router.put(
    "/templates/{name}",
    summary="Store a template",
    responses=response_docs(TemplateDocument, 415),
    openapi_extra=_TEXT_BODY,
)
async def put_template(
    context: ContextDep,
    caller: OperatorDep,
    name: TemplateName,
    request: Request,
    check: Annotated[bool, Query(description="Only validate it.")] = False,
) -> Response:
    """The YAML text of a template. If it differs from the newest, it becomes a new version."""
    template = await read_template(request, name)
    text = msgspec.json.encode(template).decode()
    if check:
        preview = {"name": name, "version": 0, "made_at": None, "template": msgspec.json.decode(text)}
        return json_response(preview | {"checked": True})
    document = await context.queue.save_document(kinds.TEMPLATE, name, text)
    await context.actor(caller).log_action("template", name, version=document.version)
    context.invalidate()
    return json_response(_document(document))


async def read_template(request: Request, name: str) -> Template:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_TEXT:
            raise Problem(413, "request-too-large", f"a template has at most {MAX_TEXT:,} bytes")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem(422, "invalid-text", "a template is a text in UTF-8") from None
    # In a thread: a long text takes its time, and others are not kept waiting.
    return await asyncio.to_thread(check_template, text, name)


def check_template(text: str, name: str) -> Template:
    """A template from its text, checked whole; 422 with everything that is wrong with it."""
    try:
        template = parse_template(text, "the template")
    except TemplateError as error:
        raise Problem(
            422,
            "invalid-template",
            str(error),
            hint="fix that and send it again",
            problems=[msgspec.to_builtins(one) for one in error.problems],
        ) from None
    if template.name != name:
        raise Problem(422, "template-name-mismatch", f"the template is called {template.name}, not {name}")
    travelling = {key: value for key, value in template.settings.items() if key in RUN_SETTINGS}
    # A secret would be kept in the queue.
    settings_to_spec(with_defaults(Settings(), travelling, f"template {name}"))
    return template


@router.get("/scrapers", summary="List scrapers", responses=response_docs(ListPage))
async def list_scrapers(context: ContextDep, caller: ReaderDep) -> Response:
    """Those whose code this server finds, and those that workers serve."""
    return page_response(await context.cached(("scrapers",), lambda: scrapers(context)), None)


async def scrapers(context: ServerContext) -> list[dict[str, Any]]:
    """By name: where the code is known, its start URLs; and how many workers have it."""
    found = await asyncio.to_thread(known_scrapers, context.settings)
    for status in await live_workers(context.queue, context.settings):
        for name in status.serves:
            one = found.setdefault(name, {"name": name, "mode": "any", "start": [], "workers": 0})
            one["workers"] += 1
    return [found[name] for name in sorted(found)]


def known_scrapers(settings: Settings) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for listed in scraper_code(settings).values():
        scraper = listed.scraper
        start = list(scraper.start[:10])
        made[scraper.name] = {
            "name": scraper.name, "mode": scraper.mode or "any", "start": start, "workers": 0
        }  # fmt: skip
    return made


def scraper_code(settings: Settings) -> dict[str, registry.LocatedScraper]:
    """Scrapers by name, as far as the settings say where their code is, or it is installed."""
    return _code(tuple(settings.scrapers), int(time.monotonic() / CODE_MAX_AGE))


@lru_cache(maxsize=2)
def _code(places: tuple[str, ...], _: int) -> dict[str, registry.LocatedScraper]:
    made: dict[str, registry.LocatedScraper] = {}
    for target in (*places, *registry.installed_names()):
        try:
            scan_result = registry.scan(target, places)
        except (UsageError, SystemExit) as error:
            log("scraper.broken", "warning", target=target, problem=str(error))
            continue
        for listed in scan_result.found:
            made.setdefault(listed.scraper.name, listed)
    return made
