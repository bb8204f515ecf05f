"""Hints: a connection of its own on which a worker without work waits to be woken."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Any

from shoal.errors import Act
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.wire import Wire

LONGEST = 5.0  # seconds per call: a connection that died meanwhile is not waited on for ever
GRACE = 0.3  # seconds for the server to say that the time is over


class Hints:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wire: Wire | None = None
        self._one = asyncio.Lock()
        self._closed = False
        self.serves: Collection[str] | None = None  # as the last claim said

    async def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds + GRACE), self._one:
                while not self._closed and (left := end - time.monotonic()) > 0:
                    if await self._listen(min(left, LONGEST)):
                        return

    async def _listen(self, seconds: float) -> bool:
        """Whether a hint came. A server that cannot be reached is left to those who ask it for more."""
        keys = ["hint"] if self.serves is None else [f"hint:{name}" for name in self.serves]
        names = [self._engine.prefix + key for key in keys]
        answer: Any = None
        try:
            if self._wire is None or not self._wire.is_open:
                self._wire = await self._engine.connect()
            answer = await self._wire.send("BLPOP", *names, f"{max(seconds, 0.001):.3f}")
        except (OSError, Act) as error:
            answer = error
        except asyncio.CancelledError:
            self._drop()  # the answer to come would be taken for that of the next call
            raise
        if isinstance(answer, Exception):
            self._drop()
            await asyncio.sleep(seconds)
        return isinstance(answer, list)

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def close(self) -> None:
        self._closed = True
        self._drop()
