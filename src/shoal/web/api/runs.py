"""Runs: list, show, pause, resume, cancel and remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import actions
from shoal.control.actions import LoggedAction
from shoal.core.run import Run, RunState
from shoal.queue.base import RunAction, TaskFilter
from shoal.view.documents import run_document
from shoal.view.formatting import iso_time
from shoal.view.run_state import display_state, live_workers
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, NameList, RunDocument, RunName, TaskCount, response_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import AdminDep, Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1", tags=["runs"])
OPEN_STATES: tuple[RunState, ...] = ("running", "paused")
MAX_RUNS = 500  # runs that one request acts on


@router.get("/runs", summary="List runs", responses=response_docs(ListPage))
async def list_runs(
    context: ContextDep,
    caller: ReaderDep,
    state: Annotated[list[models.RunStateName] | None, Query(max_length=4)] = None,
    scraper: models.TextQuery = "",
    name: Annotated[str, models.line_query(200, "A name, or a prefix.")] = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Newest first."""
    before = read_cursor("runs", cursor_, int) or 0
    states = tuple(state or ())

    async def load() -> tuple[list[dict[str, Any]], str | None]:
        found = await context.queue.runs(name=name, states=states, scraper=scraper, before=before, limit=limit + 1)
        shown = found[:limit]
        stats = await context.queue.stats_of([run.id for run in shown])
        statuses = await live_workers(context.queue, context.settings) if shown else []
        items = [
            run_document(run, counted)
            | {"display_state": await display_state(context.queue, context.settings, run, statuses)}
            for run, counted in zip(shown, stats, strict=True)
        ]
        return items, make_cursor("runs", shown[-1].id) if len(found) > limit else None

    items, next = await context.cached(("runs", states, scraper, name, before, limit), load)
    return page_response(items, next)


@router.get("/runs/{run}", summary="Status of a run", responses=response_docs(models.StatusDocument, 404))
async def show_run(context: ContextDep, caller: ReaderDep, run: RunName) -> Response:
    """Its counts, throughput, what limits it, and its workers."""
    return json_response(await context.hub.run_status(run))


def _add_run_action(action: Literal["pause", "resume", "cancel", "undo"], words: str, more: str) -> None:
    @router.post(
        f"/runs/{{run}}/{action}",
        summary=words,
        description=more,
        name=f"{action}_run",
        responses=response_docs(RunDocument, 404),
    )
    async def act(context: ContextDep, caller: OperatorDep, run: RunName) -> Response:
        return json_response(await change_run_state(context, caller, await context.find_run(run), action))


_add_run_action("pause", "Pause a run", "Pages in progress finish, no others start.")
_add_run_action("resume", "Resume a paused run", "Waiting tasks are handed out again.")
_add_run_action(
    "cancel", "Cancel a run", "Pending tasks are dropped; its records are kept. For an hour it can be undone."
)
_add_run_action("undo", "Undo the cancel of a run", "The run goes on as it was, with the tasks that were not done yet.")


async def change_run_state(context: ServerContext, caller: Caller, run: Run, action: RunAction) -> dict[str, Any]:
    changed = await context.actor(caller).control_run(run, action)
    context.invalidate()
    return run_document(changed, await context.queue.stats(changed.id))


@router.delete("/runs/{run}", summary="Remove a run that has ended", responses=response_docs(NameList, 404, 409))
async def purge_run(context: ContextDep, caller: AdminDep, run: RunName) -> Response:
    """Its tasks, dead letters and the records in the queue are removed with it."""
    found = await context.find_run(run)
    if found.state in OPEN_STATES:
        raise Problem(
            409,
            "run-not-ended",
            f"run {found.name} is {found.state}: only what has ended is removed",
            hint=f"POST /api/v1/runs/{found.name}/cancel first",
        )
    await context.actor(caller).purge(found)
    context.invalidate()
    return json_response({"names": [found.name], "dry_run": False})


@router.post("/runs/{run}/revive", summary="Requeue dead letters", responses=response_docs(TaskCount, 404))
async def revive(context: ContextDep, caller: OperatorDep, run: RunName, which: models.TaskSelection) -> Response:
    """With fresh attempts. A finished run continues."""
    return await _change_tasks(context, run, which, "dead", context.actor(caller).revive)


@router.post("/runs/{run}/drop", summary="Drop waiting tasks or dead letters", responses=response_docs(TaskCount, 404))
async def drop(context: ContextDep, caller: OperatorDep, run: RunName, which: models.DropSelection) -> Response:
    """They become cancelled and are not requested again. Tasks in progress are not affected."""

    async def change(found: Run, where: TaskFilter) -> actions.ChangedTasks:
        return await context.actor(caller).drop(found, where, which.state)

    return await _change_tasks(context, run, which, which.state, change)


async def _change_tasks(
    context: ServerContext,
    run: str,
    which: models.TaskSelection,
    state: Literal["ready", "dead"],
    change: Callable[[Run, TaskFilter], Awaitable[actions.ChangedTasks]],
) -> Response:
    found, where = await context.find_run(run), _task_filter(which)
    if which.dry_run:
        changed = await actions.count_tasks(context.queue, found, state, where)
    else:
        changed = await change(found, where)
        context.invalidate()
    shown = {"run": found.name, "count": changed.count, "more": changed.more, "dry_run": which.dry_run}
    return json_response(shown)


def _task_filter(which: models.TaskSelection) -> TaskFilter:
    where = TaskFilter(which.host, which.cause, which.url, tuple(which.ids))
    if (where == TaskFilter()) != which.all:
        raise Problem(
            422, "filter-required", "no filter: give host, cause, url or ids", hint='{"all": true} means all of the run'
        )
    return where


@router.get("/actions", summary="Recent actions", responses=response_docs(ListPage))
async def list_actions(context: ContextDep, caller: ReaderDep, limit: Limit = 200) -> Response:
    """The last 200 actions of people and programs, newest first."""
    found, _ = await context.cached(("actions",), lambda: actions.recent_actions(context.queue))
    return page_response([action_document(action) for action in found[:limit]], None)


def action_document(action: LoggedAction) -> dict[str, Any]:
    return {
        "at": iso_time(action.at),
        "who": action.who,
        "what": action.what,
        "about": action.about,
        "more": action.more,
        "via": action.via or None,
    }


@router.post("/actions", summary="Pause, resume or cancel many runs", responses=response_docs(NameList, 404))
async def act_on_runs(context: ContextDep, caller: OperatorDep, wanted: models.RunsActionRequest) -> Response:
    """Those named, or all unfinished ones that match; at most 500 at once, newest first."""
    if not (wanted.runs or wanted.scraper or wanted.state or wanted.all):
        raise Problem(422, "filter-required", "no filter: give runs, scraper or state", hint='{"all": true} means all')
    states = (wanted.state,) if wanted.state else OPEN_STATES
    if wanted.runs:
        chosen = [await context.find_run(name) for name in dict.fromkeys(wanted.runs)]
        chosen = [run for run in chosen if run.state in states]
    else:
        chosen = await context.queue.runs(states=states, scraper=wanted.scraper, limit=MAX_RUNS)
    fitting = {"pause": "running", "resume": "paused"}.get(wanted.action, "")
    chosen = [run for run in chosen if not fitting or run.state == fitting]
    if wanted.scraper:
        chosen = [run for run in chosen if run.scraper == wanted.scraper]
    if not wanted.dry_run:
        for run in chosen:
            await context.actor(caller).control_run(run, wanted.action)
        context.invalidate()
    return json_response({"names": [run.name for run in chosen], "dry_run": wanted.dry_run})
