"""Idempotency: a request with a key is done once, whoever repeats it, wherever, for a day.

A key is a document. While somebody works on it, it says until when that may be believed; then it holds the
answer. Who finds it half done and forgotten goes on with it, which is why the work behind a key must itself
be such that repeating it is harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from shoal.control.tidying import Shelves
from shoal.errors import QueueUnavailable, ShoalError
from shoal.queue.base import Paper, Queue

KIND = "idempotency."  # and two letters of the name: so that nobody ever lists all of them
KEPT = 86_400.0  # seconds
HOLD = 6.0  # seconds after which one that was not heard of is taken for dead


class Reused(ShoalError):
    """The same key came with another request."""


class Busy(ShoalError):
    """Somebody is at this very request; `after` says when to ask again."""

    def __init__(self, after: float) -> None:
        super().__init__("a request with this key is being worked on")
        self.after = after


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    at: int  # when it was made, by the store's clock
    print: str = ""  # of the request; not known before a stream has been read
    until: int = 0  # not 0: being worked on, and alive until then
    holder: str = ""
    status: int = 0
    answer: Any = None


class Hold:
    """The right to work on a key. It is kept alive until it is finished or given up."""

    def __init__(self, queue: Queue, name: str, entry: Entry, version: int) -> None:
        self.seed = name  # what is made by the request may be named after it
        self._queue = queue
        self._entry = entry
        self._version = version
        self._open = True
        self._turn = asyncio.Lock()  # one change of the document at a time

    async def finish(self, status: int, answer: Any, print: str = "") -> None:
        """Keep the answer for whoever repeats the request."""
        print = print or self._entry.print
        kept = Entry(self._entry.at, print, status=status, answer=answer)
        async with self._turn:
            self._open = False
            await self._queue.swap(kind_of(self.seed), self.seed, _text(kept), self._version)

    async def give_up(self) -> None:
        """Leave no trace: the request failed, and may be put right and repeated."""
        async with self._turn:
            if self._open:
                self._open = False
                await self._queue.swap(kind_of(self.seed), self.seed, None, self._version)

    async def keep_alive(self) -> None:
        while self._open:
            await asyncio.sleep(HOLD / 3)
            with contextlib.suppress(QueueUnavailable):
                async with self._turn:
                    if not self._open or not await self._beat():
                        return

    async def _beat(self) -> bool:
        """False: another took it for dead. Both do the same then, and it keeps the answer."""
        until = await self._queue.now() + int(HOLD * 1e6)
        entry = msgspec.structs.replace(self._entry, until=until)
        won = await self._queue.swap(kind_of(self.seed), self.seed, _text(entry), self._version)
        if won is not None:
            self._entry, self._version = entry, won.version
        return won is not None


def name_of(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()


def kind_of(name: str) -> str:
    return KIND + name[:2]


async def begin(queue: Queue, name: str, print: str = "") -> Hold | Entry:
    """The right to work on it, or what it was answered; raises Reused and Busy."""
    while True:
        paper, now = await queue.paper(kind_of(name), name), await queue.now()
        known = _entry(paper)
        fresh = known is None or now - known.at > KEPT * 1e6
        if known is not None and not fresh:
            if print and known.print and print != known.print:
                raise Reused("this key came with another request before")
            if not known.until:
                return known
            if known.until > now:
                raise Busy(min(2.0, (known.until - now) / 1e6))
        entry = Entry(
            now if known is None or fresh else known.at,
            print,
            now + int(HOLD * 1e6),
            secrets.token_hex(8),
        )
        won = await queue.swap(kind_of(name), name, _text(entry), paper.version if paper else 0)
        if won is not None:
            return Hold(queue, name, entry, won.version)


@contextlib.asynccontextmanager
async def held(hold: Hold) -> AsyncIterator[Hold]:
    """Kept alive meanwhile; what was not finished is given up."""
    beating = asyncio.create_task(hold.keep_alive(), name="idempotency")
    try:
        yield hold
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        with contextlib.suppress(QueueUnavailable):
            await asyncio.shield(hold.give_up())


def shelves(queue: Queue) -> Shelves:
    """Where old keys are removed."""

    async def over(paper: Paper, now: int) -> bool:
        known = _entry(paper)
        return known is None or now - known.at > KEPT * 1e6

    return Shelves(queue, KIND, over)


def _entry(paper: Paper | None) -> Entry | None:
    if paper is None:
        return None
    try:
        return msgspec.json.decode(paper.text, type=Entry)
    except msgspec.DecodeError:
        return None


def _text(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode()
