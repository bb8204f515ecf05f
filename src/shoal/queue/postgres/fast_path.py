"""Fast path: whether it is worth trying to claim in one step, which works where nothing has a limit."""

from __future__ import annotations

MAX_SKIPPED_CLAIMS = 32  # claims to go by without trying again


class FastPath:
    def __init__(self) -> None:
        self._misses = 0
        self._left = 0  # claims until the next try

    def is_worth_trying(self) -> bool:
        self._left -= 1
        return self._left < 0

    def note(self, *, worked: bool) -> None:
        self._misses = 0 if worked else self._misses + 1
        self._left = 0 if worked else min(MAX_SKIPPED_CLAIMS, 1 << min(self._misses, 8)) - 1
