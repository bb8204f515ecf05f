"""Stats: the fleet in two small documents, for scripts that want no more than that."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from shoal.control.history import Series
from shoal.view.capacity import RECENT_SECONDS, error_rate, mean_attempt_seconds
from shoal.view.documents import stats_document, worker_document
from shoal.view.formatting import iso_time
from shoal.view.workers import count_by_state
from shoal.web.api.models import response_docs
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response

router = APIRouter(tags=["fleet"])


class Throughput(BaseModel):
    pages_per_second: float
    failing_per_second: float
    mean_seconds: float | None = Field(description="Of an attempt, in the last ten minutes; null: there was none.")
    error_rate: float | None = Field(
        description="Attempts of the last ten minutes that failed, from 0 to 1; null: there was none."
    )


class StatsDocument(BaseModel):
    at: str
    workers: dict[str, int]
    tasks: dict[str, Any]
    throughput: Throughput
    runs: dict[str, int]
    hosts_parked: int


class WorkersDocument(BaseModel):
    at: str
    count: int
    by_state: dict[str, int]
    workers: list[dict[str, Any]]


@router.get("/stats", summary="Workers, tasks and throughput", responses=response_docs(StatsDocument))
async def stats(context: ContextDep, caller: ReaderDep) -> Response:
    """Of all runs that are kept: sums do not fall when a run ends."""
    found, series = await context.snapshot(), await context.cached(("recent",), lambda: _recent(context))
    states = count_by_state(found.workers, found.at, found.stale_after)
    return json_response(
        {
            "at": iso_time(found.at),
            "workers": {"total": len(found.workers), **states},
            "tasks": stats_document(found.totals),
            "throughput": {
                "pages_per_second": round(found.rate, 2),
                "failing_per_second": round(found.failing, 2),
                "mean_seconds": round(mean_attempt_seconds(series), 3) or None,
                "error_rate": error_rate(series),
            },
            "runs": {"unfinished": found.unfinished},
            "hosts_parked": len(found.parked),
        }
    )


async def _recent(context: ServerContext) -> Series:
    return await context.history.read(RECENT_SECONDS)


@router.get("/workers", summary="List all workers", responses=response_docs(WorkersDocument))
async def workers(context: ContextDep, caller: ReaderDep) -> Response:
    """All of them; GET /api/v1/workers is paged."""
    found = await context.snapshot()
    statuses = sorted(found.workers, key=lambda status: status.id)
    return json_response(
        {
            "at": iso_time(found.at),
            "count": len(statuses),
            "by_state": count_by_state(found.workers, found.at, found.stale_after),
            "workers": [worker_document(status, found.at, found.stale_after) for status in statuses],
        }
    )
