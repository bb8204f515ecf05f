"""Watch: ends exchanges whose headers do not come or whose bodies come too slowly.

One timer looks at all of them about once a second; an exchange that is over sooner costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf
from typing import Generic, Protocol, TypeVar

from shoal.fetch.limits import Limits

_OFTEN = 1.0
_SOONEST = 0.02


class Patience:
    """How long one exchange is still waited for."""

    __slots__ = ("_asked_at", "_limits", "_seen", "_slow_at")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._asked_at = inf
        self._slow_at = inf
        self._seen = 0

    def excuse(self, seconds: float) -> None:
        """Time that was not the server's."""
        self._asked_at += seconds
        self._slow_at += seconds

    def for_headers(self, now: float) -> bool:
        """Still waiting for headers: is it too long?"""
        self._asked_at = min(self._asked_at, now)
        return now - self._asked_at > self._limits.first_byte_timeout

    def for_body(self, now: float, size: int, paused: bool) -> bool:
        """The body has come to `size` bytes: is that too slow? Every byte buys a little more time."""
        limits = self._limits
        if not limits.min_speed:
            return False
        latest = now + limits.slow_for
        if paused or self._slow_at == inf:
            self._slow_at = latest
        else:
            self._slow_at = min(latest, self._slow_at + (size - self._seen) / limits.min_speed)
        self._seen = size
        return now > self._slow_at


class Watched(Protocol):
    def late(self, now: float) -> bool:
        """Whether the other side has used up our patience."""
        ...


T = TypeVar("T", bound=Watched)


class Watch(Generic[T]):
    def __init__(self, limits: Limits, active: Collection[T], end: Callable[[T], None]) -> None:
        self._active = active
        self._end = end
        shortest = min(limits.first_byte_timeout, limits.slow_for)
        self._often = max(_SOONEST, min(_OFTEN, shortest / 8))
        self._timer: asyncio.TimerHandle | None = None
        self.asleep = True

    def wake(self) -> None:
        """Look again and again, until there is nothing to look at."""
        self.asleep = False
        self._timer = asyncio.get_running_loop().call_later(self._often, self._look)

    def close(self) -> None:
        self.asleep = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if not self._active:
            self.asleep = True
            return
        now = asyncio.get_running_loop().time()
        for exchange in [one for one in self._active if one.late(now)]:
            self._end(exchange)
        self.wake()
