"""Plan: how one worker works."""

from __future__ import annotations

import msgspec

from shoal.queue.base import HEARTBEAT, LEASE

SPARE = 2  # times the asked places, at most, for pages that only wait for slow servers


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "worker"
    concurrency: int = 32
    lease: float = LEASE
    heartbeat: float = HEARTBEAT
    serves: tuple[str, ...] | None = None  # scrapers or runs; None: all
    runs: tuple[int, ...] = ()  # whose end is awaited; empty: all that are not ended
    stop_when_empty: bool = True  # end when none of the runs has open tasks
    patience: float = 60.0  # seconds a queue may be out of reach before the worker gives up
    grace: float = 5.0  # seconds for handing work back when asked to stop
    drain: float = 60.0  # seconds for finishing what is under way when asked to drain
    batch_size: int = 0  # most tasks of one claim; 0 is as many as are needed
    hints: bool = False  # let the queue wake us when there may be work
    titles: tuple[str, ...] = ()  # scrapers it has the code for, for people
    code: str = ""  # which versions of them
