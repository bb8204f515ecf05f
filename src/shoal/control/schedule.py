"""Schedules in the queue: any number of processes call tick, and each time fires once.

A firing is decided by a swap of the schedule's document, which only one process can win, and then carried
out step by step: mark the run as being seeded, start it by its key, add its addresses, take the mark away,
swap the decision for its result. Every step may be repeated, so whoever comes after a crash goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from shoal.control.runs import SEEDING, run_name, sown
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Order, Pending, Schedule, carried_out, decided, is_due
from shoal.core.task import Task
from shoal.errors import Usage
from shoal.queue.base import Paper, Queue

log = logging.getLogger("shoal.schedule")

KIND = "schedule"
START = "schedule.start"
GRACE = 5.0
DOCUMENTS = 10  # of addresses, for which there is one second more


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some of the addresses that every run begins with."""

    tasks: tuple[Task, ...]
    paces: dict[str, Pace] = {}


_encode = msgspec.json.encode


def decode(paper: Paper) -> Schedule:
    return msgspec.json.decode(paper.text, type=Schedule)


async def tick(queue: Queue, now: int | None = None, *, grace: float = GRACE) -> list[str]:
    """Do what is due; answers the names of the runs that were started. Any number may call it at once.

    grace: seconds that whoever decided a firing has for it, before others come to help.
    """
    papers = await queue.papers(KIND)
    if not papers:
        return []
    clock = await queue.now()
    now = clock if now is None else now
    started: list[str] = []
    for paper in papers:
        try:
            run = await _see_to(queue, paper, now, (clock - paper.made_at) / 1e6 - grace)
        except (Usage, msgspec.DecodeError) as error:
            _warn(paper.name, str(error))  # left to those who know its zone, or are of its version
            continue
        if run is not None:
            started.append(run.name)
    await _tidy(queue)
    return started


async def _see_to(queue: Queue, paper: Paper, now: int, late: float) -> Run | None:
    """late: seconds beyond the time that whoever decided a firing has for its first addresses."""
    schedule = decode(paper)
    if schedule.pending is not None:
        # Not all at once: every helper adds all addresses, so many of them take their time.
        is_left = late >= schedule.order.documents // DOCUMENTS
        return await carry_out(queue, paper.version, schedule) if is_left else None
    found = await _decide(queue, paper, schedule, now)
    return None if found is None else await carry_out(queue, *found)


@lru_cache(maxsize=1000)
def _warn(name: str, why: str) -> None:
    """Once is enough, though it is looked at every second."""
    log.warning("schedule_failing", extra={"schedule": name, "why": why})


async def _decide(queue: Queue, paper: Paper, schedule: Schedule, now: int) -> tuple[int, Schedule] | None:
    """The firing that is to be carried out here: one that nobody else has decided."""
    if not is_due(schedule, now):
        return None
    changed = decided(schedule, now, busy=await busy_with(queue, schedule), run=run_name())
    if changed == schedule:
        return None
    won = await queue.swap(KIND, schedule.name, text_of(changed), paper.version)
    if won is None:
        return None
    log.info(
        "schedule_due",
        extra={"schedule": schedule.name, "at": changed.since, "fires": changed.pending is not None},
    )
    return (won.version, changed) if changed.pending else None


async def busy_with(queue: Queue, schedule: Schedule) -> str:
    """The former run, where it still goes on."""
    if not schedule.latest:
        return ""
    found = await queue.runs(name=schedule.latest, limit=1)
    going = found and found[0].name == schedule.latest and found[0].state in ("running", "paused")
    return schedule.latest if going else ""


async def carry_out(queue: Queue, version: int, schedule: Schedule) -> Run:
    """Make a pending firing true; whoever else does the same does no harm."""
    pending, order = schedule.pending, schedule.order
    assert pending is not None
    if pending.cancel:
        await _cancel(queue, pending.cancel)
    # Marked first: a run without work and without this mark is finished by the next who looks.
    await queue.swap(SEEDING, pending.run, _mark(schedule.name), 0)
    run = await queue.start_run(_new_run(schedule, pending))
    if run.state in ("running", "paused"):
        for number in range(order.documents):
            start = await _start(queue, order, number)
            if start is not None:
                await queue.add(run.id, start.tasks, start.paces)
    await sown(queue, pending.run)
    await queue.swap(KIND, schedule.name, text_of(carried_out(schedule, run.name)), version)
    log.info("schedule_fired", extra={"schedule": schedule.name, "at": pending.at, "run": run.name})
    return run


def _new_run(schedule: Schedule, pending: Pending) -> NewRun:
    order = schedule.order
    return NewRun(
        scraper=order.scraper,
        key=f"schedule/{schedule.name}/{pending.at}",
        name=pending.run,
        spec={**order.spec, "schedule": schedule.name},
        weight=order.weight,
        max_pages=order.max_pages,
        once=True,
    )


async def _cancel(queue: Queue, name: str) -> None:
    found = await queue.runs(name=name, limit=1)
    if found and found[0].name == name and found[0].state in ("running", "paused"):
        try:
            await queue.set_run(found[0].id, "cancel")
        except Usage:  # it has ended in the meantime
            log.info("schedule_former_ended", extra={"run": name})


async def _start(queue: Queue, order: Order, number: int) -> Start | None:
    """None: the schedule was replaced or removed meanwhile, and its firing carried out before that."""
    paper = await queue.paper(START, f"{order.start}/{number}")
    return msgspec.json.decode(paper.text, type=Start) if paper else None


async def _tidy(queue: Queue) -> None:
    """Take away marks of those who died late, when their firing had been carried out by another.

    The marks are read before the schedules: a firing that is no longer pending then was wholly carried out.
    """
    marks = [mark for mark in await queue.papers(SEEDING) if _marked_by(mark)]
    if not marks:
        return
    papers = await queue.papers(KIND)
    pending = {schedule.pending.run for schedule in readable(papers) if schedule.pending}
    for mark in marks:
        if mark.name not in pending:
            await queue.swap(SEEDING, mark.name, None, mark.version)


def readable(papers: Sequence[Paper]) -> Iterator[Schedule]:
    for paper in papers:
        try:
            yield decode(paper)
        except msgspec.DecodeError:
            continue


def _mark(schedule: str) -> str:
    return _encode({"schedule": schedule}).decode()


def _marked_by(mark: Paper) -> bool:
    try:
        return "schedule" in msgspec.json.decode(mark.text, type=dict[str, object])
    except msgspec.DecodeError:
        return False


def text_of(schedule: Schedule) -> str:
    return _encode(schedule).decode()
