"""Schedules in the queue: any number of processes call tick, and each time fires once.

A firing is decided by a swap of the schedule's document, which only one process can win, and then carried
out step by step: mark the run as being seeded, start it by its key, add its URLs, take the mark away,
swap the decision for its result. Every step may be repeated, so whoever comes after a crash goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Pending, Schedule, ScheduledRun, complete_firing, decide_firing, is_due
from shoal.core.task import Task
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.identity import run_name
from shoal.runs.start import StartRequest, TaskBatches, start

log = logging.getLogger("shoal.schedule")

GRACE = 5.0
SEEDER_PREFIX = "schedule "
DOCUMENTS_PER_SECOND = 10  # of URLs, for which there is one second more


class StartTasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some of the URLs that every run begins with."""

    tasks: tuple[Task, ...]
    paces: dict[str, Pace] = {}


_encode = msgspec.json.encode


def decode_schedule(document: Document) -> Schedule:
    return msgspec.json.decode(document.text, type=Schedule)


async def tick(queue: Queue, now: int | None = None, *, grace: float = GRACE) -> list[str]:
    """Do what is due; answers the names of the runs that were started. Any number may call it at once.

    grace: seconds that whoever decided a firing has for it, before others come to help.
    """
    documents = await queue.documents(kinds.SCHEDULE)
    if not documents:
        return []
    clock = await queue.now()
    now = clock if now is None else now
    started: list[str] = []
    for document in documents:
        try:
            run = await _process(queue, document, now, (clock - document.made_at) / 1e6 - grace)
        except (UsageError, msgspec.DecodeError) as error:
            _warn_once(document.name, str(error))  # left to those who know its zone, or are of its version
            continue
        if run is not None:
            started.append(run.name)
    await _remove_orphaned_marks(queue)
    return started


async def _process(queue: Queue, document: Document, now: int, late: float) -> Run | None:
    """late: seconds beyond the time that whoever decided a firing has for its first URLs."""
    schedule = decode_schedule(document)
    if schedule.pending is not None:
        # Not all at once: every helper adds all URLs, so many of them take their time.
        is_left = late >= schedule.order.documents // DOCUMENTS_PER_SECOND
        return await execute_firing(queue, document.version, schedule) if is_left else None
    found = await _decide(queue, document, schedule, now)
    return None if found is None else await execute_firing(queue, *found)


@lru_cache(maxsize=1000)
def _warn_once(name: str, why: str) -> None:
    """Once is enough, though it is looked at every second."""
    log.warning("schedule_failing", extra={"schedule": name, "why": why})


async def _decide(queue: Queue, document: Document, schedule: Schedule, now: int) -> tuple[int, Schedule] | None:
    """The firing that is to be carried out here: one that nobody else has decided."""
    if not is_due(schedule, now):
        return None
    changed = decide_firing(schedule, now, busy=await unfinished_run(queue, schedule), run=run_name())
    if changed == schedule:
        return None
    won = await queue.compare_and_swap(kinds.SCHEDULE, schedule.name, encode_schedule(changed), document.version)
    if won is None:
        return None
    log.info(
        "schedule_due", extra={"schedule": schedule.name, "at": changed.since, "fires": changed.pending is not None}
    )
    return (won.version, changed) if changed.pending else None


async def unfinished_run(queue: Queue, schedule: Schedule) -> str:
    """The former run, where it still goes on."""
    if not schedule.latest:
        return ""
    found = await queue.runs(name=schedule.latest, limit=1)
    going = found and found[0].name == schedule.latest and found[0].state in ("running", "paused")
    return schedule.latest if going else ""


async def execute_firing(queue: Queue, version: int, schedule: Schedule) -> Run:
    """Make a pending firing true; whoever else does the same does no harm."""
    pending, order = schedule.pending, schedule.order
    assert pending is not None
    if pending.cancel:
        await _cancel(queue, pending.cancel)
    started = await start(
        queue,
        StartRequest(
            _new_run(schedule, pending),
            tasks=lambda _: _start_tasks(queue, order),
            resume=False,
            seeder=SEEDER_PREFIX + schedule.name,
        ),
    )
    run = started.run
    await queue.compare_and_swap(
        kinds.SCHEDULE, schedule.name, encode_schedule(complete_firing(schedule, run.name)), version
    )
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
        priority=order.priority,
        max_pages=order.max_pages,
        seen_set=order.seen_set,
        seen_for=order.seen_for,
        dead_retention=order.dead_retention,
        once=True,
    )


async def _cancel(queue: Queue, name: str) -> None:
    found = await queue.runs(name=name, limit=1)
    if found and found[0].name == name and found[0].state in ("running", "paused"):
        try:
            await queue.set_run(found[0].id, "cancel")
        except UsageError:  # it has ended in the meantime
            log.info("schedule_former_ended", extra={"run": name})


async def _start_tasks(queue: Queue, order: ScheduledRun) -> TaskBatches:
    for number in range(order.documents):
        document = await queue.document(kinds.SCHEDULE_START, f"{order.start}/{number}")
        # None: the schedule was replaced or removed meanwhile, and its firing carried out before that.
        if document is not None:
            found = msgspec.json.decode(document.text, type=StartTasks)
            yield found.tasks, found.paces


async def _remove_orphaned_marks(queue: Queue) -> None:
    """Take away marks of those who died late, when their firing had been carried out by another.

    The marks are read before the schedules: a firing that is no longer pending then was wholly carried out.
    """
    marks = [mark for mark in await queue.documents(kinds.SEEDING) if _is_from_schedule(mark)]
    if not marks:
        return
    documents = await queue.documents(kinds.SCHEDULE)
    pending = {schedule.pending.run for schedule in decode_schedules(documents) if schedule.pending}
    for mark in marks:
        if mark.name not in pending:
            await queue.compare_and_swap(kinds.SEEDING, mark.name, None, mark.version)


def decode_schedules(documents: Sequence[Document]) -> Iterator[Schedule]:
    for document in documents:
        try:
            yield decode_schedule(document)
        except msgspec.DecodeError:
            continue


def _is_from_schedule(mark: Document) -> bool:
    try:
        seeder = msgspec.json.decode(mark.text, type=dict[str, object]).get("seeder")
    except msgspec.DecodeError:
        return False
    return isinstance(seeder, str) and seeder.startswith(SEEDER_PREFIX)


def encode_schedule(schedule: Schedule) -> str:
    return _encode(schedule).decode()
