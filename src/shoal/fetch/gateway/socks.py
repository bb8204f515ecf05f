"""SOCKS5: the few lines that are said to such a proxy before a connection is the site's (RFC 1928, RFC 1929)."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from shoal.errors import FetchFailed, ProxyFailed

_VERSION, _LOGIN_VERSION = 5, 1
_NO_LOGIN, _LOGIN = 0, 2
_CONNECT = 1
_ADDRESS_SIZES = {1: 4, 4: 16}  # by kind
_NAME = 3
_REPLIES = {
    1: "general failure",
    2: "it is not allowed",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "the connection was refused",
    6: "it took too long",
    7: "it cannot connect",
    8: "it cannot be asked for such an address",
}
_SITE_REPLIES = (1, 3, 4, 5, 6)  # the rest is the proxy's own
MAX_PART = 255  # bytes of a name, and of either part of a login


async def socks_connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, login: tuple[str, str]
) -> None:
    """From here on the connection is to that host, whose name the proxy resolves. login: empty without one."""
    user, password = (part.encode("utf-8", "replace")[:MAX_PART] for part in login)
    methods = bytes((_NO_LOGIN, _LOGIN)) if user else bytes((_NO_LOGIN,))
    writer.write(bytes((_VERSION, len(methods))) + methods)
    version, method = await reader.readexactly(2)
    if version != _VERSION:
        raise ProxyFailed("connect", "it does not speak SOCKS5")
    if method == _LOGIN and user:
        writer.write(bytes((_LOGIN_VERSION, len(user))) + user + bytes((len(password),)) + password)
        _, status = await reader.readexactly(2)
        if status:
            raise ProxyFailed("connect", "it refuses our login")
    elif method != _NO_LOGIN:
        raise ProxyFailed("connect", "it wants another login" if user else "it wants a login")
    writer.write(bytes((_VERSION, _CONNECT, 0)) + _target(host) + port.to_bytes(2))
    await _read_reply(reader)


def _target(host: str) -> bytes:
    try:
        packed = ip_address(host).packed
    except ValueError:
        name = host.encode("ascii", "replace")[:MAX_PART]
        return bytes((_NAME, len(name))) + name
    return bytes((1 if len(packed) == 4 else 4,)) + packed


async def _read_reply(reader: asyncio.StreamReader) -> None:
    version, reply, _, kind = await reader.readexactly(4)
    if version != _VERSION:
        raise ProxyFailed("connect", "it does not speak SOCKS5")
    if reply:
        words = _REPLIES.get(reply, f"reply {reply}")
        raise FetchFailed("connect", words) if reply in _SITE_REPLIES else ProxyFailed("connect", words)
    size = (await reader.readexactly(1))[0] if kind == _NAME else _ADDRESS_SIZES.get(kind)
    if size is None:
        raise ProxyFailed("connect", "it answers with an address of no known kind")
    await reader.readexactly(size + 2)  # where it connects from: nobody asks
