"""A connection to the broker that is made again when it was lost."""

from __future__ import annotations

import asyncio
import logging

from shoal.amqp.address import BrokerAddress
from shoal.amqp.connection import Connection
from shoal.amqp.errors import AmqpError
from shoal.errors import QueueUnavailable
from shoal.queue.broker.failure import translate
from shoal.queue.tls import tls_context

log = logging.getLogger("shoal.queue")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts to connect


class Link:
    """One connection at a time, made when it is needed; attempts that fail grow further apart."""

    def __init__(self, address: BrokerAddress, *, name: str, ca_file: str = "") -> None:
        self.address = address
        self._name = name
        self._tls = tls_context(ca_file) if address.tls else None
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self._pause = 0.0
        self._not_before = 0.0

    @property
    def current(self) -> Connection | None:
        """The connection, if there is one."""
        return self._connection if self._connection is not None and self._connection.is_open else None

    @property
    def blocked(self) -> str:
        """Why the broker takes no messages; nothing while it does."""
        return self._connection.blocked if self._connection is not None and self._connection.is_open else ""

    async def connection(self) -> Connection:
        """QueueUnavailable while the broker is away, QueueRefused if it does not want us."""
        if (current := self.current) is not None:
            return current
        async with self._turn:
            if (current := self.current) is not None:
                return current
            if self._closed:
                raise QueueUnavailable("this queue was closed")
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            try:
                connection = await Connection.open(self.address, tls=self._tls, name=self._name)
            except (AmqpError, OSError) as error:
                self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
                self._not_before = loop.time() + self._pause
                raise translate(self.address, error) from error
            if self._is_closed():  # meanwhile
                await connection.close()
                raise QueueUnavailable("this queue was closed")
            self._pause, self._connection = 0.0, connection
            return connection

    def _is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close()
