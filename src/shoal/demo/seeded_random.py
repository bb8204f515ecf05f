"""SeededRandom: choices that look random and depend on nothing but their key."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class SeededRandom:
    """Our own stream, because `random` does not promise the same choices on every Python."""

    __slots__ = ("_key", "_pool", "_round")

    def __init__(self, *key: object) -> None:
        self._key = ":".join(map(str, key))
        self._round = 0
        self._pool = 0

    def below(self, limit: int) -> int:
        if self._pool < 1 << 64:
            self._round += 1
            block = blake2b(f"{self._key}#{self._round}".encode()).digest()
            self._pool = int.from_bytes(block, "big")
        self._pool, value = divmod(self._pool, limit)
        return value

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def choice(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def sample(self, choices: Sequence[T], count: int) -> list[T]:
        """`count` different choices, in the order drawn."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]
