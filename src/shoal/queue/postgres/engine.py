"""Engine: a few connections to one server, and how verbs survive what happens to them.

Every call is one transaction and leaves nothing behind in its session, so that sessions may be shared
by a pooler. A verb whose session is cut is repeated: repeating a verb is harmless.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from shoal.errors import QueueUnavailable, ShoalError
from shoal.queue.failover import FailoverRecovery
from shoal.queue.postgres import failure, migrate
from shoal.queue.postgres.fast_path import FastPath
from shoal.queue.postgres.hosts import HostList
from shoal.queue.postgres.server_url import PostgresUrl

T = TypeVar("T")
Step = Callable[[asyncpg.Connection], Awaitable[T]]

CONNECT_TIMEOUT = 10.0  # seconds to wait for a connection
TIMEOUT = 20.0  # seconds in which a server that went away may come back
CALL_TIMEOUT = 120.0  # seconds for one call
TRIES = 10  # of a call that met a deadlock


async def _reset_nothing(connection: asyncpg.Connection) -> None:
    """Nothing is left behind in a session, so there is nothing to reset."""


class Engine:
    def __init__(self, server_url: PostgresUrl, clock: Callable[[], int] | None) -> None:
        self.server_url = server_url
        self.clock = clock
        self.schema = f'"{server_url.namespace}"'
        self.fast_path = FastPath()
        self.planning = asyncio.Lock()  # held by a claim from its look to its taking
        self.recovery: FailoverRecovery | None = None  # where another server may take over
        self._hosts = HostList(server_url.dsns, self._on_server) if server_url.fails_over else None
        self._server_id = ""
        self._pool: asyncpg.Pool | None = None
        self._closed = False

    async def open(self) -> None:
        known = self.server_url.statements
        try:
            self._pool = await asyncpg.create_pool(
                self.server_url.dsn,
                min_size=0,
                max_size=self.server_url.connections,
                max_inactive_connection_lifetime=300.0,
                timeout=CONNECT_TIMEOUT,
                command_timeout=CALL_TIMEOUT,
                statement_cache_size=100 if known is None else known,
                max_cached_statement_lifetime=0,
                reset=_reset_nothing,
                server_settings={"application_name": "shoal"},
                connect=self._hosts.connect if self._hosts else None,
            )
            await self._transact(lambda db: migrate.prepare(db, self.server_url))
        except ShoalError:
            await self.close()
            raise
        except failure.ALL_ERRORS as error:
            await self.close()
            raise failure.translate_error(error, self.server_url.display_url) from error

    async def connect(self) -> asyncpg.Connection:
        """One more session, outside the pool."""
        connect = self._hosts.connect if self._hosts else asyncpg.connect
        return await connect(
            self.server_url.dsn, timeout=CONNECT_TIMEOUT, server_settings={"application_name": "shoal"}
        )

    def _on_server(self, server_id: str) -> None:
        before, self._server_id = self._server_id, server_id
        if before and before != server_id and self.recovery is not None:
            self.recovery.begin(before, server_id)

    def now(self) -> int | None:
        """The time by a test's clock; None is the server's own."""
        return None if self.clock is None else self.clock()

    async def rows(self, sql: str, *values: Any) -> list[Any]:
        """The rows of one statement; {s} in it stands for the schema."""
        statement = sql.replace("{s}", self.schema)
        return await self._retry(lambda db: db.fetch(statement, *values))

    async def value(self, sql: str, *values: Any) -> Any:
        statement = sql.replace("{s}", self.schema)
        return await self._retry(lambda db: db.fetchval(statement, *values))

    async def flush(self) -> None:
        """Wait until what was read is on the disk: an outcome can be seen before it is, and must not leave the queue then."""
        await self.value("SELECT {s}.flush_log()")

    async def transact(self, step: Step[T]) -> T:
        """Several statements as one transaction; repeated as a whole where need be."""
        return await self._retry(step, transact=True)

    async def _retry(self, step: Step[T], *, transact: bool = False) -> T:
        began, tries, pause = time.monotonic(), 0, 0.02
        while True:
            if self._closed or self._pool is None:
                raise QueueUnavailable("the queue was closed", hint="open it again")
            try:
                if transact or self.server_url.is_pooled:
                    return await self._transact(step)
                async with self._pool.acquire() as db:
                    return await step(db)
            except failure.RETRYABLE as error:
                tries += 1
                if tries >= TRIES:
                    raise failure.translate_error(error, self.server_url.display_url) from error
                await asyncio.sleep(random.random() * 0.01 * tries)
            except failure.CONNECTION_ERRORS as error:
                if isinstance(error, ValueError):  # what was asked for cannot be sent at all
                    raise
                if time.monotonic() - began > TIMEOUT:
                    raise failure.translate_error(error, self.server_url.display_url) from error
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
            except asyncpg.ReadOnlySQLTransactionError as error:
                if self._hosts is None or time.monotonic() - began > TIMEOUT:
                    raise failure.translate_error(error, self.server_url.display_url) from error
                await self._leave()
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
            except asyncpg.PostgresError as error:
                raise failure.translate_error(error, self.server_url.display_url) from error

    async def _leave(self) -> None:
        """The server is not the primary any more: its sessions are of no use."""
        if self._pool is not None:
            await self._pool.expire_connections()

    async def _transact(self, step: Step[T]) -> T:
        assert self._pool is not None
        async with self._pool.acquire() as db, db.transaction():
            return await step(db)

    async def close(self) -> None:
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 5.0)
            except failure.ALL_ERRORS:
                pool.terminate()
