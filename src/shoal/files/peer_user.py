"""The peer's user: whose process is at the other end of a connection from this machine."""

from __future__ import annotations

import os
import socket
import struct
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

Endpoint = tuple[str, int]
NOBODY = -1  # it is closed already: what the system says of such a connection is not whose it was
_TABLES = (("/proc/net/tcp", False), ("/proc/net/tcp6", True))
_UID_COLUMN, _INODE_COLUMN = 6, 8  # counted from the local address on, without it

# One question to the kernel (inet_diag) takes microseconds; its tables take milliseconds to read.
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUESTION = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCKET_ID = struct.Struct("!HH16s16sI8s")  # ports, addresses, interface, cookie
_ANSWER = struct.Struct("=BBBB")  # family, state, timer, retransmissions; the socket's id follows
_COUNTERS = struct.Struct("=IIIII")  # expires, rqueue, wqueue, uid, inode
_ANY_COOKIE = b"\xff" * 8
_TIMEOUT = 1.0  # seconds

is_supported = sys.platform == "linux" and os.access(_TABLES[0][0], os.R_OK)


def peer_uid(client: Endpoint, server: Endpoint) -> int | None:
    """The user id of the process that connected from `client` to `server`; None if the system does not say.

    Asked while the connection is open: once it is closed, its port may be another user's.
    """
    try:
        return _asked_uid(client, server)
    except (OSError, ValueError):
        return _listed_uid(client, server)


def _asked_uid(client: Endpoint, server: Endpoint) -> int | None:
    """Raises OSError where the kernel does not answer such questions, or knows no such connection."""
    local, remote = _plain_address(client), _plain_address(server)
    if local.version != remote.version:
        raise ValueError(client)
    family = socket.AF_INET if local.version == 4 else socket.AF_INET6
    wanted = (client[1], server[1], local.packed.ljust(16, b"\0"), remote.packed.ljust(16, b"\0"))
    body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + _SOCKET_ID.pack(*wanted, 0, _ANY_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT)
        kernel.sendto(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body, (0, 0))
        answer = kernel.recv(8_192)
    start = _HEADER.size + _ANSWER.size
    if len(answer) < start + _SOCKET_ID.size + _COUNTERS.size or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        raise OSError("no such connection")
    if _SOCKET_ID.unpack_from(answer, start)[:4] != wanted:
        raise OSError("another connection")  # somebody who listens at that port
    *_, uid, inode = _COUNTERS.unpack_from(answer, start + _SOCKET_ID.size)
    return int(uid) if inode else NOBODY


def _listed_uid(client: Endpoint, server: Endpoint) -> int | None:
    for path, wide in _TABLES:
        try:
            row = b" " + _spell(client, wide) + b" " + _spell(server, wide) + b" "
            table = Path(path).read_bytes()
        except (OSError, ValueError):
            continue
        at = table.find(row)
        if at >= 0:
            columns = table[at:].split(None, _INODE_COLUMN + 1)
            return int(columns[_UID_COLUMN]) if columns[_INODE_COLUMN] != b"0" else NOBODY
    return None


def _plain_address(endpoint: Endpoint) -> IPv4Address | IPv6Address:
    address = ip_address(endpoint[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _spell(endpoint: Endpoint, wide: bool) -> bytes:
    """An address and a port as the kernel writes them: words of four bytes, each the other way round."""
    address = _plain_address(endpoint)
    if wide and isinstance(address, IPv4Address):
        address = IPv6Address(f"::ffff:{address}")
    if not wide and isinstance(address, IPv6Address):
        raise ValueError(endpoint)
    packed = address.packed
    words = (packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    if sys.byteorder == "big":
        words = (word[::-1] for word in words)
    return f"{b''.join(words).hex().upper()}:{endpoint[1]:04X}".encode()
