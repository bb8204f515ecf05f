"""Reconnect: the one way to wait for a queue that is away: how long, and how often it is asked again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shoal.core.task import Outcome, Verdict
from shoal.errors import QueueFull, QueueReadOnly, QueueUnavailable
from shoal.queue.base import Queue

T = TypeVar("T")

TRANSIENT_ERRORS = (QueueUnavailable, QueueFull, QueueReadOnly)  # they pass; nothing is lost
OUTAGE_TIMEOUT = 60.0  # seconds: servers are restarted, and come back
_TRIES = 10  # at least: a machine that slept through the outage has not yet tried in earnest
_FIRST, _LONGEST = 0.05, 2.0

OnFailure = Callable[[Exception, int], None]  # with the number of failures so far; it may raise


async def settle_one(queue: Queue, outcome: Outcome) -> Verdict:
    """The answer to one outcome; QueueUnavailable where the part of the queue that has its task is out of reach."""
    (verdict,) = await queue.settle([outcome])
    if verdict == "away":
        raise QueueUnavailable("the part of the queue that has this task is away", hint="see `shoal doctor`")
    return verdict


class WaitStopped(Exception):
    """Raised by a verb, or by `on_failure`, where nobody waits for the queue any more."""


async def reconnecting(
    verb: Callable[[], Awaitable[T]],
    seconds: float = OUTAGE_TIMEOUT,
    *,
    errors: tuple[type[Exception], ...] = (QueueUnavailable,),
    on_failure: OnFailure | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What a verb answers, asked again in growing intervals while the queue is away; 0 seconds: not again."""
    tries, since = 0, 0.0
    while True:
        try:
            return await verb()
        except errors as error:
            now = clock()
            tries, since = tries + 1, since if tries else now
            if on_failure is not None:
                on_failure(error, tries)
            if not seconds or (tries > _TRIES and now - since > seconds):
                raise
            await sleep(min(_FIRST * 2.0 ** min(tries - 1, 10), _LONGEST))
