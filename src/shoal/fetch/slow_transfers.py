"""SlowTransferWatch: ends exchanges whose headers do not come or whose bodies come too slowly.

One timer looks at all of them about once a second; an exchange that is over sooner costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf
from typing import Generic, Protocol, TypeVar

from shoal.fetch.limits import FetchLimits

_MAX_INTERVAL = 1.0
_MIN_INTERVAL = 0.02


class SlowTransferTimer:
    """How long one exchange is still waited for."""

    __slots__ = ("_limits", "_requested_at", "_size_seen", "_slow_at")

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._requested_at = inf
        self._slow_at = inf
        self._size_seen = 0

    def extend_timeouts(self, seconds: float) -> None:
        """Time that was not the server's."""
        self._requested_at += seconds
        self._slow_at += seconds

    def headers_overdue(self, now: float) -> bool:
        """Still waiting for headers: is it too long?"""
        self._requested_at = min(self._requested_at, now)
        return now - self._requested_at > self._limits.first_byte_timeout

    def body_too_slow(self, now: float, size: int, paused: bool) -> bool:
        """The body has come to `size` bytes: is that too slow? Every byte buys a little more time."""
        limits = self._limits
        if not limits.min_speed:
            return False
        latest = now + limits.slow_for
        if paused or self._slow_at == inf:
            self._slow_at = latest
        else:
            self._slow_at = min(latest, self._slow_at + (size - self._size_seen) / limits.min_speed)
        self._size_seen = size
        return now > self._slow_at


class WatchedTransfer(Protocol):
    def is_too_slow(self, now: float) -> bool:
        """Whether the other side is slower than the limits allow."""
        ...


T = TypeVar("T", bound=WatchedTransfer)


class SlowTransferWatch(Generic[T]):
    def __init__(self, limits: FetchLimits, active: Collection[T], end: Callable[[T], None]) -> None:
        self._active = active
        self._end = end
        shortest = min(limits.first_byte_timeout, limits.slow_for)
        self._interval = max(_MIN_INTERVAL, min(_MAX_INTERVAL, shortest / 8))
        self._timer: asyncio.TimerHandle | None = None
        self.is_idle = True

    def schedule(self) -> None:
        """Look again and again, until there is nothing to look at."""
        self.is_idle = False
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def close(self) -> None:
        self.is_idle = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if not self._active:
            self.is_idle = True
            return
        now = asyncio.get_running_loop().time()
        for exchange in [one for one in self._active if one.is_too_slow(now)]:
            self._end(exchange)
        self.schedule()
