"""Schedules: looked at, paused, resumed, run now and removed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import timetable
from shoal.control.acting import Acting
from shoal.control.schedule import KIND
from shoal.core.schedule import Schedule
from shoal.view.schedules import schedule_document
from shoal.web.access import Caller, Operator, Reader
from shoal.web.answer import answer
from shoal.web.api.models import DocumentName, Names, Page, ScheduleDocument, described
from shoal.web.api.paging import page
from shoal.web.problem import no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"])


@router.get("", summary="List schedules", responses=described(Page), response_class=Response)
async def list_schedules(room: In, caller: Reader) -> Response:
    return page(await room.once(("schedules",), lambda: schedules(room)), None)


async def schedules(room: Room) -> list[dict[str, Any]]:
    now = await room.queue.now()
    return [schedule_document(found, now) for found in await timetable.schedules(room.queue)]


@router.get(
    "/{name}", summary="One schedule", responses=described(ScheduleDocument, 404), response_class=Response
)
async def show_schedule(room: In, caller: Reader, name: DocumentName) -> Response:
    await _there(room, name)
    return answer(schedule_document(await timetable.find(room.queue, name), await room.queue.now()))


@router.post(
    "/{name}/pause",
    summary="Let its times pass by",
    responses=described(ScheduleDocument, 404),
    response_class=Response,
)
async def pause(room: In, caller: Operator, name: DocumentName) -> Response:
    await _there(room, name)
    return await _changed(room, caller, "pause", await timetable.pause(room.queue, name))


@router.post(
    "/{name}/resume",
    summary="Let a paused schedule go on",
    responses=described(ScheduleDocument, 404),
    response_class=Response,
)
async def resume(room: In, caller: Operator, name: DocumentName) -> Response:
    """The times that passed are not made up for."""
    await _there(room, name)
    return await _changed(room, caller, "resume", await timetable.resume(room.queue, name))


@router.post(
    "/{name}/run", summary="Start a run of it now", responses=described(Names, 404), response_class=Response
)
async def run_now(
    room: In,
    caller: Operator,
    name: DocumentName,
    anyway: Annotated[bool, Query(description="Also while the former run still goes on.")] = False,
) -> Response:
    await _there(room, name)
    run = await timetable.run_now(room.queue, name, anyway=anyway)
    await Acting(room.queue, caller.name).did("run schedule", name, run=run.name)
    room.touched()
    return answer({"names": [run.name], "dry_run": False})


@router.delete(
    "/{name}",
    summary="Forget a schedule",
    responses=described(ScheduleDocument, 404),
    response_class=Response,
)
async def remove(room: In, caller: Operator, name: DocumentName) -> Response:
    """The runs it has started go on."""
    await _there(room, name)
    return await _changed(room, caller, "remove", await timetable.remove(room.queue, name))


async def _there(room: Room, name: str) -> None:
    if await room.queue.paper(KIND, name) is None:
        raise no_such("schedule", name, hint="GET /api/v1/schedules lists them")


async def _changed(room: Room, caller: Caller, what: str, found: Schedule) -> Response:
    await Acting(room.queue, caller.name).did(f"{what} schedule", found.name)
    room.touched()
    return answer(schedule_document(found, await room.queue.now()))
