"""Patience: asking a queue again that is out of reach for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shoal.errors import QueueUnavailable
from shoal.worker.patience import Patience

T = TypeVar("T")

SERVER = 60.0  # seconds: servers are restarted, and come back


async def patiently(verb: Callable[[], Awaitable[T]], seconds: float = SERVER) -> T:
    """What a verb answers, asked again while the queue is out of reach; 0 seconds: not again."""
    patience = Patience(time.monotonic, seconds)
    while True:
        try:
            return await verb()
        except QueueUnavailable:
            pause = patience.pause() if seconds else None
            if pause is None:
                raise
            await asyncio.sleep(pause)
