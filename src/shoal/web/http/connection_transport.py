"""ConnectionTransport: what a server writes to a connection, and how it ends one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

LINGER = 1.0  # seconds for which what still comes is thrown away after the last word
WRITE_AT_ONCE = 65_536  # bytes that are not kept back for what may follow


class ConnectionTransport:
    """A transport that sends what is written in one turn of the loop as one, and lets whoever still sends read it.

    The head of a response with its body: a server that is killed has sent all or nothing of a short response, and a
    proxy can ask another one. It is one system call instead of two, too.
    """

    def __init__(self, transport: asyncio.Transport, still_sending: Callable[[], bool]) -> None:
        self._transport = transport
        self._still_sending = still_sending
        self._lingering = False
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > WRITE_AT_ONCE:  # by that its writer is made to wait for a slow reader
            self._flush()

    def writelines(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.write(part)

    def _flush(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and not self._transport.is_closing():
            self._transport.writelines(unsent)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def is_closing(self) -> bool:
        return self._lingering or self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        if self._lingering or self._transport.is_closing() or not self._still_sending():
            self._transport.close()
            return
        # Closed at once, the system would answer what still comes with a reset, and our answer were lost.
        self._lingering = True
        self._transport.resume_reading()
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, self._transport.close)
