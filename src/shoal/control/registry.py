"""Registry: what state the workers of a fleet are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal.core.lane import Mark

STALE_AFTER = 60.0  # seconds of silence
STATES = ("working", "idle", "paused", "draining", "stale", "other")


def state_of(mark: Mark, now: int, stale_after: float) -> str:
    """working, idle, paused or draining, as it is or was just asked to be; stale after a set silence."""
    if now - mark.seen_at > stale_after * 1e6:
        return "stale"
    if mark.asked:
        return {"drain": "draining", "pause": "paused"}.get(mark.asked, mark.state)
    return mark.state


def by_state(marks: Iterable[Mark], now: int, stale_after: float) -> dict[str, int]:
    """How many there are in each state; every state is named."""
    found = Counter(state_of(mark, now, stale_after) for mark in marks)
    made = {state: found.pop(state, 0) for state in STATES}
    made["other"] += sum(found.values())
    return made
