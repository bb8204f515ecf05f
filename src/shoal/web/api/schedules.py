"""Schedules: list, show, pause, resume, run and remove them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import schedules as stored
from shoal.core.schedule import Schedule
from shoal.queue import document_kinds as kinds
from shoal.view.schedules import schedule_document
from shoal.web.api.models import DocumentName, ListPage, NameList, ScheduleDocument, response_docs
from shoal.web.api.paging import page_response
from shoal.web.auth.access import Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import not_found

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"])


@router.get("", summary="List schedules", responses=response_docs(ListPage))
async def list_schedules(context: ContextDep, caller: ReaderDep) -> Response:
    return page_response(await context.cached(("schedules",), lambda: schedules(context)), None)


async def schedules(context: ServerContext) -> list[dict[str, Any]]:
    now = await context.queue.now()
    return [schedule_document(found, now) for found in await stored.all_schedules(context.queue)]


@router.get("/{name}", summary="One schedule", responses=response_docs(ScheduleDocument, 404))
async def show_schedule(context: ContextDep, caller: ReaderDep, name: DocumentName) -> Response:
    await _require_schedule(context, name)
    return json_response(schedule_document(await stored.find(context.queue, name), await context.queue.now()))


@router.post("/{name}/pause", summary="Pause a schedule", responses=response_docs(ScheduleDocument, 404))
async def pause(context: ContextDep, caller: OperatorDep, name: DocumentName) -> Response:
    await _require_schedule(context, name)
    return await _record_change(context, caller, "pause", await stored.pause(context.queue, name))


@router.post("/{name}/resume", summary="Resume a paused schedule", responses=response_docs(ScheduleDocument, 404))
async def resume(context: ContextDep, caller: OperatorDep, name: DocumentName) -> Response:
    """Missed times are not made up for."""
    await _require_schedule(context, name)
    return await _record_change(context, caller, "resume", await stored.resume(context.queue, name))


@router.post("/{name}/run", summary="Start a run of a schedule now", responses=response_docs(NameList, 404))
async def run_now(
    context: ContextDep,
    caller: OperatorDep,
    name: DocumentName,
    anyway: Annotated[bool, Query(description="Even if the previous run is still running.")] = False,
) -> Response:
    await _require_schedule(context, name)
    run = await stored.run_now(context.queue, name, anyway=anyway)
    await context.actor(caller).log_action("run schedule", name, run=run.name)
    context.invalidate()
    return json_response({"names": [run.name], "dry_run": False})


@router.delete("/{name}", summary="Remove a schedule", responses=response_docs(ScheduleDocument, 404))
async def remove(context: ContextDep, caller: OperatorDep, name: DocumentName) -> Response:
    """The runs it has started continue."""
    await _require_schedule(context, name)
    return await _record_change(context, caller, "remove", await stored.remove(context.queue, name))


async def _require_schedule(context: ServerContext, name: str) -> None:
    if await context.queue.document(kinds.SCHEDULE, name) is None:
        raise not_found("schedule", name, hint="GET /api/v1/schedules lists them")


async def _record_change(context: ServerContext, caller: Caller, what: str, found: Schedule) -> Response:
    await context.actor(caller).log_action(f"{what} schedule", found.name)
    context.invalidate()
    return json_response(schedule_document(found, await context.queue.now()))
