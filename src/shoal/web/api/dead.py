"""Dead letters: by host and cause, or one by one; of one run, or of all."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.queue.base import Where
from shoal.view.documents import group_document, letter_document
from shoal.web.access import Reader
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, Page, RunName, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.api.tasks import tasks_page
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["dead letters"])
RUNS = 100  # newest ones that are looked at together


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
async def list_groups(room: In, caller: Reader, run: RunName, limit: Limit = 100) -> Response:
    """The largest groups first, each with a sample."""
    found = await room.run(run)
    groups = await room.once(
        ("groups", found.id, limit), lambda: room.queue.dead_groups(found.id, limit=limit)
    )
    return page([group_document(group) | {"run": found.name} for group in groups], None)


@router.get("/dead", summary="Dead letters of all runs", responses=described(Page), response_class=Response)
async def list_all(room: In, caller: Reader, limit: Limit = 100) -> Response:
    """By run, host and cause, of the newest hundred runs; the largest groups first."""
    return page(await room.once(("dead", limit), lambda: groups_of_all(room, limit)), None)


async def groups_of_all(room: Room, limit: int) -> list[dict[str, Any]]:
    runs = await room.queue.runs(limit=RUNS)
    stats = await room.queue.stats_of([run.id for run in runs])
    found: list[dict[str, Any]] = []
    for run, counted in zip(runs, stats, strict=True):
        if counted.dead:
            groups = await room.queue.dead_groups(run.id, limit=limit)
            found += [group_document(group) | {"run": run.name, "scraper": run.scraper} for group in groups]
    return sorted(found, key=lambda group: -int(group["count"]))[:limit]
