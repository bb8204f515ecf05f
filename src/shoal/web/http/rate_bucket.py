"""Token buckets: how often each of many callers may do something, in bounded memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class TokenBuckets:
    """A token bucket per caller: `rate` a second over a while, `burst` at once."""

    def __init__(
        self, rate: float, burst: float, *, max_callers: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._max_callers = max_callers
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (left, when)

    def take(self, caller: str, count: float = 1.0) -> float:
        """0 if it may; else the seconds after which it may."""
        left, now = self._now(caller)
        if left < count:
            return (count - left) / self._rate
        self._left[caller] = left - count, now
        self._left.move_to_end(caller)
        if len(self._left) > self._max_callers:
            self._left.popitem(last=False)  # silent for longest: full again, or nearly
        return 0.0

    def wait(self, caller: str) -> float:
        """The same without taking."""
        return max(0.0, (1.0 - self._now(caller)[0]) / self._rate)

    def _now(self, caller: str) -> tuple[float, float]:
        now = self._clock()
        left, at = self._left.get(caller, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate), now
