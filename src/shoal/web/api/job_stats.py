"""Job stats: all jobs in a few figures, with the workers that do them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, get_args

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.typed_task import TYPE_PREFIX
from shoal.queue.base import Queue
from shoal.view.capacity import ACTIVE_STATES
from shoal.view.formatting import iso_time
from shoal.view.workers import count_by_state
from shoal.web.api.jobs import JobStatus, status_of
from shoal.web.api.models import response_docs
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response

router = APIRouter(prefix="/api/scraping", tags=["jobs"])
MAX_JOBS, BATCH_SIZE = 2_000, 200
RECENT_SECONDS = 3600.0  # by which jobs per second are told
MAX_AGE = 5.0  # seconds that an answer is shared for


class JobStatsDocument(BaseModel):
    at: str
    total_jobs: int = Field(
        description="All that are kept, the newest 2,000 at most; daily runs of typed tasks are none."
    )
    pending_jobs: int
    assigned_jobs: int
    running_jobs: int
    retrying_jobs: int
    completed_jobs: int
    failed_jobs: int
    more: bool = Field(description="There are older ones that are not counted.")
    total_workers: int
    active_workers: int = Field(description="Alive, and at work or waiting for it.")
    jobs_per_second: float = Field(description="That ended in the last hour.")
    mean_job_seconds: float | None = Field(
        description="From start to end, waiting included, of completed jobs; null: none has ended."
    )
    error_rate: float | None = Field(description="Failed of those that ended, from 0 to 1; null: none has ended.")


@router.get("/stats", summary="All jobs in a few figures", responses=response_docs(JobStatsDocument))
async def job_stats(context: ContextDep, caller: ReaderDep) -> Response:
    return json_response(await context.cached(("job-stats",), lambda: _document(context), MAX_AGE))


async def _document(context: ServerContext) -> dict[str, Any]:
    jobs, more = await _read_jobs(context.queue)
    found = await context.snapshot()
    workers = count_by_state(found.workers, found.at, found.stale_after)
    return {
        "at": iso_time(found.at),
        **job_figures(jobs, found.at),
        "more": more,
        "total_workers": len(found.workers),
        "active_workers": sum(workers[state] for state in ACTIVE_STATES),
    }


def job_figures(jobs: Sequence[tuple[Run, Stats]], now: int) -> dict[str, Any]:
    """How many are in which state, how long they took, and how many of them failed."""
    by_status: dict[str, list[Run]] = {status: [] for status in get_args(JobStatus)}
    for run, stats in jobs:
        over = run.state == "finished" or (run.state == "running" and bool(stats.seen) and not stats.open)
        by_status[status_of(run, stats, is_over=over)].append(run)
    completed, failed = by_status["completed"], by_status["failed"]
    took = [(run.finished_at - run.created_at) / 1e6 for run in completed if run.finished_at]
    recent = sum(now - run.finished_at <= RECENT_SECONDS * 1e6 for run in (*completed, *failed) if run.finished_at)
    return {
        "total_jobs": len(jobs),
        **{f"{status}_jobs": len(runs) for status, runs in by_status.items()},
        "jobs_per_second": round(recent / RECENT_SECONDS, 4),
        "mean_job_seconds": round(sum(took) / len(took), 3) if took else None,
        "error_rate": round(len(failed) / (len(completed) + len(failed)), 4) if completed or failed else None,
    }


async def _read_jobs(queue: Queue) -> tuple[list[tuple[Run, Stats]], bool]:
    """The newest; and whether there are more."""
    jobs: list[tuple[Run, Stats]] = []
    before = looked = 0
    while looked < MAX_JOBS:
        runs = await queue.runs(before=before, limit=BATCH_SIZE)
        counts = await queue.stats_of([run.id for run in runs])
        jobs += [pair for pair in zip(runs, counts, strict=True) if not pair[0].scraper.startswith(TYPE_PREFIX)]
        if len(runs) < BATCH_SIZE:
            return jobs, False
        before, looked = runs[-1].id, looked + len(runs)
        await asyncio.sleep(0)  # others get their turn
    return jobs, True
