"""Workers: all of them, and one with what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control.actions import find_workers
from shoal.core.counters import decode
from shoal.core.lane import WorkerStatus
from shoal.core.run import Run
from shoal.queue.base import TaskView
from shoal.queue.glance import glance
from shoal.view.machines import machine_views
from shoal.view.workers import code_versions, count_by_state, mixed_code_warnings, worker_sort_key
from shoal.web.context import ServerContext
from shoal.web.http.problem import not_found
from shoal.web.pages.queries import ContextDep, ReaderDep, hours_since, page_router, queue_option
from shoal.web.pages.render import page, segment

router = page_router()
WORKERS_SHOWN = 300
MACHINES_SHOWN = 50
RATES_MAX_AGE, RATES_WINDOW = 5.0, 60.0  # seconds
HELD_ASKED, HELD_SHOWN = 1000, 100


@router.get("/fleet")
async def fleet(request: Request, context: ContextDep, caller: ReaderDep) -> Response:
    async def gather() -> dict[str, Any]:
        found = await context.snapshot()
        statuses = sorted(found.workers, key=worker_sort_key)
        left = len(statuses) - WORKERS_SHOWN
        return {
            "statuses": statuses[:WORKERS_SHOWN],
            "rates": await context.cached(("worker-rates",), lambda: _rates(context), RATES_MAX_AGE),
            "restarts": restarts(statuses),
            "queue_seconds": {status.id: queue_seconds(status) for status in statuses[:WORKERS_SHOWN]},
            "now": found.at,
            "stale_after": found.stale_after,
            "by_state": count_by_state(statuses, found.at, found.stale_after),
            "machines": machine_views(found.alive)[:MACHINES_SHOWN],
            "mixed": mixed_code_warnings(found.alive),
            "queue_option": queue_option(context.settings),
            "more_words": f"And {left:,} more: GET /api/v1/workers lists them all." if left > 0 else "",
        }

    return await page(request, caller, "workers.html", gather, nav="fleet")


async def _rates(context: ServerContext) -> dict[str, float]:
    """Pages per second of workers, in the newest sample that says so."""
    series = await context.history.read(RATES_WINDOW)
    last = next((one for one in reversed(series.samples) if one.span), None)
    return {id: point.done / last.span for id, point in last.by_worker.items()} if last else {}


def restarts(statuses: Sequence[WorkerStatus]) -> dict[str, int]:
    """How many processes each worker had to start anew: it numbers them as it starts them."""
    started, there = dict[str, int](), Counter[str]()
    for status in statuses:
        name, _, number = status.id.rpartition("-")
        if name == status.name and number.isdecimal():
            started[name] = max(started.get(name, 0), int(number))
            there[name] += 1
    return {name: max(0, number - there[name]) for name, number in started.items()}


def queue_seconds(status: WorkerStatus) -> float:
    """Seconds that a question to the queue took on average; 0 where nothing is known."""
    figures = decode(status.counters)
    return figures.ask_seconds / figures.asks if figures.asks else 0.0


@router.get("/fleet/{name:path}")
async def worker(request: Request, context: ContextDep, caller: ReaderDep, name: str) -> Response:
    chosen = find_workers((await context.snapshot()).workers, name)
    if not chosen:
        raise not_found("worker", name)
    id = chosen[0].id

    async def gather() -> dict[str, Any]:
        found = await context.snapshot()
        status = next((it for it in found.workers if it.id == id), chosen[0])
        hours = hours_since(status.started_at, found.at)
        return {
            "status": status,
            "now": found.at,
            "stale_after": found.stale_after,
            "code": code_versions(status),
            "f": decode(status.counters),
            "tasks": await _held(context, id) if status.leased else [],
            "history": f"/api/v1/history?hours={hours}&worker={segment(id)}",
        }

    return await page(request, caller, "worker.html", gather, nav="fleet")


async def _held(context: ServerContext, worker: str) -> list[tuple[Run, TaskView]]:
    """What it has in progress, among the first tasks in progress of each run."""
    held: list[tuple[Run, TaskView]] = []
    for it in (await context.snapshot()).runs:
        if it.stats.leased and len(held) < HELD_SHOWN:
            views = await glance(context.queue.list_tasks(it.run.id, state="leased", limit=HELD_ASKED))
            held += [(it.run, view) for view in views if view.worker == worker]
    return held[:HELD_SHOWN]
