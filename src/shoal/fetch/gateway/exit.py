"""Exit: how connections leave this machine. `Direct` resolves a name, checks each address, and connects to that one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.gateway.request_head import RequestHead
from shoal.fetch.guard import PrivateNetworkPolicy, non_public_reason, private_hint

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]  # the addresses of a host
MAX_ADDRESSES = 8  # of one name that are tried


def accept_any(answer: bytes) -> None:
    """Whatever a site says."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """A connection for one request that is not encrypted."""

    connection: Connection
    head: bytes  # what is sent in place of the request's own head
    check: Callable[[bytes], None] = accept_any  # of the first bytes of the answer; raises what is wrong with it


class Exit(Protocol):
    """Both raise FetchRefused (blocked.private) or FetchFailed (dns, connect, timeout.connect; ProxyFailed)."""

    async def open_connection(self, host: str, port: int) -> Connection: ...

    async def open_forwarding(self, head: RequestHead) -> Forwarding: ...


async def system_addresses(host: str, port: int) -> Sequence[str]:
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Direct:
    """From this machine itself, to public addresses and to those that the policy permits."""

    def __init__(
        self, policy: PrivateNetworkPolicy, *, connect_timeout: float = 10.0, resolve: Resolve = system_addresses
    ) -> None:
        self._policy = policy
        self._connect_timeout = connect_timeout
        self._resolve = resolve

    async def open_connection(self, host: str, port: int) -> Connection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._connect(host, port)
        except TimeoutError as error:
            raise FetchFailed("timeout.connect", f"{host}:{port} did not answer in time") from error

    async def open_forwarding(self, head: RequestHead) -> Forwarding:
        return Forwarding(await self.open_connection(head.host, head.port), head.forwarded)

    async def _connect(self, host: str, port: int) -> Connection:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise FetchFailed("dns", f"{host} has no address") from error
        permitted = [ip for ip in addresses[:MAX_ADDRESSES] if not self._refusal(host, ip, port)]
        if not permitted:
            ip = addresses[0] if addresses else host
            raise FetchRefused("blocked.private", f"{self._refusal(host, ip, port)}; {private_hint(ip)}")
        failure: OSError | None = None
        for ip in permitted:
            try:
                # By its number: a name that is resolved a second time may lead elsewhere.
                return await asyncio.open_connection(ip, port)
            except OSError as error:
                failure = error
        raise FetchFailed("connect", f"{host}:{port} cannot be connected to") from failure

    def _refusal(self, host: str, ip: str, port: int) -> str:
        why = non_public_reason(ip, port)
        shown = f"[{host}]" if ":" in host else host
        return "" if not why or self._policy.permits(f"http://{shown}:{port}/", ip, port) else why
