"""The embedded server: a dashboard beside a command that does something else, for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from shoal.config.load import Settings
from shoal.config.parsers import DEFAULT_LISTEN
from shoal.errors import ShoalError, UsageError
from shoal.web.http.listen import bind_socket, socket_url

log = logging.getLogger("shoal.web")
STOP_TIMEOUT = 15.0  # seconds


@contextmanager
def dashboard(settings: Settings) -> Iterator[str]:
    """Serve the queue's dashboard from a thread; its URL, at which it answers in a moment."""
    listen_socket = _bind(settings.dashboard or DEFAULT_LISTEN)
    server = _EmbeddedServer(replace(settings, listen=settings.dashboard or DEFAULT_LISTEN), listen_socket)
    server.start()
    try:
        yield socket_url(listen_socket)
    finally:
        server.stop()


def _bind(place: str) -> socket.socket:
    """Where it was asked for; somewhere else if only the usual place was meant and that is taken."""
    try:
        return bind_socket(place)
    except UsageError:
        if place != DEFAULT_LISTEN:
            raise
        return bind_socket("127.0.0.1:0")


class _EmbeddedServer:
    """A thread with a loop of its own: what it serves cannot hold up the command."""

    def __init__(self, settings: Settings, listen_socket: socket.socket) -> None:
        self._settings = settings
        self._listen_socket = listen_socket
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None and self._stop_requested is not None:
            with suppress(RuntimeError):  # it could not serve, and its loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop_requested.set)
        self._thread.join(STOP_TIMEOUT)
        self._listen_socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except ShoalError as error:
            hint = getattr(error, "hint", "")
            log.warning("dashboard_failed", extra={"error": str(error), "hint": hint})

    async def _serve(self) -> None:
        from shoal.web.server import Server  # late, and in this thread: it takes a while

        self._stop_requested, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if self._stopped.is_set():
            return
        async with Server(self._settings, listen_socket=self._listen_socket) as server:
            ended = asyncio.create_task(server.stopped())
            asked = asyncio.create_task(self._stop_requested.wait())
            if self._stopped.is_set():
                self._stop_requested.set()
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            server.stop()
            await ended
