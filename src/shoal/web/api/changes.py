"""Changes: the pages that changed, came and went since the run before."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.queue.previous_run import previous_run
from shoal.view.changes import count_changes, read_changes
from shoal.web.api.models import ChangesDocument, Cursor, RunName, response_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["records"])


@router.get("/changes", summary="Pages that changed, came and went", responses=response_docs(ChangesDocument, 404, 409))
async def list_changes(
    context: ContextDep, caller: ReaderDep, run: RunName, cursor_: Annotated[Cursor, Query(alias="cursor")] = ""
) -> Response:
    """Of a run with `changed_only`. A page may be empty although more follow: unchanged pages are not listed."""
    found = await context.find_run(run)
    after = read_cursor(f"changes/{found.id}", cursor_, int) or 0
    counts = await context.cached(("changes", found.id), lambda: count_changes(context.queue, found))
    if counts is None:
        raise Problem(
            409,
            "not-compared",
            f"run {found.name} did not compare its pages with an earlier run",
            hint='start runs with {"settings": {"changed_only": true}}',
        )
    some = await read_changes(context.queue, found, await previous_run(context.queue, found), after=after)
    items = [msgspec.to_builtins(change) for change in some.changes]
    next = make_cursor(f"changes/{found.id}", some.next) if some.next else None
    return page_response(items, next, counts=msgspec.to_builtins(counts))
