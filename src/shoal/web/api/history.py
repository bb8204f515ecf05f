"""History: the last day of the fleet, of a run, a host or a worker, as series for charts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.view.series import fleet_series, host_series, run_series, worker_series
from shoal.web.access import Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Given, described
from shoal.web.problem import Problem
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["history"])

FRESH = 5.0  # seconds; there is a new point every ten


class SeriesDocument(Given):
    """Lists of equal length, one value a point of time; null where nobody looked."""


@router.get(
    "/history",
    summary="The last day as series",
    responses=described(SeriesDocument, 404),
    response_class=Response,
)
async def show_history(
    room: In,
    caller: Reader,
    run: Annotated[str, Query(max_length=200, pattern=models.LINE, description="Of a run.")] = "",
    host: Annotated[str, Query(max_length=300, pattern=models.LINE, description="Of a host.")] = "",
    worker: Annotated[str, Query(max_length=300, pattern=models.LINE, description="Of a worker.")] = "",
    hours: Annotated[float, Query(ge=0.01, le=24, allow_inf_nan=False)] = 24.0,
    points: Annotated[int, Query(ge=1, le=300)] = 300,
) -> Response:
    """Throughput, latency, errors by class, the queue by state, workers and memory."""
    if sum(map(bool, (run, host, worker))) > 1:
        raise Problem(422, "said-twice", "give one of run, host and worker, or none for the fleet")
    named = (await room.run(run)).name if run else ""
    key = ("history", named, host, worker, hours, points)
    return answer(await room.once(key, lambda: _series(room, named, host, worker, hours, points), FRESH))


async def _series(room: Room, run: str, host: str, worker: str, hours: float, points: int) -> dict[str, Any]:
    series = await room.history.read(hours * 3600)
    for named, drawn in ((run, run_series), (host, host_series), (worker, worker_series)):
        if named:
            return drawn(series, named, hours, points)
    return fleet_series(series, hours, points)
