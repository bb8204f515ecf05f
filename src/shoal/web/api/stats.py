"""Stats: the fleet in two small documents, for scripts that want no more than that."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from shoal.view.documents import stats_document, worker_document
from shoal.view.words import stamp
from shoal.view.workers import by_state
from shoal.web.access import Reader
from shoal.web.answer import answer
from shoal.web.api.models import described
from shoal.web.room import In

router = APIRouter(tags=["fleet"])


class Throughput(BaseModel):
    pages_per_second: float
    failing_per_second: float


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


@router.get("/stats", summary="Workers, tasks and throughput", responses=described(StatsDocument))
async def stats(room: In, caller: Reader) -> Response:
    """Of everything that is not finished."""
    found = await room.snapshot()
    states = by_state(found.workers, found.at, found.stale_after)
    return answer(
        {
            "at": stamp(found.at),
            "workers": {"total": len(found.workers), **states},
            "tasks": stats_document(found.totals),
            "throughput": {
                "pages_per_second": round(found.rate, 2),
                "failing_per_second": round(found.failing, 2),
            },
            "runs": {"unfinished": found.unfinished},
            "hosts_parked": len(found.parked),
        }
    )


@router.get("/workers", summary="Who works on the queue", responses=described(WorkersDocument))
async def workers(room: In, caller: Reader) -> Response:
    """All of them; GET /api/v1/workers has pages of them."""
    found = await room.snapshot()
    marks = sorted(found.workers, key=lambda mark: mark.id)
    return answer(
        {
            "at": stamp(found.at),
            "count": len(marks),
            "by_state": by_state(found.workers, found.at, found.stale_after),
            "workers": [worker_document(mark, found.at, found.stale_after) for mark in marks],
        }
    )
