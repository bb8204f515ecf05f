"""Schedule: a run that is started again and again, and what is to be done about it at a given moment.

Pure: whoever calls brings the time and says whether the former run still goes on. A firing is decided
first (`pending`) and carried out afterwards, so that it is one decision, whoever carries it out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal

import msgspec

from shoal.core.cron import EPOCH, latest_until, next_after, parse, times_between, zone_of

Overlap = Literal["skip", "queue", "cancel-former", "allow"]

# µs; a time that nobody was there for is made up for within a day, then it is missed
CATCH_UP_WINDOW = 86_400_000_000
MAX_MISSED = 1000  # counted at once
HISTORY_SIZE = 10  # firings


class ScheduledRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that every firing starts; its URLs are stored separately, in so many documents."""

    scraper: str
    spec: dict[str, Any] = {}
    weight: int = 1
    priority: int = 0
    max_pages: int = 0
    start: str = ""  # the documents' names begin with this
    documents: int = 0
    urls: int = 0
    seen_set: str = ""
    seen_for: float = 0.0
    dead_retention: float = 0.0


class Firing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time that came: the run it started, or why it started none."""

    at: int
    run: str = ""
    why: str = ""
    is_manual: bool = False


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """A firing that is decided and not yet carried out."""

    at: int
    run: str
    cancel: str = ""  # a former run that makes room for it
    is_manual: bool = False


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    cron: str
    order: ScheduledRun
    made_at: int
    since: int  # times up to this one are dealt with
    zone: str = "UTC"
    overlap: Overlap = "skip"
    paused: bool = False
    next: int = 0
    pending: Pending | None = None
    waiting: int = 0  # a time that waits for the former run to end
    latest: str = ""  # the run that was started last
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    history: tuple[Firing, ...] = ()  # newest first


def to_datetime(at: int) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def to_micros(when: datetime) -> int:
    return (when.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def next_firing(schedule: Schedule, now: int) -> int:
    """The next time after `now`."""
    return to_micros(next_after(schedule.cron, to_datetime(now), zone_of(schedule.zone)))


def advance(schedule: Schedule, since: int) -> Schedule:
    """The same with all times up to `since` dealt with."""
    return msgspec.structs.replace(schedule, since=since, next=next_firing(schedule, since))


def is_due(schedule: Schedule, now: int) -> bool:
    """Whether there is anything to decide now."""
    if schedule.paused or schedule.pending:
        return False
    return schedule.next <= now or schedule.waiting > 0 or schedule.since > now + CATCH_UP_WINDOW


def decide_firing(schedule: Schedule, now: int, *, busy: str, run: str) -> Schedule:
    """What becomes of it now. busy: its former run if that still goes on; run: the name of a new one."""
    if schedule.since > now + CATCH_UP_WINDOW:  # the clock was wrong by days, and has been put right
        return advance(schedule, now)
    if schedule.waiting and not busy:
        return _fire(msgspec.structs.replace(schedule, waiting=0), schedule.waiting, run)
    cron, zone = parse(schedule.cron), zone_of(schedule.zone)
    latest = latest_until(cron, to_datetime(now), zone)
    at = to_micros(latest)
    if at <= schedule.since:
        return schedule
    due = sum(1 for _ in islice(times_between(cron, to_datetime(schedule.since), latest, zone), MAX_MISSED))
    changed = advance(schedule, at)
    if now - at > CATCH_UP_WINDOW:
        return msgspec.structs.replace(changed, missed=schedule.missed + due)
    changed = msgspec.structs.replace(changed, missed=schedule.missed + due - 1)
    return _apply_overlap(changed, at, busy, run)


def _apply_overlap(schedule: Schedule, at: int, busy: str, run: str) -> Schedule:
    if busy and schedule.overlap == "skip":
        return _skip(schedule, at, f"run {busy} was still running")
    if busy and schedule.overlap == "queue":
        if schedule.waiting:
            return _skip(schedule, at, f"one is already waiting for run {busy} to end")
        return msgspec.structs.replace(schedule, waiting=at)
    return _fire(schedule, at, run, cancel=busy if schedule.overlap == "cancel-former" else "")


def _fire(schedule: Schedule, at: int, run: str, cancel: str = "") -> Schedule:
    return msgspec.structs.replace(schedule, pending=Pending(at, run, cancel))


def _skip(schedule: Schedule, at: int, why: str) -> Schedule:
    kept = (Firing(at, why=why), *schedule.history)[:HISTORY_SIZE]
    return msgspec.structs.replace(schedule, skipped=schedule.skipped + 1, history=kept)


def complete_firing(schedule: Schedule, run: str) -> Schedule:
    """The pending firing has become a run."""
    pending = schedule.pending
    if pending is None:
        return schedule
    kept = (Firing(pending.at, run, is_manual=pending.is_manual), *schedule.history)[:HISTORY_SIZE]
    return msgspec.structs.replace(schedule, pending=None, latest=run, fired=schedule.fired + 1, history=kept)
