"""Workers: all of them, and one with what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control.acting import choose
from shoal.core.figures import decode
from shoal.core.lane import Mark
from shoal.core.run import Run
from shoal.queue.base import TaskView
from shoal.view.workers import by_state, mixed_code, place, versions_of
from shoal.web.pages.look import In, Reader, at_queue, hours_since, pages, snapshot
from shoal.web.pages.render import page, segment
from shoal.web.problem import no_such
from shoal.web.room import Room

router = pages()
MARKS_SHOWN = 300
RATES_FRESH, RATES_LATELY = 5.0, 60.0  # seconds
HELD_ASKED, HELD_SHOWN = 1000, 100


@router.get("/fleet")
async def fleet(request: Request, room: In, caller: Reader) -> Response:
    async def gather() -> dict[str, Any]:
        found = await snapshot(room)
        marks = sorted(found.workers, key=place)
        left = len(marks) - MARKS_SHOWN
        return {
            "marks": marks[:MARKS_SHOWN],
            "rates": await room.once(("worker-rates",), lambda: _rates(room), RATES_FRESH),
            "replaced": replaced(marks),
            "asking": {mark.id: asking(mark) for mark in marks[:MARKS_SHOWN]},
            "now": found.at,
            "stale_after": found.stale_after,
            "by_state": by_state(marks, found.at, found.stale_after),
            "mixed": mixed_code(found.alive),
            "at_queue": at_queue(room.settings),
            "more_words": f"And {left:,} more: GET /api/v1/workers lists them all." if left > 0 else "",
        }

    return await page(request, caller, "fleet.html", gather, nav="fleet")


async def _rates(room: Room) -> dict[str, float]:
    """Pages per second of workers, in the newest sample that says so."""
    series = await room.history.read(RATES_LATELY)
    last = next((one for one in reversed(series.samples) if one.span), None)
    return {id: point.done / last.span for id, point in last.by_worker.items()} if last else {}


def replaced(marks: Sequence[Mark]) -> dict[str, int]:
    """How many processes each worker had to start anew: it numbers them as it starts them."""
    started, there = dict[str, int](), Counter[str]()
    for mark in marks:
        name, _, number = mark.id.rpartition("-")
        if name == mark.name and number.isdecimal():
            started[name] = max(started.get(name, 0), int(number))
            there[name] += 1
    return {name: max(0, number - there[name]) for name, number in started.items()}


def asking(mark: Mark) -> float:
    """Seconds that a question to the queue took on average; 0 where nothing is known."""
    figures = decode(mark.figures)
    return figures.ask_seconds / figures.asks if figures.asks else 0.0


@router.get("/fleet/{name:path}")
async def worker(request: Request, room: In, caller: Reader, name: str) -> Response:
    chosen = choose((await snapshot(room)).workers, name)
    if not chosen:
        raise no_such("worker", name)
    id = chosen[0].id

    async def gather() -> dict[str, Any]:
        found = await snapshot(room)
        mark = next((it for it in found.workers if it.id == id), chosen[0])
        return {
            "mark": mark,
            "now": found.at,
            "stale_after": found.stale_after,
            "code": versions_of(mark),
            "f": decode(mark.figures),
            "tasks": await _held(room, id) if mark.leased else [],
            "history": f"/api/v1/history?hours={hours_since(mark.started_at, found.at)}&worker={segment(id)}",
        }

    return await page(request, caller, "worker.html", gather, nav="fleet")


async def _held(room: Room, worker: str) -> list[tuple[Run, TaskView]]:
    """What it has under way, among the first tasks under way of each run."""
    held: list[tuple[Run, TaskView]] = []
    for it in (await snapshot(room)).runs:
        if it.stats.leased and len(held) < HELD_SHOWN:
            views = await room.queue.look(it.run.id, state="leased", limit=HELD_ASKED)
            held += [(it.run, view) for view in views if view.worker == worker]
    return held[:HELD_SHOWN]
