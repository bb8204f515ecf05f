"""Patience: how long to go on asking a queue that does not answer."""

from __future__ import annotations

from collections.abc import Callable

_TRIES = 10  # at least: a machine that slept through its patience has not yet tried in earnest
_FIRST, _LONGEST = 0.05, 2.0


class Patience:
    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since = 0.0
        self.tries = 0

    def pause(self) -> float | None:
        """Seconds until the next try; None when it has been tried for long enough."""
        now = self._clock()
        if not self.tries:
            self._since = now
        self.tries += 1
        if self.tries > _TRIES and now - self._since > self._seconds:
            return None
        return min(_FIRST * 2.0 ** min(self.tries - 1, 10), _LONGEST)
