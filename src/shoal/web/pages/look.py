"""Looking: what several pages ask of the room, each answer at most a second old and shared by all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.routing import APIRoute, APIRouter
from starlette.responses import Response

from shoal.config import Settings
from shoal.control.history import Series
from shoal.control.joining import by_flag
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.logs import redact
from shoal.view.snapshot import Snapshot
from shoal.view.status import Status, gather
from shoal.view.words import least_words
from shoal.web.access import Operator as Operator
from shoal.web.access import Reader as Reader
from shoal.web.problem import Problem
from shoal.web.room import In as In
from shoal.web.room import Room

Word = Annotated[str, Query(max_length=2_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
At = Annotated[int, Query(ge=0, lt=2**63)]

PATIENCE = 6.0  # seconds
PAGE = 50  # rows of a list on one page


class PageRoute(APIRoute):
    """Says that the queue does not answer while people still wait; queues themselves are more patient."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            if request.method != "GET":
                return await handle(request)
            try:
                async with asyncio.timeout(PATIENCE):
                    return await handle(request)
            except TimeoutError:
                raise Problem(
                    503, "queue-unavailable", f"the queue did not answer for {PATIENCE:g} seconds"
                ) from None

        return handled


def pages() -> APIRouter:
    """A router for pages: they are not a part of the API's description."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


async def snapshot(room: Room) -> Snapshot:
    return await room.snapshot()


async def status(room: Room, run: Run) -> Status:
    """How a run goes; its pace is what the lookout has seen of it."""
    found = await snapshot(room)
    listed = next((it for it in found.runs if it.run.id == run.id), None)
    rate = listed.rate if listed is not None else 0.0
    return await room.once(
        ("page-status", run.id), lambda: gather(room.queue, room.settings, run, rate=rate, lanes=200)
    )


def at_queue(settings: Settings) -> str:
    """What a command needs to reach this queue, where it is not the one that is found by itself."""
    if not settings.queue or not by_flag(settings):
        return ""
    return f" --queue {redact(settings.queue)}"


def least_of(now: int) -> object:
    """For templates: the least time a host needs for what waits there."""

    def least(lane: LaneState) -> str:
        return least_words(lane, now)

    return least


async def hours_of(room: Room, hours: int) -> Series:
    """The history of so many hours, read once for all pages that show it."""
    return await room.once(("past", hours), lambda: room.history.read(hours * 3600.0), fresh=5.0)


def hours_since(at: int, now: int) -> int:
    """How much of the past a chart of something that began then should show, in hours."""
    age = (now - at) / 3.6e9
    return next((hours for hours in (1, 2, 4, 8, 16) if age <= hours), 24)


def spans(path: str, chosen: int, usual: int = 1) -> list[tuple[str, str, bool]]:
    """How much of the past charts may show: label, address, whether it is the one shown."""
    addresses = {hours: path if hours == usual else f"{path}?hours={hours}" for hours in (1, 6, 24)}
    return [(f"{hours} h", address, hours == chosen) for hours, address in addresses.items()]
