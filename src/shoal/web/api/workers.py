"""Workers: who works on the queue, and asking them to drain, pause or go on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.actions import WorkerAction, find_workers
from shoal.core.lane import WorkerStatus
from shoal.view.documents import worker_document
from shoal.view.run_state import live_workers
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, NameList, WorkerDocument, WorkerName, response_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])
ACTIONS: dict[str, WorkerAction] = {"drain": "drain", "pause": "pause", "resume": ""}


@router.get("", summary="List workers", responses=response_docs(ListPage))
async def list_workers(
    context: ContextDep,
    caller: ReaderDep,
    state: Annotated[str, models.line_query(50, "working, idle, stale …")] = "",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """By id, stale ones included."""
    after = read_cursor("workers", cursor_, str) or ""
    found = [one for one in await workers(context) if one["id"] > after and state in ("", one["state"])]
    shown = found[:limit]
    return page_response(shown, make_cursor("workers", shown[-1]["id"]) if len(found) > limit else None)


async def workers(context: ServerContext) -> list[dict[str, Any]]:
    """All of them as documents, by id."""

    async def load() -> list[dict[str, Any]]:
        statuses, now = await context.queue.workers(), await context.queue.now()
        stale = context.settings.stale_after
        return [worker_document(status, now, stale) for status in sorted(statuses, key=lambda it: it.id)]

    return await context.cached(("workers",), load)


@router.get("/{worker}", summary="One worker", responses=response_docs(WorkerDocument, 404))
async def show_worker(context: ContextDep, caller: ReaderDep, worker: WorkerName) -> Response:
    for one in await workers(context):
        if one["id"] == worker:
            return json_response(one)
    raise _no_such_worker(worker)


def _no_such_worker(named: str) -> Problem:
    return not_found("worker", named, hint="GET /api/v1/workers lists them")


def _add_worker_action(action: Literal["drain", "pause", "resume"], words: str, more: str) -> None:
    @router.post(
        f"/{{worker}}/{action}",
        summary=words,
        description=more,
        name=f"{action}_worker",
        responses=response_docs(NameList, 404),
    )
    async def act(context: ContextDep, caller: OperatorDep, worker: WorkerName) -> Response:
        chosen = find_workers(await live_workers(context.queue, context.settings), worker)
        if not chosen:
            raise _no_such_worker(worker)
        return await _send_command(context, caller, chosen, action)


_add_worker_action(
    "drain",
    "Drain a worker",
    "It finishes tasks in progress, returns the rest and exits. The name of a worker means "
    "all its processes. It gets the command with its next heartbeat.",
)
_add_worker_action("pause", "Pause a worker", "It finishes tasks in progress and takes no more.")
_add_worker_action("resume", "Resume a paused worker", "It takes work again.")


async def _send_command(
    context: ServerContext, caller: Caller, chosen: list[WorkerStatus], action: str, *, dry_run: bool = False
) -> Response:
    names = [status.id for status in chosen]
    if not dry_run:
        names = await context.actor(caller).control_workers(chosen, ACTIONS[action])
        context.invalidate()
    return json_response({"names": names, "dry_run": dry_run})


@router.post("/{action}", summary="Command many workers", responses=response_docs(NameList, 404))
async def command_many(
    context: ContextDep, caller: OperatorDep, action: Literal["drain", "pause", "resume"], which: models.WorkerSelection
) -> Response:
    """All with this prefix, or all."""
    if bool(which.like) == which.all:
        raise Problem(422, "filter-required", "no filter: give like", hint='{"all": true} means all of them')
    alive = await live_workers(context.queue, context.settings)
    chosen = [status for status in alive if status.id.startswith(which.like)]
    return await _send_command(context, caller, chosen, action, dry_run=which.dry_run)
