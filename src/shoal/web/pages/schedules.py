"""Schedules: what starts by itself, when, and what became of it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control import timetable
from shoal.core.cron import parse, times_between, zone_of
from shoal.core.schedule import Schedule, micros, moment
from shoal.view.schedules import next_time
from shoal.web.pages.look import In, Reader, pages
from shoal.web.pages.render import page

router = pages()
DAY = 86_400_000_000
TIMES = 60  # of one schedule that are drawn
COMING = 24  # of all, that are listed


@router.get("/schedules")
async def schedules(request: Request, room: In, caller: Reader) -> Response:
    async def gather() -> dict[str, Any]:
        found = await timetable.schedules(room.queue)
        now = await room.queue.now()
        drawn = [(it, 0 if it.paused else next_time(it, now), ahead(it, now)) for it in found]
        coming = sorted((at, it.name, it.order.scraper) for it, _, times in drawn for at in times)
        return {
            "schedules": [(it, next, [part(at, now) for at in times]) for it, next, times in drawn],
            "coming": coming[:COMING],
            "more": len(coming) - COMING,
        }

    return await page(request, caller, "schedules.html", gather, nav="schedules")


def ahead(schedule: Schedule, now: int) -> list[int]:
    """Its times of the next 24 hours, as many as are drawn."""
    if schedule.paused:
        return []
    between = times_between(parse(schedule.cron), moment(now), moment(now + DAY), zone_of(schedule.zone))
    return [micros(when) for when in islice(between, TIMES)]


def part(at: int, now: int) -> float:
    """Where in the day to come, of 1000."""
    return round(1000 * (at - now) / DAY, 1)
