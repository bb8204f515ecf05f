"""Aside: a control room beside a command that does something else, for as long as it does."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from shoal.config import Settings
from shoal.errors import ShoalError, Usage
from shoal.settings import LISTEN
from shoal.web.listening import address_of, bound

log = logging.getLogger("shoal.web")
END_WITHIN = 15.0  # seconds


@contextmanager
def dashboard(settings: Settings) -> Iterator[str]:
    """Serve the queue's control room from a thread; its address, at which it answers in a moment."""
    listening = _bound(settings.dashboard or LISTEN)
    room = _Aside(replace(settings, listen=settings.dashboard or LISTEN), listening)
    room.start()
    try:
        yield address_of(listening)
    finally:
        room.stop()


def _bound(place: str) -> socket.socket:
    """Where it was asked for; somewhere else if only the usual place was meant and that is taken."""
    try:
        return bound(place)
    except Usage:
        if place != LISTEN:
            raise
        return bound("127.0.0.1:0")


class _Aside:
    """A thread with a loop of its own: what it serves cannot hold up the command."""

    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._work, name="dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None and self._ending is not None:
            with suppress(RuntimeError):  # it could not serve, and its loop has ended by itself
                self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(END_WITHIN)
        self._listening.close()

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except ShoalError as error:
            hint = getattr(error, "hint", "")
            log.warning("dashboard_failed", extra={"error": str(error), "hint": hint})

    async def _serve(self) -> None:
        from shoal.web.server import Server  # late, and in this thread: it takes a while

        self._ending, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if self._stopped.is_set():
            return
        async with Server(self._settings, listening=self._listening) as server:
            ended = asyncio.create_task(server.stopped())
            asked = asyncio.create_task(self._ending.wait())
            if self._stopped.is_set():
                self._ending.set()
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            server.stop()
            await ended
