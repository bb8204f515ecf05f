"""The states of a fleet's workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal.core.lane import WorkerStatus

STALE_AFTER = 60.0  # seconds of silence
WORKER_STATES = ("working", "idle", "paused", "draining", "stale", "other")


def worker_state(status: WorkerStatus, now: int, stale_after: float) -> str:
    """working, idle, paused or draining, as it is or was just asked to be; stale after a set silence."""
    if now - status.seen_at > stale_after * 1e6:
        return "stale"
    if status.command:
        return {"drain": "draining", "pause": "paused"}.get(status.command, status.state)
    return status.state


def count_by_state(statuses: Iterable[WorkerStatus], now: int, stale_after: float) -> dict[str, int]:
    """How many there are in each state; every state is named."""
    found = Counter(worker_state(status, now, stale_after) for status in statuses)
    made = {state: found.pop(state, 0) for state in WORKER_STATES}
    made["other"] += sum(found.values())
    return made
