"""Shard: one of the queues. It is opened when it is needed, and left alone while it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from shoal.errors import QueueUnavailable
from shoal.queue.base import Queue
from shoal.queue.shards.shard_url import shard_name

T = TypeVar("T")
D = TypeVar("D")

SHORT_TIMEOUT = 2.0  # seconds for an answer that a worker waits for
TIMEOUT = 5.0  # for any other
LONG_TIMEOUT = 300.0  # for one that goes through all that is there
PROBE_TIMEOUT = 5.0
PROBE_MIN, PROBE_MAX = 0.1, 1.0  # seconds between two looks whether it is back

Opener = Callable[[str], Awaitable[Queue]]


async def gather_all(verbs: Iterable[Awaitable[T]]) -> list[T]:
    """All of them are waited for; the first failure is raised then."""
    answers = await asyncio.gather(*verbs, return_exceptions=True)
    good: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        good.append(answer)
    return good


class Shard:
    def __init__(self, index: int, url: str, opener: Opener) -> None:
        self.index = index
        self.name = shard_name(url)
        self.queue: Queue | None = None
        self.away_since = 0.0  # 0: it is not
        self.away_reason = ""
        self._url = url
        self._opener = opener
        self._opening = asyncio.Lock()
        self._probing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Shard {self.index} {self.name}{' away' if self.is_away else ''}>"

    @property
    def is_away(self) -> bool:
        return self.away_since > 0

    async def ask(self, verb: Callable[[Queue], Awaitable[T]], timeout: float = TIMEOUT) -> T:
        """What a verb answers; QueueUnavailable at once while the shard is away."""
        if self.is_away:
            raise self.away_error()
        try:
            async with asyncio.timeout(timeout):
                return await verb(self.queue or await self._open())
        except (QueueUnavailable, TimeoutError) as error:
            self._note_failure(str(error) or f"no answer within {timeout:g} s")
            raise self.away_error() from error

    async def hint(self, verb: Callable[[Queue], Awaitable[T]], otherwise: D, timeout: float = SHORT_TIMEOUT) -> T | D:
        """The same, where it will do without."""
        try:
            return await self.ask(verb, timeout)
        except QueueUnavailable:
            return otherwise

    async def _open(self) -> Queue:
        async with self._opening:
            if self.queue is None:
                self.queue = await self._opener(self._url)
        return self.queue

    def away_error(self) -> QueueUnavailable:
        return QueueUnavailable(
            f"shard {self.name} is away: {self.away_reason}",
            hint="its hosts wait until it is back; start it, or see `shoal shards status`",
        )

    def _note_failure(self, reason: str) -> None:
        self.away_since = self.away_since or time.monotonic()
        self.away_reason = reason
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name=f"probe {self.name}")

    async def _probe(self) -> None:
        """Ask until it answers; whoever needs it need not wait for that."""
        pause = PROBE_MIN
        while self.is_away:
            await asyncio.sleep(pause)
            pause = min(PROBE_MAX, pause * 2)
            with contextlib.suppress(QueueUnavailable, TimeoutError):
                async with asyncio.timeout(PROBE_TIMEOUT):
                    await (self.queue or await self._open()).now()
                self.away_since, self.away_reason = 0.0, ""

    async def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing
        if self.queue is not None:
            await self.queue.close()
