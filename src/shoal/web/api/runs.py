"""Runs: listed, looked at, steered and removed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import acting
from shoal.control.acting import Acting, Action
from shoal.core.run import Run, RunState
from shoal.queue.base import RunAction, Where
from shoal.view.documents import run_document
from shoal.view.standing import alive, standing
from shoal.view.words import stamp
from shoal.web.access import Admin, Caller, Operator, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Counted, Cursor, Limit, Names, Page, RunDocument, RunName, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.problem import Problem
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["runs"])
OPEN: tuple[RunState, ...] = ("running", "paused")
MOST = 500  # runs that one request acts on


@router.get("/runs", summary="List runs", responses=described(Page), response_class=Response)
async def list_runs(
    room: In,
    caller: Reader,
    state: Annotated[list[models.RunStateName] | None, Query(max_length=4)] = None,
    scraper: models.Word = "",
    name: Annotated[
        str, Query(max_length=200, pattern=models.LINE, description="A name, or its beginning.")
    ] = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Newest first."""
    before = place("runs", cursor_, int) or 0
    states = tuple(state or ())

    async def ask() -> tuple[list[dict[str, Any]], str | None]:
        found = await room.queue.runs(
            name=name, states=states, scraper=scraper, before=before, limit=limit + 1
        )
        shown = found[:limit]
        stats = await room.queue.stats_of([run.id for run in shown])
        marks = await alive(room.queue, room.settings) if shown else []
        items = [
            run_document(run, counted) | {"standing": await standing(room.queue, room.settings, run, marks)}
            for run, counted in zip(shown, stats, strict=True)
        ]
        return items, cursor("runs", shown[-1].id) if len(found) > limit else None

    items, next = await room.once(("runs", states, scraper, name, before, limit), ask)
    return page(items, next)


@router.get(
    "/runs/{run}",
    summary="How a run goes",
    responses=described(models.StatusDocument, 404),
    response_class=Response,
)
async def show_run(room: In, caller: Reader, run: RunName) -> Response:
    """Its account, its pace, what limits it, and who works on it."""
    return answer(await status_of(room, run))


async def status_of(room: Room, named: str) -> dict[str, Any]:
    """The status of a run, at most a second old and shared by all who ask or watch."""
    return await room.hub.run(named)


def _steered(action: Literal["pause", "resume", "cancel"], words: str, more: str) -> None:
    @router.post(
        f"/runs/{{run}}/{action}",
        summary=words,
        description=more,
        name=f"{action}_run",
        responses=described(RunDocument, 404),
        response_class=Response,
    )
    async def act(room: In, caller: Operator, run: RunName) -> Response:
        return answer(await steer(room, caller, await room.run(run), action))


_steered("pause", "Pause a run", "Pages under way end, no others start.")
_steered("resume", "Let a paused run go on", "What waits is handed out again.")
_steered("cancel", "Cancel a run", "What waits is given up; its records are kept.")


async def steer(room: Room, caller: Caller, run: Run, action: RunAction) -> dict[str, Any]:
    changed = await Acting(room.queue, caller.name).steer(run, action)
    room.touched()
    return run_document(changed, await room.queue.stats(changed.id))


@router.delete(
    "/runs/{run}",
    summary="Remove a run that has ended",
    responses=described(Names, 404, 409),
    response_class=Response,
)
async def purge_run(room: In, caller: Admin, run: RunName) -> Response:
    """Its tasks, dead letters and the records that wait in the queue go with it."""
    found = await room.run(run)
    if found.state in OPEN:
        raise Problem(
            409,
            "not-ended",
            f"run {found.name} is {found.state}: only what has ended is removed",
            hint=f"POST /api/v1/runs/{found.name}/cancel first",
        )
    await Acting(room.queue, caller.name).purge(found)
    room.touched()
    return answer({"names": [found.name], "dry_run": False})


@router.post(
    "/runs/{run}/revive",
    summary="Put dead letters back to work",
    responses=described(Counted, 404),
    response_class=Response,
)
async def revive(room: In, caller: Operator, run: RunName, which: models.Filter) -> Response:
    """With fresh attempts. A run that was finished goes on."""
    found, where = await room.run(run), _where(which)
    if which.dry_run:
        return _counted(found, await acting.count(room.queue, found, "dead", where), dry=True)
    changed = await Acting(room.queue, caller.name).revive(found, where)
    room.touched()
    return _counted(found, changed)


@router.post(
    "/runs/{run}/drop",
    summary="Give up tasks that wait, or dead letters",
    responses=described(Counted, 404),
    response_class=Response,
)
async def drop(room: In, caller: Operator, run: RunName, which: models.DropFilter) -> Response:
    """They become cancelled, and are not asked for again. What is under way is left alone."""
    found, where = await room.run(run), _where(which)
    if which.dry_run:
        return _counted(found, await acting.count(room.queue, found, which.state, where), dry=True)
    changed = await Acting(room.queue, caller.name).drop(found, where, which.state)
    room.touched()
    return _counted(found, changed)


def _where(which: models.Filter) -> Where:
    where = Where(which.host, which.cause, which.url, tuple(which.ids))
    if (where == Where()) != which.all:
        raise Problem(
            422,
            "say-which",
            "say which tasks: host, cause, url or ids",
            hint='{"all": true} means all of the run',
        )
    return where


def _counted(run: Run, changed: acting.Changed, *, dry: bool = False) -> Response:
    return answer({"run": run.name, "count": changed.count, "more": changed.more, "dry_run": dry})


@router.get("/actions", summary="What was done lately", responses=described(Page), response_class=Response)
async def list_actions(room: In, caller: Reader, limit: Limit = 200) -> Response:
    """The last 200 actions of people and programs, newest first."""
    found, _ = await room.once(("actions",), lambda: acting.actions(room.queue))
    return page([action_document(action) for action in found[:limit]], None)


def action_document(action: Action) -> dict[str, Any]:
    return {
        "at": stamp(action.at),
        "who": action.who,
        "what": action.what,
        "about": action.about,
        "more": action.more,
    }


@router.post(
    "/actions",
    summary="Pause, resume or cancel many runs",
    responses=described(Names, 404),
    response_class=Response,
)
async def act_on_runs(room: In, caller: Operator, wanted: models.RunsAction) -> Response:
    """Those named, or all that have not ended and match; at most 500 at once, newest first."""
    if not (wanted.runs or wanted.scraper or wanted.state or wanted.all):
        raise Problem(
            422, "say-which", "say which runs: runs, scraper or state", hint='{"all": true} means all'
        )
    states = (wanted.state,) if wanted.state else OPEN
    if wanted.runs:
        chosen = [await room.run(name) for name in dict.fromkeys(wanted.runs)]
        chosen = [run for run in chosen if run.state in states]
    else:
        chosen = await room.queue.runs(states=states, scraper=wanted.scraper, limit=MOST)
    fitting = {"pause": "running", "resume": "paused"}.get(wanted.action, "")
    chosen = [run for run in chosen if not fitting or run.state == fitting]
    if wanted.scraper:
        chosen = [run for run in chosen if run.scraper == wanted.scraper]
    if not wanted.dry_run:
        for run in chosen:
            await Acting(room.queue, caller.name).steer(run, wanted.action)
        room.touched()
    return answer({"names": [run.name for run in chosen], "dry_run": wanted.dry_run})
