"""Crew: the worker processes of this machine, as the settings want them."""

from __future__ import annotations

import os
import sys

from shoal.config import Settings
from shoal.worker.supervisor import Limits

# -P: no file in the folder it is started from stands in for a module of Python or of ours.
COMMAND = (sys.executable, "-P", "-m", "shoal.child")
MOST = 8  # processes, unless somebody asks for more


def crew_size(settings: Settings) -> int:
    """As many as asked for, else one per core that we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.workers or max(1, min(MOST, cores))


def crew_limits(settings: Settings, *, patience: float = Limits().patience) -> Limits:
    return Limits(
        handler_timeout=settings.handler_timeout,
        memory=settings.worker_memory,
        patience=patience,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        retries=settings.retry_limits,
        retry_delay=settings.retry_delay,
    )
