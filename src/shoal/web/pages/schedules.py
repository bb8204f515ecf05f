"""Schedules: what starts by itself, when, and what became of it."""

from __future__ import annotations

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


@router.get("/schedules")
async def schedules(request: Request, room: In, caller: Reader) -> Response:
    async def gather() -> dict[str, Any]:
        found = await timetable.schedules(room.queue)
        now = await room.queue.now()
        return {
            "schedules": [(it, 0 if it.paused else next_time(it, now), ahead(it, now)) for it in found],
            "now": now,
        }

    return await page(request, caller, "schedules.html", gather, nav="schedules")


def ahead(schedule: Schedule, now: int) -> list[float]:
    """Its times of the next 24 hours, each as a part of 1000."""
    if schedule.paused:
        return []
    made: list[float] = []
    between = times_between(parse(schedule.cron), moment(now), moment(now + DAY), zone_of(schedule.zone))
    for when in between:
        made.append(round(1000 * (micros(when) - now) / DAY, 1))
        if len(made) >= TIMES:
            break
    return made
