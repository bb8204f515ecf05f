"""Rates: how fast a count grows lately."""

from __future__ import annotations

from collections import deque

WINDOW = 8.0  # seconds over which pages/s are measured


class RateMeter:
    """Pages per second over the last seconds."""

    def __init__(self, window: float = WINDOW) -> None:
        self._points: deque[tuple[float, int]] = deque()
        self._window = window

    def add(self, at: float, pages: int) -> None:
        self._points.append((at, pages))
        while len(self._points) > 2 and self._points[1][0] <= at - self._window:
            self._points.popleft()

    @property
    def known(self) -> bool:
        return len(self._points) > 1

    @property
    def seconds(self) -> float:
        """How long the looks reach back."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    @property
    def per_second(self) -> float:
        if len(self._points) < 2:
            return 0.0
        (first, before), (last, after) = self._points[0], self._points[-1]
        return max(0, after - before) / (last - first) if last > first else 0.0
