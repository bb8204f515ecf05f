"""Queries that several pages share, each result at most a second old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.routing import APIRoute, APIRouter
from starlette.responses import Response

from shoal.config.load import Settings
from shoal.control.history import Series
from shoal.control.join_command import queue_given_by_flag
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.logs import redact
from shoal.view.formatting import format_least_time
from shoal.view.status import Status, gather_status
from shoal.web.auth.access import OperatorDep as OperatorDep
from shoal.web.auth.access import ReaderDep as ReaderDep
from shoal.web.context import ContextDep as ContextDep
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem

TextParam = Annotated[str, Query(max_length=2_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
IdParam = Annotated[int, Query(ge=0, lt=2**63)]

TIMEOUT = 6.0  # seconds
PAGE_SIZE = 50  # rows of a list on one page


class PageRoute(APIRoute):
    """Says that the queue does not answer while people still wait; queues themselves are more patient."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            if request.method != "GET":
                return await handle(request)
            try:
                async with asyncio.timeout(TIMEOUT):
                    return await handle(request)
            except TimeoutError:
                raise Problem(503, "queue-unavailable", f"the queue did not answer for {TIMEOUT:g} seconds") from None

        return handled


def page_router() -> APIRouter:
    """A router for pages: they are not a part of the API's description."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


async def run_status(context: ServerContext, run: Run) -> Status:
    """How a run goes; its pace is what the lookout has seen of it."""
    found = await context.snapshot()
    listed = next((it for it in found.runs if it.run.id == run.id), None)
    rate = listed.rate if listed is not None else 0.0
    return await context.cached(
        ("page-status", run.id), lambda: gather_status(context.queue, context.settings, run, rate=rate, lanes=200)
    )


def queue_option(settings: Settings) -> str:
    """What a command needs to reach this queue, where it is not the one that is found by itself."""
    if not settings.queue or not queue_given_by_flag(settings):
        return ""
    return f" --queue {redact(settings.queue)}"


def least_time_of(now: int) -> object:
    """For templates: the least time a host needs for what waits there."""

    def least(lane: LaneState) -> str:
        return format_least_time(lane, now)

    return least


async def history_of(context: ServerContext, hours: float) -> Series:
    """The history of so many hours, read once for all pages that show it."""
    return await context.cached(("past", hours), lambda: context.history.read(hours * 3600.0), max_age=5.0)


def hours_since(at: int, now: int) -> int:
    """How much of the past a chart of something that began then should show, in hours."""
    age = (now - at) / 3.6e9
    return next((hours for hours in (1, 2, 4, 8, 16, 24, 48, 96) if age <= hours), 168)


SPANS = {0.25: "15 min", 1.0: "1 h", 6.0: "6 h", 24.0: "24 h", 168.0: "7 d"}  # hours


def time_spans(path: str, chosen: float, usual: float = 1) -> list[tuple[str, str, bool]]:
    """How much of the past charts may show: label, URL, whether it is the one shown."""
    links = {hours: path if hours == usual else f"{path}?hours={hours:g}" for hours in SPANS}
    return [(SPANS[hours], link, hours == chosen) for hours, link in links.items()]
