"""CurlLoop: libcurl's multi interface, moved forward by the asyncio loop."""

from __future__ import annotations

import asyncio
from math import inf

import pycurl

from shoal.errors import FetchFailed

_IN, _OUT = pycurl.POLL_IN, pycurl.POLL_OUT  # the same bits as CSELECT_IN and CSELECT_OUT

TransferResult = tuple[int, str]  # libcurl's code and message; (0, "") when it went well
_OK: TransferResult = (0, "")


class CurlLoop:
    """Runs curl handles on the loop it was made on; a future per transfer."""

    def __init__(self, *, idle_connections: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: dict[pycurl.Curl, asyncio.Future[TransferResult]] = {}
        self._sockets: dict[int, int] = {}
        self._wakeup: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._deadline = inf
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, idle_connections)

    def start(self, curl: pycurl.Curl) -> asyncio.Future[TransferResult]:
        future: asyncio.Future[TransferResult] = self._loop.create_future()
        self._multi.add_handle(curl)
        self._running[curl] = future
        return future

    @property
    def is_idle(self) -> bool:
        return not self._running

    def resume(self, curl: pycurl.Curl) -> None:
        """Go on with a paused transfer; harmless if it has ended."""
        if curl in self._running:
            try:
                curl.pause(pycurl.PAUSE_CONT)
            except pycurl.error as error:  # what was waiting is delivered at once, and we refused it
                self._end(curl, (error.args[0], error.args[1]))

    def end(self, curl: pycurl.Curl, result: TransferResult) -> None:
        """End a transfer as if libcurl had; harmless if it has."""
        if curl in self._running:
            self._end(curl, result)

    def stop(self, curl: pycurl.Curl) -> None:
        """Break off a transfer; harmless if it has ended."""
        if self._running.pop(curl, None) is not None:
            self._multi.remove_handle(curl)

    def close(self) -> None:
        for curl, future in list(self._running.items()):
            self.stop(curl)
            if not future.done():
                future.set_exception(FetchFailed("closed", "the fetcher was closed"))
        self._multi.close()
        for fd in list(self._sockets):
            self._on_socket(pycurl.POLL_REMOVE, fd, None, None)
        for handle in (self._wakeup, self._timer):
            if handle is not None:
                handle.cancel()

    def _socket_action(self, fd: int, events: int) -> None:
        _, running = self._multi.socket_action(fd, events)
        if running < len(self._running):
            self._collect_finished()

    def _collect_finished(self) -> None:
        left = 1
        while left:
            left, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._end(curl, _OK)
            for curl, code, message in failed:
                self._end(curl, (code, message))

    def _end(self, curl: pycurl.Curl, result: TransferResult) -> None:
        future = self._running.pop(curl)
        self._multi.remove_handle(curl)
        if not future.done():
            future.set_result(result)

    # Called by libcurl, from within _act, start or stop: must not call back into it.

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        wanted = 0 if what == pycurl.POLL_REMOVE else what
        changed = self._sockets.get(fd, 0) ^ wanted
        if changed & _IN:
            if wanted & _IN:
                self._loop.add_reader(fd, self._socket_action, fd, _IN)
            else:
                self._loop.remove_reader(fd)
        if changed & _OUT:
            if wanted & _OUT:
                self._loop.add_writer(fd, self._socket_action, fd, _OUT)
            else:
                self._loop.remove_writer(fd)
        if wanted:
            self._sockets[fd] = wanted
        else:
            self._sockets.pop(fd, None)

    def _on_timer(self, milliseconds: int) -> None:
        if milliseconds == 0:
            if self._wakeup is None:
                self._wakeup = self._loop.call_soon(self._wake)
            return
        # A timer that would fire too early is left alone: it looks at the deadline again. libcurl
        # moves its timeouts with every transfer, and scheduling each of them costs more than that.
        self._deadline = self._loop.time() + milliseconds / 1000 if milliseconds > 0 else inf
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer_at <= self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._tick)

    def _wake(self) -> None:
        self._wakeup = None
        self._socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, inf
        if self._loop.time() >= self._deadline:
            self._deadline = inf
            self._socket_action(pycurl.SOCKET_TIMEOUT, 0)
        else:
            self._set_timer()
