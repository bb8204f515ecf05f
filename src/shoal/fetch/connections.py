"""Connections: whether a kept connection has something to say before it was asked.

A server may send more than one answer to a request. libcurl gives what lies waiting on a connection that
was used within the last second to the next request; here such a connection is not used again.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

Ends = tuple[str, str, int, int]  # the addresses and ports of both sides: unique while it is open


class Connections:
    """The HTTP/1 connections in use or kept alive. HTTP/2 may always say something and is not listed."""

    def __init__(self) -> None:
        self._pending: dict[Ends, Callable[[int], list[tuple[int, int]]]] = {}
        self._ends: dict[int, Ends] = {}

    def opened(self, ends: Ends, descriptors: list[int]) -> None:
        found = _descriptor_of(ends, descriptors)
        if found is None:
            return
        before = self._ends.get(found)
        if before is not None:
            self._pending.pop(before, None)  # it was closed, and its number given to this one
        looking = select.poll()
        looking.register(found, select.POLLIN)
        self._ends[found] = ends
        self._pending[ends] = looking.poll

    def spoilt(self, ends: Ends) -> bool:
        """Has the other side sent something unasked, or closed it?"""
        pending = self._pending.get(ends)
        return pending is not None and bool(pending(0))


def _descriptor_of(ends: Ends, descriptors: list[int]) -> int | None:
    """Several are opened where a host has several addresses; all but one are closed again."""
    if len(descriptors) == 1:
        return descriptors[0]
    for descriptor in descriptors:
        try:
            opened = socket.socket(fileno=descriptor)
        except OSError:
            continue
        try:
            if opened.getsockname()[1] == ends[3]:
                return descriptor
        except (OSError, IndexError):
            continue
        finally:
            opened.detach()
    return None
