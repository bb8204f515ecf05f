"""Listener: a connection of its own on which an idle worker waits to be woken."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from shoal.errors import ActionRequired
from shoal.queue.redis.connection import RedisConnection
from shoal.queue.redis.engine import Engine

MAX_BLOCK_SECONDS = 5.0  # seconds per call: a connection that died meanwhile is not waited on for ever
GRACE = 0.3  # seconds for the server to say that the time is over


class RedisListener:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: RedisConnection | None = None
        self._one = asyncio.Lock()
        self._closed = False

    async def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds + GRACE), self._one:
                while not self._closed and (left := end - time.monotonic()) > 0:
                    if await self._listen(min(left, MAX_BLOCK_SECONDS)):
                        return

    async def _listen(self, seconds: float) -> bool:
        """Whether a hint came. A server that cannot be reached is left to those who ask it for more."""
        serves = self._engine.serves
        keys = ["hint"] if serves is None else [f"hint:{name}" for name in serves]
        names = [self._engine.prefix + key for key in keys]
        answer: Any = None
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._engine.connect()
            answer = await self._connection.send("BLPOP", *names, f"{max(seconds, 0.001):.3f}")
        except (OSError, ActionRequired) as error:
            answer = error
        except asyncio.CancelledError:
            self._drop()  # the answer to come would be taken for that of the next call
            raise
        if isinstance(answer, Exception):
            self._drop()
            await asyncio.sleep(seconds)
        return isinstance(answer, list)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._closed = True
        self._drop()
