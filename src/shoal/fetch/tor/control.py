"""TorControl: a connection to the control port of a tor, which ends when the connection does."""

from __future__ import annotations

import asyncio
import contextlib

from shoal.fetch.tor.control_reply import EVENT, MAX_LINE, BadReply, ControlReply, ReplyReader

TIMEOUT = 30.0  # seconds for one command
COOKIE_SIZE = 32  # bytes


class ControlFailed(Exception):
    """tor could not be asked, or refuses."""


class TorControl:
    """One command at a time. After a failure other than a refusal nothing more can be asked."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float = TIMEOUT) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._replies = ReplyReader()
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, port: int, timeout: float = TIMEOUT) -> TorControl:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MAX_LINE)
        except (OSError, TimeoutError) as error:
            raise ControlFailed(f"the control port {port} cannot be connected to") from error
        return cls(reader, writer, timeout)

    async def authenticate(self, cookie: bytes) -> None:
        if len(cookie) != COOKIE_SIZE:
            raise ControlFailed("the cookie of the control port cannot be read")
        await self._command(f"AUTHENTICATE {cookie.hex()}")

    async def take_ownership(self) -> None:
        """From now on tor ends as soon as this connection does."""
        await self._command("TAKEOWNERSHIP")

    async def get_info(self, name: str) -> str:
        reply = await self._command(f"GETINFO {name}")
        if name not in reply.values:
            raise ControlFailed(f"tor does not say {name}")
        return reply.values[name]

    async def new_identity(self) -> None:
        """What is asked for from now on leaves by new circuits; a second time within ten seconds tor delays it."""
        await self._command("SIGNAL NEWNYM")

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the loop may have ended
            self._writer.transport.abort()

    async def _command(self, line: str) -> ControlReply:
        if not line.isascii() or not line.isprintable():
            raise ControlFailed("that cannot be asked")
        word = line.partition(" ")[0]
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout):
                    self._writer.write(f"{line}\r\n".encode())
                    await self._writer.drain()
                    reply = await self._reply()
            except BaseException as error:
                self.close()  # what comes next might be the answer to this
                if isinstance(error, OSError | ValueError | BadReply):  # ValueError: a line without an end
                    why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
                    raise ControlFailed(f"the control port failed at {word}: {why}") from error
                raise
        if not reply.is_ok:
            raise ControlFailed(f"tor refuses {word}: {reply.status} {reply.text[:200]}")
        return reply

    async def _reply(self) -> ControlReply:
        while True:
            found = self._replies.feed(await self._reader.readline())
            if found is not None and found.status != EVENT:
                return found
