"""History: the last week of the fleet, of a run, a host or a worker, as series for charts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.view.series import HOURS, fleet_series, host_series, run_series, worker_series
from shoal.web.api import models
from shoal.web.api.models import ExtensibleModel, response_docs
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1", tags=["history"])

MAX_AGE = 5.0  # seconds; there is a new point every ten


class SeriesDocument(ExtensibleModel):
    """Lists of equal length, one value a point of time; null where nobody looked."""


@router.get("/history", summary="Up to 7 days as time series", responses=response_docs(SeriesDocument, 404))
async def show_history(
    context: ContextDep,
    caller: ReaderDep,
    run: Annotated[str, models.line_query(200, "One run.")] = "",
    host: Annotated[str, models.line_query(300, "One host.")] = "",
    worker: Annotated[str, models.line_query(300, "One worker.")] = "",
    hours: Annotated[float, Query(ge=0.01, le=HOURS, allow_inf_nan=False)] = 24.0,
    points: Annotated[int, Query(ge=1, le=300)] = 300,
) -> Response:
    """Throughput, latency, errors by class, the queue by state, workers and memory."""
    if sum(map(bool, (run, host, worker))) > 1:
        raise Problem(422, "conflicting-fields", "give one of run, host and worker, or none for the fleet")
    named = (await context.find_run(run)).name if run else ""
    key = ("history", named, host, worker, hours, points)
    return json_response(
        await context.cached(key, lambda: _series(context, named, host, worker, hours, points), MAX_AGE)
    )


async def _series(
    context: ServerContext, run: str, host: str, worker: str, hours: float, points: int
) -> dict[str, Any]:
    series = await context.history.read(hours * 3600)
    for named, make_series in ((run, run_series), (host, host_series), (worker, worker_series)):
        if named:
            return make_series(series, named, hours, points)
    return fleet_series(series, hours, points)
