"""Listener: is notified that there may be new work, over a connection of its own that is opened when first needed."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from shoal.errors import QueueUnavailable
from shoal.queue.postgres import failure
from shoal.queue.postgres.engine import Engine

RETRY_AFTER = 30.0  # seconds to go without, should it not be possible to listen


class PostgresListener:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._notified = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._retry_at = 0.0

    async def wait(self, seconds: float) -> None:
        """Return when something was heard, or after so long."""
        if not self._engine.server_url.listen:
            await asyncio.sleep(seconds)
            return
        self._listen()
        try:
            async with asyncio.timeout(seconds):
                await self._notified.wait()
        except TimeoutError:
            return
        self._notified.clear()

    def _listen(self) -> None:
        is_open = self._connection is not None and not self._connection.is_closed()
        now = asyncio.get_running_loop().time()
        if not is_open and self._opening is None and now >= self._retry_at:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)

    async def _open(self) -> None:
        try:
            channel = await self._engine.value("SELECT 'shoal_' || {s}.lock_namespace()")
            connection = await self._engine.connect()
            try:
                await connection.add_listener(channel, self._on_notify)
            except BaseException:  # closed meanwhile, or cut off: nobody else knows of it
                connection.terminate()
                raise
        except (*failure.ALL_ERRORS, QueueUnavailable):
            self._retry_at = asyncio.get_running_loop().time() + RETRY_AFTER
            return
        self._connection = connection

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None

    def _on_notify(self, *said: Any) -> None:
        self._notified.set()

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
