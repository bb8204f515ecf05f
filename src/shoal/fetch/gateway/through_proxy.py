"""ThroughProxy: an exit by one proxy: HTTP, HTTPS or SOCKS5. What the proxy itself fails at is told from the site's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

from shoal.errors import FetchFailed, ProxyFailed
from shoal.fetch.gateway.exit import Connection, Forwarding
from shoal.fetch.gateway.request_head import MAX_HEAD, RequestHead
from shoal.fetch.gateway.socks import socks_connect
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.proxy import check_proxy_target, proxy_address

_LOGIN_NEEDED = 407
_status_line = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])\b").match


class ThroughProxy:
    """The proxy resolves names; what is private by its name or number is not asked of it."""

    def __init__(
        self, proxy: str, policy: PrivateNetworkPolicy, *, connect_timeout: float = 10.0, ca_file: str = ""
    ) -> None:
        self._address = proxy_address(proxy)
        self._policy = policy
        self._connect_timeout = connect_timeout
        self._ca_file = ca_file

    async def open_connection(self, host: str, port: int) -> Connection:
        self._check_target(host, port)
        reader, writer = await self._connect()
        async with self._handshake(writer, host, port):
            if self._address.scheme == "socks5h":
                await socks_connect(reader, writer, host, port, (self._address.user, self._address.password))
            else:
                await self._ask_for_tunnel(reader, writer, host, port)
        return reader, writer

    async def open_forwarding(self, head: RequestHead) -> Forwarding:
        """An HTTP proxy is sent the request itself: many let no tunnels through to other ports than 443."""
        if self._address.scheme == "socks5h":
            return Forwarding(await self.open_connection(head.host, head.port), head.forwarded)
        self._check_target(head.host, head.port)
        return Forwarding(await self._connect(), head.for_proxy(self._authorization()), self._check_answer)

    def _check_target(self, host: str, port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        check_proxy_target(f"{'https' if port == 443 else 'http'}://{shown}:{port}/", self._policy)

    async def _connect(self) -> Connection:
        """To the proxy itself, wherever it is: this machine's settings say so."""
        address = self._address
        try:
            async with asyncio.timeout(self._connect_timeout):
                secured = _tls(self._ca_file) if address.scheme == "https" else None
                return await asyncio.open_connection(address.host, address.port, limit=MAX_HEAD, ssl=secured)
        except TimeoutError as error:
            raise self._proxy_failure("timeout.connect", "it did not answer in time") from error
        except ssl.SSLError as error:
            raise self._proxy_failure("tls", error.reason or "no TLS") from error
        except (OSError, UnicodeError) as error:
            raise self._proxy_failure("connect", "it cannot be connected to") from error

    @asynccontextmanager
    async def _handshake(self, writer: asyncio.StreamWriter, host: str, port: int) -> AsyncIterator[None]:
        """Until the site answers through it; the connection is closed if it does not."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                yield
        except BaseException as error:
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()
            if isinstance(error, ProxyFailed):
                raise self._proxy_failure(error.cause, str(error)) from error
            if isinstance(error, FetchFailed):
                raise FetchFailed(error.cause, f"{self._words} {host}:{port}: {error}") from error
            if isinstance(error, TimeoutError):
                raise FetchFailed("timeout.connect", f"{self._words} {host}:{port} did not answer in time") from error
            if isinstance(error, OSError | EOFError | asyncio.LimitOverrunError):
                raise self._proxy_failure("connect", "it closed the connection") from error
            raise

    async def _ask_for_tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        login = f"Proxy-Authorization: {self._authorization()}\r\n" if self._authorization() else ""
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode())
        found = _status_line(await reader.readuntil(b"\r\n\r\n"))
        status = int(found[1]) if found else 0
        if 200 <= status < 300:
            return
        if status == _LOGIN_NEEDED:
            raise ProxyFailed("connect", "it refuses our login (407)")
        if 400 <= status < 500 or not status:
            raise ProxyFailed("connect", f"it refuses to connect ({status or 'its answer is not HTTP'})")
        raise FetchFailed("connect", f"cannot be connected to ({status})")

    def _check_answer(self, answer: bytes) -> None:
        found = _status_line(answer)
        if found and int(found[1]) == _LOGIN_NEEDED:
            raise self._proxy_failure("connect", "it refuses our login (407)")

    def _authorization(self) -> str:
        user, password = self._address.user, self._address.password
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}" if user or password else ""

    @property
    def _words(self) -> str:
        return f"through the proxy {self._address.shown}:"

    def _proxy_failure(self, cause: str, why: str) -> ProxyFailed:
        return ProxyFailed(cause, f"{self._words} {why}")


@lru_cache(maxsize=4)
def _tls(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)
