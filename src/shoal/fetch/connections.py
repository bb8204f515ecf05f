"""KeepAliveConnections: whether an idle connection has sent data before it was asked for any.

A server may send more than one answer to a request. libcurl gives what lies waiting on a connection that
was used within the last second to the next request; here such a connection is not used again.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

Endpoints = tuple[str, str, int, int]  # the addresses and ports of both sides: unique while it is open


class KeepAliveConnections:
    """The HTTP/1 connections in use or kept alive. HTTP/2 may always say something and is not listed."""

    def __init__(self) -> None:
        self._pending: dict[Endpoints, Callable[[int], list[tuple[int, int]]]] = {}
        self._endpoints: dict[int, Endpoints] = {}

    def register(self, endpoints: Endpoints, descriptors: list[int]) -> None:
        found = _find_descriptor(endpoints, descriptors)
        if found is None:
            return
        before = self._endpoints.get(found)
        if before is not None:
            self._pending.pop(before, None)  # it was closed, and its number given to this one
        poller = select.poll()
        poller.register(found, select.POLLIN)
        self._endpoints[found] = endpoints
        self._pending[endpoints] = poller.poll

    def has_unsolicited_data(self, endpoints: Endpoints) -> bool:
        """Has the other side sent something unasked, or closed it?"""
        pending = self._pending.get(endpoints)
        return pending is not None and bool(pending(0))


def _find_descriptor(endpoints: Endpoints, descriptors: list[int]) -> int | None:
    """Several are opened where a host has several addresses; all but one are closed again."""
    if len(descriptors) == 1:
        return descriptors[0]
    for descriptor in descriptors:
        try:
            opened = socket.socket(fileno=descriptor)
        except OSError:
            continue
        try:
            if opened.getsockname()[1] == endpoints[3]:
                return descriptor
        except (OSError, IndexError):
            continue
        finally:
            opened.detach()
    return None
