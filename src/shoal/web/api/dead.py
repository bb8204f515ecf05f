"""Dead letters: by host and cause, or one by one; of one run, or of all."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.core.run import Run
from shoal.queue.base import DeadGroup, Queue, Where
from shoal.view.documents import group_document, letter_document
from shoal.web.access import Reader
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, Page, RunName, described
from shoal.web.api.paging import cursor, page, place, unknown
from shoal.web.api.tasks import tasks_page
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["dead letters"])
RUNS = 100  # that are looked at together
LOOKED = 1_000  # runs that one request looks at
DEEP = 1_000  # groups of one run
_is_place = re.compile(r"(\d{1,18})\.(\d{1,3})", re.ASCII).fullmatch


@router.get(
    "/runs/{run}/dead",
    summary="Dead letters of a run",
    responses=described(Page, 404),
    response_class=Response,
)
async def list_dead(
    room: In,
    caller: Reader,
    run: RunName,
    host: models.Word = "",
    cause: Annotated[
        str, Query(max_length=500, pattern=models.LINE, description='Exact, or "http.5*".')
    ] = "",
    url: Annotated[
        str, Query(max_length=8_192, pattern=models.LINE, description="Exact, or with stars.")
    ] = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """One by one, with the evidence. A page may be empty although others follow."""
    found = await room.run(run)
    after = place(f"dead/{found.id}", cursor_, int) or 0
    items, next = await tasks_page(room, found, "dead", Where(host, cause, url), limit, after)
    return page([letter_document(view) for view in items], cursor(f"dead/{found.id}", next) if next else None)


@router.get(
    "/runs/{run}/dead/groups",
    summary="Dead letters of a run by host and cause",
    responses=described(Page, 404),
    response_class=Response,
)
async def list_groups(
    room: In,
    caller: Reader,
    run: RunName,
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """The thousand largest groups, the largest first, each with a sample."""
    found = await room.run(run)
    first = min(place(f"groups/{found.id}", cursor_, int) or 0, DEEP)

    async def ask() -> tuple[list[dict[str, Any]], int]:
        groups, next = await groups_of(room.queue, found, first, limit)
        return [group_document(group) | {"run": found.name} for group in groups], next

    items, next = await room.once(("groups", found.id, first, limit), ask)
    return page(items, cursor(f"groups/{found.id}", next) if next else None)


@router.get("/dead", summary="Dead letters of all runs", responses=described(Page), response_class=Response)
async def list_all(
    room: In,
    caller: Reader,
    order: Annotated[
        Literal["run", "count"],
        Query(description="The newest run first, page by page; or the largest groups of the newest hundred."),
    ] = "run",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By run, host and cause, of each run the thousand largest groups. A page may be empty although others
    follow. `order=count` is one page only."""
    at = _place(place("dead", cursor_, str))
    if order == "count" and not at:
        return page(await room.once(("dead", limit), lambda: largest_of_all(room, limit)), None)
    items, next = await room.once(("dead", at, limit), lambda: groups_page(room.queue, limit, *at))
    return page(items, cursor("dead", next) if next else None)


def _place(given: str | None) -> tuple[int, int] | tuple[()]:
    """Run and group to go on with."""
    if given is None:
        return ()
    if not (found := _is_place(given)):
        raise unknown()
    return int(found[1]), int(found[2])


async def groups_page(
    queue: Queue, limit: int, run: int = 0, first: int = 0
) -> tuple[list[dict[str, Any]], str]:
    """Groups from this one of this run on (0: of the newest), and where to go on; empty at the end."""
    found: list[dict[str, Any]] = []
    before = run + 1 if run else 0
    for _ in range(LOOKED // RUNS):
        runs = await queue.runs(before=before, limit=RUNS)
        stats = await queue.stats_of([it.id for it in runs])
        for it, counted in zip(runs, stats, strict=True):
            at = first if it.id == run else 0
            if not counted.dead:
                continue
            if len(found) == limit:
                return found, f"{it.id}.0"
            groups, next = await groups_of(queue, it, at, limit - len(found))
            await asyncio.sleep(0)  # others get their turn
            found += [group_document(group) | {"run": it.name, "scraper": it.scraper} for group in groups]
            if next:
                return found, f"{it.id}.{next}"
        if len(runs) < RUNS:
            return found, ""
        before = runs[-1].id
    return found, f"{before - 1}.0" if before > 1 else ""


async def groups_of(queue: Queue, run: Run, first: int, limit: int) -> tuple[list[DeadGroup], int]:
    """Some groups of a run, the largest first, and where to go on; 0 at the end."""
    last = min(first + limit, DEEP)
    groups = await queue.dead_groups(run.id, limit=last + 1)
    return groups[first:last], last if len(groups) > last and last < DEEP else 0


async def largest_of_all(room: Room, limit: int) -> list[dict[str, Any]]:
    runs = await room.queue.runs(limit=RUNS)
    stats = await room.queue.stats_of([run.id for run in runs])
    found: list[dict[str, Any]] = []
    for run, counted in zip(runs, stats, strict=True):
        if counted.dead:
            groups = await room.queue.dead_groups(run.id, limit=limit)
            found += [group_document(group) | {"run": run.name, "scraper": run.scraper} for group in groups]
    return sorted(found, key=lambda group: -int(group["count"]))[:limit]
