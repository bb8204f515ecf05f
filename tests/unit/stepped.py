"""A clock for tests: it moves on when told to, and a little each time it is looked at."""

from __future__ import annotations


class Clock:
    now = 1_800_000_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)
