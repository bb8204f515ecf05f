"""What `shoal schedule` does: turns a command into a schedule that any worker can fire without its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast, get_args

import msgspec

from shoal import app
from shoal.config import Settings, beneath
from shoal.control import timetable
from shoal.control.seeding import task_of
from shoal.core.cron import parse, zone_of
from shoal.core.lane import Pace
from shoal.core.schedule import Order, Overlap, Schedule
from shoal.core.task import Task
from shoal.errors import Usage
from shoal.manner import manners_of
from shoal.queue.base import Queue
from shoal.work import Work, spec_of, work_of

OVERLAPS: tuple[str, ...] = get_args(Overlap)
_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}").fullmatch


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for."""

    target: str
    cron: str
    inputs: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}
    column: str = ""
    name: str = ""
    zone: str = "UTC"
    overlap: str = "skip"
    weight: int = 1
    priority: int = 0
    replace: bool = False
    command: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The same, with everything read that it is made of."""

    wish: Wish
    settings: Settings
    work: Work
    tasks: list[Task]
    paces: dict[str, Pace]
    rejected: tuple[tuple[int, str, str], ...] = ()  # lines that lead to no request: (line, text, why)


def planned(settings: Settings, wish: Wish) -> Plan:
    """Read what is to be scheduled; refuses everything that could only fail later."""
    parse(wish.cron)
    zone_of(wish.zone)
    work = work_of(settings, wish.target, wish.inputs, wish.fields, wish.column)
    if work.scraper.mode == "single":
        raise Usage(
            f"scraper {work.scraper.name} is a single one: it runs in one place, not on a fleet",
            hint='mode="distributed" in its code, or let the system\'s cron give: shoal run',
        )
    name = wish.name or work.scraper.name
    if not _name(name):
        raise Usage(f"{name!r} is no name for a schedule", hint="--name with letters, digits, _ . and -")
    settings = beneath(settings, work.scraper.settings, work.label)
    manners_of(settings, work.scraper)
    wish = msgspec.structs.replace(wish, name=name)
    if work.input is not None:
        return _listed(wish, settings, work)
    tasks, paces = app.start_of(work.scraper, settings)
    if wish.priority:
        tasks = [msgspec.structs.replace(task, priority=wish.priority) for task in tasks]
    return Plan(wish, settings, work, tasks, paces)


def _listed(wish: Wish, settings: Settings, work: Work) -> Plan:
    """A list is read now, and kept: whoever fires the schedule need not have it."""
    assert work.input is not None
    source = work.input.source
    tasks: dict[bytes, Task] = {}
    rejected = []
    try:
        for entry in source:
            task = task_of(entry, app.rewrite_rule(settings), wish.priority)
            if isinstance(task, str):
                rejected.append((entry.line, entry.text, task))
            else:
                tasks.setdefault(task.digest, task)
            if len(tasks) > timetable.MOST:
                raise Usage(
                    f"{source.name} has more than {timetable.MOST:,} addresses, too many for a schedule",
                    hint="start from a page that links to them, or split the list",
                )
    finally:
        source.close()
        if work.input.spooled is not None:
            work.input.spooled.unlink(missing_ok=True)
    if not tasks:
        line, text, why = rejected[0]
        raise Usage(f"{source.name}, line {line}: {text!r}: {why}", hint="a list has one address a line")
    rule = app.pace_rule(settings)
    paces = {lane: rule(lane) for lane in {task.lane for task in tasks.values()}}
    return Plan(wish, settings, work, list(tasks.values()), paces, tuple(rejected))


async def scheduled(queue: Queue, plan: Plan) -> Schedule:
    """Keep the plan in the queue, from where it is fired."""
    wish, work = plan.wish, plan.work
    spec = await spec_of(queue, work, plan.settings, mode="distributed", command=wish.command)
    schedule = Schedule(
        name=wish.name,
        cron=wish.cron,
        order=Order(work.scraper.name, spec, wish.weight, plan.settings.max_pages),
        made_at=0,
        since=0,
        zone=wish.zone,
        overlap=cast(Overlap, wish.overlap),
    )
    return await timetable.add(queue, schedule, plan.tasks, plan.paces, replace=wish.replace)
