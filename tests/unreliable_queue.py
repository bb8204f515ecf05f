"""Queues that fail, and whose callers die, before or after they have done what they were asked for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from shoal.errors import QueueUnavailable
from shoal.queue.base import Document, Queue


class Killed(BaseException):
    """kill -9: nobody catches it."""


class CrashingQueue:
    """A queue whose caller dies at its nth verb; queues that share `left` count together."""

    def __init__(self, queue: Queue, left: list[int], *, after: bool) -> None:
        self._queue, self._left, self._after = queue, left, after

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._after:
                raise Killed
            answer = await getattr(self._queue, verb)(*args, **named)
            await asyncio.sleep(0)  # others get a word in
            if self._left[0] == 0:
                raise Killed
            return answer

        return call


class UnreliableQueue:
    """A queue whose swaps fail now and then: `share` of them before, and as many after they were done."""

    def __init__(self, queue: Queue, dice: random.Random, share: float = 0.1) -> None:
        self._queue, self._dice, self._share = queue, dice, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def compare_and_swap(self, *args: Any) -> Document | None:
        await asyncio.sleep(0)
        chance = self._dice.random()
        if chance < self._share:
            raise QueueUnavailable("before")
        done = await self._queue.compare_and_swap(*args)
        if chance < 2 * self._share:
            raise QueueUnavailable("after")
        return done

    async def late(self, found: Any, turns: int) -> Any:
        """An answer that comes after some turns of the loop, in which others go on."""
        for _ in range(self._dice.randrange(turns)):
            await asyncio.sleep(0)
        return found
