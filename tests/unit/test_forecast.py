"""When a run ends, and which host decides it."""

from __future__ import annotations

import pytest

from shoal.core.forecast import forecast
from shoal.core.lane import INDEFINITELY, LaneState
from shoal.core.stats import Stats


def lane(name: str, ready: int, spacing: float, held: int = 0) -> LaneState:
    return LaneState(name, 0, spacing, spacing, 0.0, 2, 0, ready, held_until=held)


SLOW, QUICK, UNLIMITED_PACE = lane("slow", 100, 2.0), lane("quick", 10, 1.0), lane("free", 100, 0.0)


@pytest.mark.parametrize(
    ("stats", "lanes", "rate", "max_pages", "seconds", "decided_by"),
    [
        (Stats(), [], 0.0, 0, 0.0, ""),
        (Stats(ready=100), [UNLIMITED_PACE], 0.0, 0, None, ""),
        (Stats(ready=100), [UNLIMITED_PACE], 10.0, 0, 10.0, ""),
        (Stats(ready=110), [SLOW, QUICK], 0.0, 0, 200.0, "slow"),
        (Stats(ready=110), [SLOW, QUICK], 1.5, 0, 200.0, "slow"),
        (Stats(ready=20), [QUICK, lane("same", 10, 1.0)], 0.0, 0, 10.0, ""),
        (Stats(ready=10_000), [QUICK, UNLIMITED_PACE], 10.0, 0, 1000.0, ""),
        (Stats(ready=1), [lane("held", 1, 1.0, held=30_000_000)], 0.0, 0, 31.0, "held"),
        (Stats(ready=2), [QUICK, lane("until released", 1, 1.0, held=int(INDEFINITELY * 1e6))], 1.0, 0, None, ""),
        (Stats(ready=10), [QUICK, lane("nothing waits", 0, 1.0, held=int(INDEFINITELY * 1e6))], 1.0, 0, 10.0, "quick"),
        (Stats(ready=100, done=40), [SLOW], 0.0, 50, 20.0, "slow"),
        (Stats(ready=100, done=50), [SLOW], 0.0, 50, 0.0, ""),
    ],
)
def test_forecast(
    stats: Stats, lanes: list[LaneState], rate: float, max_pages: int, seconds: float | None, decided_by: str
) -> None:
    found = forecast(stats, lanes, rate=rate, now=0, max_pages=max_pages)
    assert (found.seconds, found.lane) == (seconds, decided_by)
