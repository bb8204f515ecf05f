"""A clock that moves only when told to."""

from __future__ import annotations


class FakeClock:
    """UTC microseconds, unless it is begun at something else; `tick` is how far each reading moves it."""

    def __init__(self, at: float = 1_750_000_000_000_000, *, tick: int = 0) -> None:
        self.at = at
        self._tick = tick

    def __call__(self) -> float:
        self.at += self._tick
        return self.at

    def step(self, seconds: float) -> None:
        self.at += round(seconds * 1e6)
