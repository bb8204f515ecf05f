"""The response cache: how much is in it, and how to clear it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.core.url import canonical
from shoal.errors import InvalidUrl
from shoal.view.cache import entries_of_url, stats_document
from shoal.web.api.models import CacheDocument, RemovedResponses, response_docs
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1/cache", tags=["cache"])
Host = Annotated[str, Query(max_length=300, description="Only responses of this host.")]
PageUrl = Annotated[str, Query(max_length=4_000, description="Only responses of this URL.")]


@router.get("", summary="The response cache", responses=response_docs(CacheDocument))
async def show_cache(context: ContextDep, caller: ReaderDep) -> Response:
    """How many responses are stored, what they take, and the age of the oldest."""
    return json_response(stats_document(await context.cached(("cache",), context.queue.cache_stats)))


@router.delete("", summary="Clear the response cache", responses=response_docs(RemovedResponses, 422))
async def clear(context: ContextDep, caller: OperatorDep, host: Host = "", url: PageUrl = "") -> Response:
    """Of a host, of a URL, or all of it; `count` says how many responses were removed."""
    if host and url:
        raise Problem(422, "conflicting-fields", "give host or url, not both")
    try:
        wanted = canonical(url) if url else ""
    except InvalidUrl as error:
        raise Problem(422, "invalid-url", str(error), hint=error.hint) from None
    keys = [entry.key for entry in await entries_of_url(context.queue, wanted)] if wanted else []
    actor = context.actor(caller)
    count = await actor.clear_cache(host=host, keys=keys, about=wanted) if keys or not wanted else 0
    context.invalidate()
    return json_response({"count": count})
