"""Schedules: what starts by itself, when, and what became of it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control import schedules as stored
from shoal.core.cron import parse, times_between, zone_of
from shoal.core.schedule import Schedule, to_datetime, to_micros
from shoal.view.schedules import next_time
from shoal.web.pages.queries import ContextDep, ReaderDep, page_router
from shoal.web.pages.render import page

router = page_router()
DAY = 86_400_000_000
MAX_TIMES = 60  # of one schedule that are drawn
MAX_COMING = 24  # of all, that are listed


@router.get("/schedules")
async def schedules(request: Request, context: ContextDep, caller: ReaderDep) -> Response:
    async def gather() -> dict[str, Any]:
        found = await stored.all_schedules(context.queue)
        now = await context.queue.now()
        drawn = [(it, 0 if it.paused else next_time(it, now), upcoming_times(it, now)) for it in found]
        coming = sorted((at, it.name, it.order.scraper) for it, _, times in drawn for at in times)
        return {
            "schedules": [(it, next, [day_position(at, now) for at in times]) for it, next, times in drawn],
            "coming": coming[:MAX_COMING],
            "more": len(coming) - MAX_COMING,
        }

    return await page(request, caller, "schedules.html", gather, nav="schedules")


def upcoming_times(schedule: Schedule, now: int) -> list[int]:
    """Its times of the next 24 hours, as many as are drawn."""
    if schedule.paused:
        return []
    between = times_between(parse(schedule.cron), to_datetime(now), to_datetime(now + DAY), zone_of(schedule.zone))
    return [to_micros(when) for when in islice(between, MAX_TIMES)]


def day_position(at: int, now: int) -> float:
    """Where in the day to come, of 1000."""
    return round(1000 * (at - now) / DAY, 1)
