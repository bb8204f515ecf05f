"""Seen-sets: URLs that one run has had and that later runs of the same set skip."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from shoal.app import rewrite_rule
from shoal.errors import UsageError
from shoal.view.documents import seen_set_document
from shoal.view.seen_sets import digests_of_urls
from shoal.web.api.models import ForgottenUrls, ListPage, RequestBody, SeenSetDocument, response_docs
from shoal.web.api.paging import page_response
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1/seen-sets", tags=["seen-sets"])
MAX_URLS = 1_000
SetName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class UrlsToForget(RequestBody):
    urls: Annotated[list[str], Field(min_length=1, max_length=MAX_URLS)]


@router.get("", summary="List seen-sets", responses=response_docs(ListPage))
async def list_seen_sets(context: ContextDep, caller: ReaderDep) -> Response:
    """All of them, with how many URLs each remembers and for how long."""
    return page_response([seen_set_document(it) for it in await context.queue.seen_sets()], None)


@router.get("/{name}", summary="One seen-set", responses=response_docs(SeenSetDocument, 404))
async def show_seen_set(context: ContextDep, caller: ReaderDep, name: SetName) -> Response:
    return json_response(await _find(context, name))


async def _find(context: ServerContext, name: str) -> dict[str, object]:
    for found in await context.queue.seen_sets():
        if found.name == name:
            return seen_set_document(found)
    raise not_found("seen-set", name, hint="GET /api/v1/seen-sets lists them")


@router.post("/{name}/forget", summary="Forget URLs", responses=response_docs(ForgottenUrls, 404))
async def forget(context: ContextDep, caller: OperatorDep, name: SetName, which: UrlsToForget) -> Response:
    """Later runs of this seen-set fetch these URLs again; `count` says how many were in it."""
    await _find(context, name)
    try:
        digests = digests_of_urls(which.urls, rewrite_rule(context.settings))
    except UsageError as error:
        raise Problem(422, "invalid-url", str(error), hint=error.hint) from None
    count = await context.actor(caller).forget_seen(name, digests)
    return json_response({"name": name, "count": count})


@router.delete("/{name}", summary="Clear a seen-set", responses=response_docs(ForgottenUrls, 404))
async def clear(context: ContextDep, caller: OperatorDep, name: SetName) -> Response:
    """Everything in it is forgotten at once; `count` says how many URLs that were."""
    await _find(context, name)
    count = await context.actor(caller).clear_seen(name)
    return json_response({"name": name, "count": count})
