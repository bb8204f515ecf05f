"""Listening: the socket of a server. Whoever connects from then on is answered, if only in a moment."""

from __future__ import annotations

import socket

from shoal.errors import Usage

BACKLOG = 4096  # connections that may wait to be accepted


def bound(listen: str) -> socket.socket:
    """A socket that listens at "127.0.0.1:8080"; port 0 is any free one."""
    host, _, port = listen.rpartition(":")
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
    except OSError as error:
        raise _not_here(listen, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise _not_here(listen, error) from error
    made.setblocking(False)
    return made


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _not_here(listen: str, error: OSError) -> Usage:
    return Usage(
        f"{listen} cannot be listened on: {error.strerror}",
        hint="another port (0 is any free one), or stop what listens there",
    )
