"""Retention of dead letters: how long a run keeps them, in seconds; 0 is as long as the run."""

from __future__ import annotations

MIN_DEAD_RETENTION = 60.0  # two leases: so long it is known which answers were given


def kept_for(asked: float) -> float:
    """What is kept to of what was asked for: not less than the least."""
    return max(asked, MIN_DEAD_RETENTION) if asked > 0 else 0.0
