"""Snapshot: the whole fleet at one moment, in a few questions that cost the queue little."""

from __future__ import annotations

import msgspec

from shoal.config import Settings
from shoal.core.forecast import Forecast
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue

OPEN_RUNS, ENDED_RUNS, HOSTS = 200, 20, 50


class RunLook(msgspec.Struct, frozen=True):
    """A run as it is listed."""

    run: Run
    standing: str  # for people: running, waiting, stopped, paused, finished, cancelled, moved
    stats: Stats
    rate: float = 0.0  # pages per second lately
    failing: float = 0.0  # failed attempts per second lately
    ahead: Forecast = Forecast(None)
    seeding: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    at: int  # the store's clock
    runs: tuple[RunLook, ...] = ()  # unfinished ones, newest first, then some that ended lately
    totals: Stats = Stats()  # of the unfinished
    workers: tuple[Mark, ...] = ()
    hosts: tuple[LaneState, ...] = ()  # with the most ready work
    parked: tuple[LaneState, ...] = ()
    oldest_at: int = 0  # when the task that has waited longest was added; 0: nothing waits
    rate: float = 0.0
    more_runs: bool = False  # there are more unfinished runs than were looked at


async def look(queue: Queue, settings: Settings) -> Snapshot:
    """One look. Rates need two: see Lookout."""
    raise NotImplementedError
