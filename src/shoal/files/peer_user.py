"""The peer's user: whose process is at the other end of a connection from this machine."""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

Endpoint = tuple[str, int]
_TABLES = (("/proc/net/tcp", False), ("/proc/net/tcp6", True))
_UID_COLUMN = 7  # counted from the local address on, without it

is_supported = sys.platform == "linux" and os.access(_TABLES[0][0], os.R_OK)


def peer_uid(client: Endpoint, server: Endpoint) -> int | None:
    """The user id of the process that connected from `client` to `server`; None if the system does not say.

    Asked while the connection is open: once it is closed, its port may be another user's.
    """
    for path, wide in _TABLES:
        try:
            row = b" " + _spell(client, wide) + b" " + _spell(server, wide) + b" "
            table = Path(path).read_bytes()
        except (OSError, ValueError):
            continue
        at = table.find(row)
        if at >= 0:
            return int(table[at:].split(None, _UID_COLUMN)[_UID_COLUMN - 1])
    return None


def _spell(endpoint: Endpoint, wide: bool) -> bytes:
    """An address and a port as the kernel writes them: words of four bytes, each the other way round."""
    address = ip_address(endpoint[0].partition("%")[0])
    if wide and isinstance(address, IPv4Address):
        address = IPv6Address(f"::ffff:{address}")
    if not wide and isinstance(address, IPv6Address):
        raise ValueError(endpoint)
    packed = address.packed
    words = (packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    if sys.byteorder == "big":
        words = (word[::-1] for word in words)
    return f"{b''.join(words).hex().upper()}:{endpoint[1]:04X}".encode()
