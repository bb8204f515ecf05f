"""Schedules: add, list, show, change, pause, resume, run and remove them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import schedules as stored
from shoal.core.schedule import Schedule
from shoal.queue import document_kinds as kinds
from shoal.view.schedules import schedule_document
from shoal.web.api.models import (
    DocumentName,
    ListPage,
    NameList,
    NewSchedule,
    ScheduleChange,
    ScheduleDocument,
    response_docs,
)
from shoal.web.api.paging import page_response
from shoal.web.auth.access import Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found
from shoal.web.submit import schedule_requests
from shoal.web.submit.schedule_requests import ScheduleTimes

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


@router.post("", summary="Add a schedule", status_code=201, responses=response_docs(ScheduleDocument, 409, status=201))
async def add_schedule(context: ContextDep, caller: OperatorDep, wanted: NewSchedule) -> Response:
    """Its URLs are read now and kept: whoever fires it need not have them."""
    if await context.queue.document(kinds.SCHEDULE, wanted.name) is not None:
        raise Problem(409, "schedule-exists", f"schedule {wanted.name} already exists", hint="PATCH changes its times")
    times = ScheduleTimes(wanted.cron, wanted.zone, wanted.overlap)
    found = await schedule_requests.add_schedule(context, wanted.name, times, wanted.run)
    return await _record_change(context, caller, "add", found, status=201)


@router.patch("/{name}", summary="Change when a schedule fires", responses=response_docs(ScheduleDocument, 404))
async def change_schedule(
    context: ContextDep, caller: OperatorDep, name: DocumentName, wanted: ScheduleChange
) -> Response:
    """Times that are past are not made up for."""
    await _require_schedule(context, name)
    given = {field: value for field, value in wanted.model_dump().items() if value is not None}
    if not given:
        raise Problem(422, "missing-fields", "nothing to change", hint="cron, zone or overlap")
    times = msgspec.structs.replace(schedule_requests.times_of(await stored.find(context.queue, name)), **given)
    found = await schedule_requests.change_times(context, name, times)
    return await _record_change(context, caller, "change", found)


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


async def _record_change(
    context: ServerContext, caller: Caller, what: str, found: Schedule, status: int = 200
) -> Response:
    await context.actor(caller).log_action(f"{what} schedule", found.name)
    context.invalidate()
    return json_response(schedule_document(found, await context.queue.now()), status)
