"""The listening socket of a server; connections wait in its backlog until the server is ready."""

from __future__ import annotations

import socket

from shoal.errors import UsageError

BACKLOG = 4096  # connections that may wait to be accepted


def bind_socket(listen: str) -> socket.socket:
    """A socket that listens at "127.0.0.1:8080"; port 0 is any free one."""
    host, _, port = listen.rpartition(":")
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
    except OSError as error:
        raise _cannot_listen(listen, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise _cannot_listen(listen, error) from error
    made.setblocking(False)
    return made


def socket_url(listen_socket: socket.socket) -> str:
    host, port = listen_socket.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _cannot_listen(listen: str, error: OSError) -> UsageError:
    return UsageError(
        f"Cannot listen on {listen}: {error.strerror}",
        hint="choose another port (0 is any free one), or stop the process that uses it",
    )
