"""WorkerPlan: how one worker works."""

from __future__ import annotations

import msgspec

from shoal.core.resources import ResourcePolicy
from shoal.queue.base import HEARTBEAT_SECONDS, LEASE_SECONDS


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "worker"
    concurrency: int = 32  # the most tasks in progress at once
    lease: float = LEASE_SECONDS
    heartbeat: float = HEARTBEAT_SECONDS
    serves: tuple[str, ...] | None = None  # scrapers or runs; None: all
    capabilities: tuple[str, ...] = ()  # what tasks may need of it, such as "browser"
    runs: tuple[int, ...] = ()  # whose end is awaited; empty: all that are not ended
    stop_when_empty: bool = True  # end when none of the runs has open tasks
    outage_timeout: float = 60.0  # seconds a queue may be out of reach before the worker gives up
    grace_period: float = 5.0  # seconds for handing work back when asked to stop
    drain_timeout: float = 60.0  # seconds for finishing what is in progress when asked to drain
    batch_size: int = 0  # most tasks of one claim; 0 is as many as are needed
    use_wakeups: bool = False  # let the queue wake us when there may be work
    scraper_names: tuple[str, ...] = ()  # scrapers it has the code for, for people
    code_versions: str = ""  # which versions of them
    resources: ResourcePolicy | None = None  # what it leaves of the machine to others; None: it does not look
    folder: str = "."  # on the disk that must not fill up
