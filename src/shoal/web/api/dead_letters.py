"""Dead letters: by host and cause, or one by one; of one run, or of all."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.core.run import Run
from shoal.queue.base import DeadLetterGroup, Queue, TaskFilter
from shoal.view.dead_letters import failing_letters
from shoal.view.documents import dead_group_document, dead_letter_document
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, RunName, response_docs
from shoal.web.api.paging import invalid_cursor, make_cursor, page_response, read_cursor
from shoal.web.api.tasks import tasks_page
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext

router = APIRouter(prefix="/api/v1", tags=["dead letters"])
RUNS_PER_QUERY = 100  # that are looked at together
MAX_RUNS_SCANNED = 1_000  # runs that one request looks at
MAX_GROUPS = 1_000  # groups of one run
_match_position = re.compile(r"(\d{1,18})\.(\d{1,3})", re.ASCII).fullmatch


@router.get("/runs/{run}/dead", summary="Dead letters of a run", responses=response_docs(ListPage, 404))
async def list_dead(
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    host: models.TextQuery = "",
    cause: Annotated[str, models.line_query(500, 'Exact, or "http.5*".')] = "",
    url: Annotated[str, models.line_query(8_192, "Exact, or with stars.")] = "",
    failures: Annotated[
        int, Query(ge=0, le=1_000_000, description="Only pages that failed at least so often, in all runs.")
    ] = 0,
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """One by one, with the evidence. A page may be empty although more follow."""
    found = await context.find_run(run)
    after = read_cursor(f"dead/{found.id}", cursor_, int) or 0
    items, next = await tasks_page(context, found, "dead", TaskFilter(host, cause, url), limit, after)
    if failures:
        items = await failing_letters(context.queue, items, failures)
    return page_response(
        [dead_letter_document(view) for view in items], make_cursor(f"dead/{found.id}", next) if next else None
    )


@router.get(
    "/runs/{run}/dead/groups", summary="Dead letters of a run by host and cause", responses=response_docs(ListPage, 404)
)
async def list_groups(
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """The thousand largest groups, the largest first, each with a sample."""
    found = await context.find_run(run)
    first = min(read_cursor(f"groups/{found.id}", cursor_, int) or 0, MAX_GROUPS)

    async def load() -> tuple[list[dict[str, Any]], int]:
        groups, next = await groups_of(context.queue, found, first, limit)
        return [dead_group_document(group) | {"run": found.name} for group in groups], next

    items, next = await context.cached(("groups", found.id, first, limit), load)
    return page_response(items, make_cursor(f"groups/{found.id}", next) if next else None)


@router.get("/dead", summary="Dead letters of all runs", responses=response_docs(ListPage))
async def list_all(
    context: ContextDep,
    caller: ReaderDep,
    order: Annotated[
        Literal["run", "count"],
        Query(description="The newest run first, page by page; or the largest groups of the newest hundred."),
    ] = "run",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By run, host and cause, of each run the thousand largest groups. A page may be empty although others
    follow. `order=count` is one page only."""
    at = _position(read_cursor("dead", cursor_, str))
    if order == "count" and not at:
        return page_response(await context.cached(("dead", limit), lambda: largest_groups(context, limit)), None)
    items, next = await context.cached(("dead", at, limit), lambda: groups_page(context.queue, limit, *at))
    return page_response(items, make_cursor("dead", next) if next else None)


def _position(given: str | None) -> tuple[int, int] | tuple[()]:
    """Run and group to go on with."""
    if given is None:
        return ()
    if not (found := _match_position(given)):
        raise invalid_cursor()
    return int(found[1]), int(found[2])


async def groups_page(queue: Queue, limit: int, run: int = 0, first: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Groups from this one of this run on (0: of the newest), and where to go on; empty at the end."""
    found: list[dict[str, Any]] = []
    before = run + 1 if run else 0
    for _ in range(MAX_RUNS_SCANNED // RUNS_PER_QUERY):
        runs = await queue.runs(before=before, limit=RUNS_PER_QUERY)
        stats = await queue.stats_of([it.id for it in runs])
        for it, stats_of_run in zip(runs, stats, strict=True):
            at = first if it.id == run else 0
            if not stats_of_run.dead:
                continue
            if len(found) == limit:
                return found, f"{it.id}.0"
            groups, next = await groups_of(queue, it, at, limit - len(found))
            await asyncio.sleep(0)  # others get their turn
            found += [dead_group_document(group) | {"run": it.name, "scraper": it.scraper} for group in groups]
            if next:
                return found, f"{it.id}.{next}"
        if len(runs) < RUNS_PER_QUERY:
            return found, ""
        before = runs[-1].id
    return found, f"{before - 1}.0" if before > 1 else ""


async def groups_of(queue: Queue, run: Run, first: int, limit: int) -> tuple[list[DeadLetterGroup], int]:
    """Some groups of a run, the largest first, and where to go on; 0 at the end."""
    last = min(first + limit, MAX_GROUPS)
    groups = await queue.dead_groups(run.id, limit=last + 1)
    return groups[first:last], last if len(groups) > last and last < MAX_GROUPS else 0


async def largest_groups(context: ServerContext, limit: int) -> list[dict[str, Any]]:
    runs = await context.queue.runs(limit=RUNS_PER_QUERY)
    stats = await context.queue.stats_of([run.id for run in runs])
    found: list[dict[str, Any]] = []
    for run, stats_of_run in zip(runs, stats, strict=True):
        if stats_of_run.dead:
            groups = await context.queue.dead_groups(run.id, limit=limit)
            found += [dead_group_document(group) | {"run": run.name, "scraper": run.scraper} for group in groups]
    return sorted(found, key=lambda group: -int(group["count"]))[:limit]
