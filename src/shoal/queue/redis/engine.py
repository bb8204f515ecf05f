"""Engine: scripts on the server, a connection that comes back, and errors in our words.

Every verb is one script, and every script may be repeated: a reply that was lost with its connection
is asked for again.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import hiredis

from shoal.errors import Act, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.redis.address import Address
from shoal.queue.redis.wire import Wire

OLDEST = (6, 2)
VERSION = 1  # of the layout of keys
PATIENCE = 20.0  # seconds to wait for a server that was there before
_USES = "-- uses: "  # the first line of a verb's script names the pieces that go before it


@cache
def script(verb: str) -> tuple[str, str]:
    """The text of a verb's script with the shared pieces before it, and its digest."""
    folder = files(__package__).joinpath("lua")
    own = folder.joinpath(f"{verb}.lua").read_text("utf-8")
    names = own.partition("\n")[0].removeprefix(_USES).split()
    pieces = [folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names]
    text = "\n".join([*pieces, own])
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Engine:
    def __init__(self, address: Address, *, clock: Callable[[], int] | None = None) -> None:
        self.address = address
        self.prefix = f"{{{address.namespace}}}:"
        self.clock = clock
        self.aof = ""  # how often the server's log reaches its disk; empty: it keeps none
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def start(self) -> None:
        """Connect once, and refuse a server that cannot keep the promises."""
        try:
            self._wire = await self._connect()
            about = _parse_info(await self._plain("INFO"))
            self._check_server(about)
            await self._check_layout()
            if about.get("aof_enabled") == "1":
                self.aof = await self._fsync()
        except (OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def _fsync(self) -> str:
        answer = await self._ask(("CONFIG", "GET", "appendfsync"))
        return "everysec" if isinstance(answer, hiredis.ReplyError) or not answer else answer[1].decode()

    def _check_server(self, about: dict[str, str]) -> None:
        version = about.get("redis_version", "0.0")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise QueueRefused(
                f"{self.address} is Redis {version}, shoal needs 6.2 or newer", hint="upgrade the server"
            )
        policy = about.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise QueueRefused(
                f"{self.address} throws data away when its memory is full (maxmemory-policy {policy}):"
                " tasks would be lost",
                hint="CONFIG SET maxmemory-policy noeviction, and the same line in redis.conf",
            )

    async def _check_layout(self) -> None:
        meta = f"{self.prefix}meta"
        await self._plain("HSETNX", meta, "version", VERSION)
        have = int(await self._plain("HGET", meta, "version"))
        if have > VERSION:
            raise QueueRefused(
                f"{self.address} was written by a newer shoal (layout {have}, this one knows {VERSION})",
                hint="upgrade this installation, or use another namespace (?namespace=…)",
            )

    async def run(self, verb: str, *arguments: Any) -> Any:
        """The answer of a verb's script; asked for again where the connection was lost on the way."""
        text, digest = script(verb)
        now = "" if self.clock is None else self.clock()
        command = ("EVALSHA", digest, 1, f"{self.prefix}meta", now, *arguments)
        answer = await self._ask(command)
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
            answer = await self._ask(("EVAL", text, *command[2:]))
        return self._checked(answer)

    async def read(self, command: str, key: str, *arguments: Any) -> Any:
        """A plain command on one key of the namespace."""
        return self._checked(await self._ask((command, self.prefix + key, *arguments)))

    async def now(self) -> int:
        if self.clock is not None:
            return self.clock()
        seconds, micros = self._checked(await self._ask(("TIME",)))
        return int(seconds) * 1_000_000 + int(micros)

    async def _ask(self, command: tuple[Any, ...]) -> Any:
        began: float | None = None
        while True:
            try:
                wire = self._wire
                if wire is None or not wire.is_open:
                    wire = await self._reconnect()
                answer = await wire.send(*command)
                if not isinstance(answer, hiredis.ReplyError) or not _passes(str(answer)):
                    return answer
                problem: Exception = answer
            except (OSError, TimeoutError) as error:
                problem = error
            began = began or time.monotonic()
            if time.monotonic() - began > PATIENCE:
                raise self._unreachable(problem) from problem
            await asyncio.sleep(0.02 + 0.1 * random.random())

    async def _reconnect(self) -> Wire:
        async with self._connecting:
            if self._closed:
                raise QueueUnavailable("the queue was closed", hint="open it again")
            if self._wire is None or not self._wire.is_open:
                self._wire = await self._connect()
            return self._wire

    async def _connect(self) -> Wire:
        to = self.address
        wire = await Wire.open(
            to.host, to.port, path=to.path, tls=ssl.create_default_context() if to.tls else None
        )
        try:
            if to.password:
                words = (to.user, to.password) if to.user else (to.password,)
                self._checked(await wire.send("AUTH", *words))
            if to.database:
                self._checked(await wire.send("SELECT", to.database))
        except BaseException:
            wire.close()
            raise
        return wire

    async def _plain(self, *command: Any) -> Any:
        return self._checked(await self._ask(command))

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, hiredis.ReplyError):
            raise self.translated(answer) from answer
        return answer

    def translated(self, error: Exception) -> Act:
        """The one mapping from the server's errors to ours."""
        text, where = str(error), self.address
        code = text.split(" ", 1)[0]
        if code == "OOM":
            return QueueFull(
                f"the memory of Redis at {where} is full",
                hint="raise maxmemory, or remove old runs (`shoal purge`); nothing is lost",
            )
        if code == "READONLY":
            return QueueReadOnly(
                f"{where} is a replica and cannot be written", hint="give the address of the primary server"
            )
        if code == "MISCONF":
            return QueueReadOnly(
                f"{where} takes no changes, since it cannot save to its disk",
                hint="look at the server's log and disk; nothing is lost",
            )
        if code in ("NOAUTH", "WRONGPASS", "NOPERM") or "invalid password" in text or "AUTH" in code:
            return QueueRefused(
                f"{where} does not let us in: {text}",
                hint="check user and password in the address of the queue",
            )
        if code in ("MOVED", "ASK", "CROSSSLOT"):
            return QueueRefused(
                f"{where} is one node of a Redis Cluster, and this namespace is kept on another",
                hint="give the address of that node, or use a server of its own",
            )
        return QueueUnavailable(f"{where}: {text}", hint="see `shoal doctor`")

    def _unreachable(self, error: Exception) -> Act:
        if isinstance(error, hiredis.ReplyError):
            return self.translated(error)
        reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
        return QueueUnavailable(
            f"Redis at {self.address} cannot be reached: {reason}", hint="start it, or check --queue"
        )

    def close(self) -> None:
        self._closed = True
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _passes(text: str) -> bool:
    """Refusals of a server that is starting or busy, which time heals."""
    return text.startswith(("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN"))


def _parse_info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
