"""Tasks: list, show, search, revive and drop them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.actions import scan_windows
from shoal.core.run import Run, run_of
from shoal.core.task import digest
from shoal.core.typed_task import TYPE_PREFIX
from shoal.core.url import canonical, request_digest
from shoal.errors import InvalidUrl
from shoal.queue.base import TaskFilter, TaskView
from shoal.sources.url_text import with_scheme
from shoal.view.documents import explanation_document, task_document
from shoal.view.why import explain_task, find_task
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, RunName, TaskCount, TaskDocument, TaskId, response_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1", tags=["tasks"])
BUDGET = 0.1  # seconds of looking for one page
RUNS_SEARCHED = 100
MAX_AHEAD = 2_000  # tasks counted that come before one

UrlPattern = Annotated[str, models.line_query(8_192, "Exact, or with stars.")]


@router.get("/runs/{run}/tasks", summary="Tasks of a run", responses=response_docs(ListPage, 404))
async def list_tasks(
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    state: models.TaskStateName | None = None,
    host: models.TextQuery = "",
    cause: Annotated[str, models.line_query(500, 'Exact, or "http.5*".')] = "",
    url: UrlPattern = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By ascending id. With a narrow filter a page may be empty although more follow."""
    found = await context.find_run(run)
    items, next = await tasks_page(
        context, found, state, TaskFilter(host, cause, url), limit, read_cursor(f"tasks/{found.id}", cursor_, int) or 0
    )
    return page_response(
        [task_document(view, found.name) for view in items], make_cursor(f"tasks/{found.id}", next) if next else None
    )


async def tasks_page(
    context: ServerContext, run: Run, state: models.TaskStateName | None, where: TaskFilter, limit: int, after: int
) -> tuple[list[TaskView], int]:
    """Up to `limit` tasks after an id, and where to go on (0: that was all); looks for BUDGET seconds."""
    if after and run_of(after) != run.id:
        raise Problem(422, "invalid-cursor", "this cursor belongs to another list")
    found: list[TaskView] = []
    ends = time.monotonic() + BUDGET
    async for some, at in scan_windows(context.queue, run, state, where, after=after, limit=limit):
        found += some
        if len(found) >= limit:
            more = at or len(found) > limit
            return found[:limit], found[limit - 1].id if more else 0
        if not at or time.monotonic() > ends:
            return found, at
    return found, 0


@router.get("/tasks/{id}", summary="One task in detail", responses=response_docs(TaskDocument, 404))
async def show_task(context: ContextDep, caller: ReaderDep, id: TaskId) -> Response:
    """Who found it, every attempt, and why it is not being fetched right now."""
    return json_response(await _explain(context, id))


async def _explain(context: ServerContext, id: int) -> dict[str, Any]:
    async def load() -> dict[str, Any]:
        found = await explain_task(context.queue, context.settings, id, most_ahead=MAX_AHEAD)
        if found is None:
            raise _no_such_task(id)
        return explanation_document(found)

    return await context.cached(("task", id), load)


def _no_such_task(id: int) -> Problem:
    return not_found("task", id, hint="it may have been removed with its run")


async def _find_task(context: ServerContext, id: int) -> tuple[Run, TaskView]:
    found = await find_task(context.queue, id)
    if found is None:
        raise _no_such_task(id)
    return found


@router.post("/tasks/{id}/revive", summary="Requeue a dead letter", responses=response_docs(TaskCount, 404, 409))
async def revive_task(context: ContextDep, caller: OperatorDep, id: TaskId) -> Response:
    run, task = await _find_task(context, id)
    revived = await context.actor(caller).revive_task(run, task) if task.state == "dead" else 0
    if not revived:
        raise Problem(409, "task-not-dead", f"task {id} is {task.state}: only dead letters can be revived")
    context.invalidate()
    return json_response({"run": run.name, "count": revived, "more": False, "dry_run": False})


@router.post(
    "/tasks/{id}/drop", summary="Drop a waiting task or a dead letter", responses=response_docs(TaskCount, 404, 409)
)
async def drop_task(context: ContextDep, caller: OperatorDep, id: TaskId) -> Response:
    run, task = await _find_task(context, id)
    waits = task.state in ("ready", "delayed", "dead")
    dropped = await context.actor(caller).drop_task(run, task) if waits else 0
    if not dropped:
        raise Problem(409, "task-not-pending", f"task {id} is {task.state}: only waiting or dead ones can be dropped")
    context.invalidate()
    return json_response({"run": run.name, "count": dropped, "more": False, "dry_run": False})


@router.get("/search", summary="Find a URL or an id", responses=response_docs(ListPage, 404))
async def search(
    context: ContextDep,
    caller: ReaderDep,
    q: Annotated[
        str, Query(min_length=1, max_length=8_192, pattern=models.LINE_PATTERN, description="A URL, or a task's id.")
    ],
    run: Annotated[str, models.line_query(200, "Only in this run.")] = "",
    limit: Limit = 20,
) -> Response:
    """In the newest hundred runs, unless a run is given."""
    chosen = [await context.find_run(run)] if run else None
    found = await context.cached(("search", q, run, limit), lambda: search_for(context, q, chosen, limit))
    return page_response([task_document(view, name) for view, name in found], None)


async def search_for(
    context: ServerContext, word: str, runs: list[Run] | None = None, limit: int = 20
) -> list[tuple[TaskView, str]]:
    """Tasks that a word means, each with the name of its run; the newest run first."""
    word = word.strip()
    if word.isascii() and word.isdecimal():
        found = await find_task(context.queue, int(word)) if len(word) < 19 else None
        return [(found[1], found[0].name)] if found else []
    try:
        typed = word.startswith(TYPE_PREFIX)
        identity = digest(word) if typed else request_digest(canonical(with_scheme(word)))
    except InvalidUrl:
        return []
    made: list[tuple[TaskView, str]] = []
    for run in runs or await context.queue.runs(limit=RUNS_SEARCHED):
        view = await context.queue.find(run.id, identity)
        if view is not None:
            made.append((view, run.name))
        if len(made) >= limit:
            break
    return made
