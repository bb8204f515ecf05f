"""Workers: who works on the queue, and asking them to drain, pause or go on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.acting import Acting, Wanted, choose
from shoal.core.lane import Mark
from shoal.view.documents import worker_document
from shoal.view.workers import state_of
from shoal.web.access import Caller, Operator, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, Names, Page, WorkerDocument, WorkerName, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])
ACTIONS: dict[str, Wanted] = {"drain": "drain", "pause": "pause", "resume": ""}


@router.get("", summary="List workers", responses=described(Page), response_class=Response)
async def list_workers(
    room: In,
    caller: Reader,
    state: Annotated[
        str, Query(max_length=50, pattern=models.LINE, description="working, idle, stale …")
    ] = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By id, also those that fell silent."""
    after = place("workers", cursor_, str) or ""
    found = [one for one in await workers(room) if one["id"] > after and state in ("", one["state"])]
    shown = found[:limit]
    return page(shown, cursor("workers", shown[-1]["id"]) if len(found) > limit else None)


async def workers(room: Room) -> list[dict[str, Any]]:
    """All of them as documents, by id."""

    async def ask() -> list[dict[str, Any]]:
        marks, now = await room.queue.workers(), await room.queue.now()
        stale = room.settings.stale_after
        return [worker_document(mark, now, stale) for mark in sorted(marks, key=lambda it: it.id)]

    return await room.once(("workers",), ask)


@router.get(
    "/{worker}", summary="One worker", responses=described(WorkerDocument, 404), response_class=Response
)
async def show_worker(room: In, caller: Reader, worker: WorkerName) -> Response:
    for one in await workers(room):
        if one["id"] == worker:
            return answer(one)
    raise _none(worker)


def _none(named: str) -> Problem:
    return no_such("worker", named, hint="GET /api/v1/workers lists them")


def _asked(action: Literal["drain", "pause", "resume"], words: str, more: str) -> None:
    @router.post(
        f"/{{worker}}/{action}",
        summary=words,
        description=more,
        name=f"{action}_worker",
        responses=described(Names, 404),
        response_class=Response,
    )
    async def act(room: In, caller: Operator, worker: WorkerName) -> Response:
        chosen = choose(await _alive(room), worker)
        if not chosen:
            raise _none(worker)
        return await _ask(room, caller, chosen, action)


_asked(
    "drain",
    "Let a worker finish and end",
    "What is under way is finished, the rest handed back; then it ends. The name of a whole worker means "
    "all its processes. It hears of it with its next heartbeat.",
)
_asked("pause", "Let a worker take no more work", "What is under way is finished.")
_asked("resume", "Let a paused worker go on", "It takes work again.")


async def _alive(room: Room) -> list[Mark]:
    marks, now = await room.queue.workers(), await room.queue.now()
    return [mark for mark in marks if state_of(mark, now, room.settings.stale_after) != "stale"]


async def _ask(room: Room, caller: Caller, chosen: list[Mark], action: str, *, dry: bool = False) -> Response:
    names = [mark.id for mark in chosen]
    if not dry:
        names = await Acting(room.queue, caller.name).ask_workers(chosen, ACTIONS[action])
        room.touched()
    return answer({"names": names, "dry_run": dry})


@router.post(
    "/{action}", summary="Ask many workers", responses=described(Names, 404), response_class=Response
)
async def ask_many(
    room: In, caller: Operator, action: Literal["drain", "pause", "resume"], which: models.Many
) -> Response:
    """All whose name begins so, or all there are."""
    if bool(which.like) == which.all:
        raise Problem(422, "say-which", "say which workers: like", hint='{"all": true} means all of them')
    chosen = [mark for mark in await _alive(room) if mark.id.startswith(which.like)]
    return await _ask(room, caller, chosen, action, dry=which.dry_run)
