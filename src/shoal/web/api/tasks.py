"""Tasks: listed by filter, looked at with their whole story, searched for, revived and dropped one by one."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.acting import Acting, windows
from shoal.core.run import Run, run_of
from shoal.core.task import digest
from shoal.core.typed import PREFIX
from shoal.core.url import canonical, request_digest
from shoal.errors import InvalidUrl
from shoal.queue.base import TaskView, Where
from shoal.sources.address import completed
from shoal.view.documents import answer_document, task_document
from shoal.view.why import explain_id, run_of_task
from shoal.web.access import Operator, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Counted, Cursor, Limit, Page, RunName, TaskDocument, TaskId, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["tasks"])
BUDGET = 0.1  # seconds of looking for one page
RUNS_SEARCHED = 100
AHEAD = 2_000  # tasks counted that come before one

Glob = Annotated[str, Query(max_length=8_192, pattern=models.LINE, description="Exact, or with stars.")]


@router.get(
    "/runs/{run}/tasks", summary="Tasks of a run", responses=described(Page, 404), response_class=Response
)
async def list_tasks(
    room: In,
    caller: Reader,
    run: RunName,
    state: models.TaskStateName | None = None,
    host: models.Word = "",
    cause: Annotated[
        str, Query(max_length=500, pattern=models.LINE, description='Exact, or "http.5*".')
    ] = "",
    url: Glob = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By ascending id. Where a filter matches little, a page may be empty although others follow."""
    found = await room.run(run)
    items, next = await tasks_page(
        room, found, state, Where(host, cause, url), limit, place(f"tasks/{found.id}", cursor_, int) or 0
    )
    return page(
        [task_document(view, found.name) for view in items],
        cursor(f"tasks/{found.id}", next) if next else None,
    )


async def tasks_page(
    room: Room, run: Run, state: models.TaskStateName | None, where: Where, limit: int, after: int
) -> tuple[list[TaskView], int]:
    """Up to `limit` tasks after an id, and where to go on (0: that was all); looks for BUDGET seconds."""
    if after and run_of(after) != run.id:
        raise Problem(422, "unknown-cursor", "this cursor is not of this list")
    found: list[TaskView] = []
    ends = time.monotonic() + BUDGET
    async for some, at in windows(room.queue, run, state, where, after=after, limit=limit):
        found += some
        if len(found) >= limit:
            more = at or len(found) > limit
            return found[:limit], found[limit - 1].id if more else 0
        if not at or time.monotonic() > ends:
            return found, at
    return found, 0


@router.get(
    "/tasks/{id}",
    summary="The whole story of a task",
    responses=described(TaskDocument, 404),
    response_class=Response,
)
async def show_task(room: In, caller: Reader, id: TaskId) -> Response:
    """Who found it, every attempt, and why it is not being fetched this second."""
    return answer(await story(room, id))


async def story(room: Room, id: int) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        found = await explain_id(room.queue, room.settings, id, most_ahead=AHEAD)
        if found is None:
            raise _none(id)
        return answer_document(found)

    return await room.once(("task", id), ask)


def _none(id: int) -> Problem:
    return no_such("task", id, hint="it may have been removed with its run")


async def _found(room: Room, id: int) -> tuple[Run, TaskView]:
    found = await run_of_task(room.queue, id)
    if found is None:
        raise _none(id)
    return found


@router.post(
    "/tasks/{id}/revive",
    summary="Put a dead letter back to work",
    responses=described(Counted, 404, 409),
    response_class=Response,
)
async def revive_task(room: In, caller: Operator, id: TaskId) -> Response:
    run, task = await _found(room, id)
    revived = await Acting(room.queue, caller.name).revive_task(run, task) if task.state == "dead" else 0
    if not revived:
        raise Problem(409, "not-dead", f"task {id} is {task.state}: only dead letters are revived")
    room.touched()
    return answer({"run": run.name, "count": revived, "more": False, "dry_run": False})


@router.post(
    "/tasks/{id}/drop",
    summary="Give up a task that waits, or a dead letter",
    responses=described(Counted, 404, 409),
    response_class=Response,
)
async def drop_task(room: In, caller: Operator, id: TaskId) -> Response:
    run, task = await _found(room, id)
    waits = task.state in ("ready", "delayed", "dead")
    dropped = await Acting(room.queue, caller.name).drop_task(run, task) if waits else 0
    if not dropped:
        raise Problem(409, "not-waiting", f"task {id} is {task.state}: only what waits or is dead is dropped")
    room.touched()
    return answer({"run": run.name, "count": dropped, "more": False, "dry_run": False})


@router.get(
    "/search", summary="Find an address or an id", responses=described(Page, 404), response_class=Response
)
async def search(
    room: In,
    caller: Reader,
    q: Annotated[
        str,
        Query(min_length=1, max_length=8_192, pattern=models.LINE, description="An address, or a task's id."),
    ],
    run: Annotated[str, Query(max_length=200, pattern=models.LINE, description="Only in this run.")] = "",
    limit: Limit = 20,
) -> Response:
    """In the newest hundred runs, unless one is named."""
    chosen = [await room.run(run)] if run else None
    found = await room.once(("search", q, run, limit), lambda: search_for(room, q, chosen, limit))
    return page([task_document(view, name) for view, name in found], None)


async def search_for(
    room: Room, word: str, runs: list[Run] | None = None, limit: int = 20
) -> list[tuple[TaskView, str]]:
    """Tasks that a word means, each with the name of its run; the newest run first."""
    word = word.strip()
    if word.isascii() and word.isdecimal():
        found = await run_of_task(room.queue, int(word)) if len(word) < 19 else None
        return [(found[1], found[0].name)] if found else []
    try:
        typed = word.startswith(PREFIX)
        identity = digest(word) if typed else request_digest(canonical(completed(word)))
    except InvalidUrl:
        return []
    made: list[tuple[TaskView, str]] = []
    for run in runs or await room.queue.runs(limit=RUNS_SEARCHED):
        view = await room.queue.find(run.id, identity)
        if view is not None:
            made.append((view, run.name))
        if len(made) >= limit:
            break
    return made
