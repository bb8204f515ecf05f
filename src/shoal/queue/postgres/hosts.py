"""Hosts: one of several servers is the primary, and another one after a fail-over."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import asyncpg

from shoal.queue.postgres.failure import CONNECTION_ERRORS

HOST_TIMEOUT = 3.0  # seconds for one host, where there are others
# A machine that is gone says nothing: sessions end after about ten seconds, also those that await an answer.
KEEPALIVE = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
_TIMELINE = "SELECT pg_walfile_name(pg_current_wal_lsn())"  # its first eight characters number the timeline

OnServer = Callable[[str], None]


class HostList:
    """Connects to the host that can be written, beginning with the last one that could.

    The driver knows several hosts, too, but waits for a machine that is silent until the time for all of them is over.
    """

    def __init__(self, dsns: tuple[str, ...], on_server: OnServer) -> None:
        self._dsns = list(dsns)
        self._on_server = on_server

    @property
    def last(self) -> str:
        """The DSN of the host that was connected to last; before that, of the first."""
        return self._dsns[0]

    async def connect(self, *args: Any, timeout: float, **named: Any) -> asyncpg.Connection:
        """As asyncpg.connect, which is given a DSN of all hosts; for a pool, too."""
        problem: BaseException = OSError("no time to connect")
        until = time.monotonic() + timeout
        for dsn in tuple(self._dsns):
            left = min(HOST_TIMEOUT, until - time.monotonic())
            if left <= 0:
                break
            try:
                connection = await asyncpg.connect(dsn, timeout=left, target_session_attrs="read-write", **named)
            except CONNECTION_ERRORS as error:
                problem = error
                continue
            self._prefer(dsn)
            _keep_alive(connection)
            await self._tell(connection)
            return connection
        raise problem

    def _prefer(self, dsn: str) -> None:
        if self._dsns[0] != dsn:
            self._dsns.remove(dsn)
            self._dsns.insert(0, dsn)

    async def _tell(self, connection: asyncpg.Connection) -> None:
        """Every promotion begins a new timeline."""
        try:
            name = await connection.fetchval(_TIMELINE)
        except BaseException:
            connection.terminate()
            raise
        self._on_server(f"timeline {int(name[:8], 16)}")


def _keep_alive(connection: asyncpg.Connection) -> None:
    """As far as the system can; a socket of this machine needs none."""
    transport = getattr(connection, "_transport", None)  # the driver has no other way
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for name, value in KEEPALIVE.items():
        level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
        with contextlib.suppress(AttributeError, OSError):
            found.setsockopt(level, getattr(socket, name), value)
