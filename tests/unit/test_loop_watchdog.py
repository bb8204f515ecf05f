"""The loop watchdog: what counts as a blocked loop."""

from __future__ import annotations

import threading

import pytest
from wait import HANG, until

from shoal.web.loop_watchdog import TICK, LoopWatchdog, counted_seconds


@pytest.mark.parametrize(
    ("elapsed", "computed", "counts"),
    [
        (TICK, 0.0, TICK),
        (3600.0, 0.0, 2 * TICK),  # a laptop that slept, a process that was suspended
        (45.0, 44.0, 44.0),  # a call in C that let no other thread run
        (TICK, 1.0, TICK),  # other threads computed, too
    ],
)
def test_only_time_that_the_process_had_counts(elapsed: float, computed: float, counts: float) -> None:
    assert counted_seconds(elapsed, computed) == counts


async def test_each_block_counts_once_however_long_it_is() -> None:
    watchdog = LoopWatchdog(blocked_after=2 * TICK)
    watchdog.start()
    try:
        for number in (1, 2):
            assert _block_until(lambda number=number: watchdog.blocked_seconds > number * 4 * TICK)
            await until(lambda: watchdog._silent == 0)
            assert watchdog.blocked_count == number
    finally:
        watchdog.close()


def _block_until(reached: object) -> bool:
    """Holds the loop's thread for as long as it takes."""
    assert callable(reached)
    waiting = threading.Event()
    for _ in range(int(HANG / 0.01)):
        if reached():
            return True
        waiting.wait(0.01)
    return False
