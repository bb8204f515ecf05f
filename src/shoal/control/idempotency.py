"""Idempotency keys: for a day, a request with a key is done once, whoever repeats it and wherever.

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

from shoal.control.document_gc import ShardSweeper
from shoal.errors import QueueUnavailable, ShoalError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue

RETENTION = 86_400.0  # seconds
LOCK_TTL = 6.0  # seconds after which one that was not heard of is taken for dead


class KeyReused(ShoalError):
    """The same key came with another request."""


class RequestInProgress(ShoalError):
    """Somebody is at this very request; `after` says when to ask again."""

    def __init__(self, after: float) -> None:
        super().__init__("a request with this key is in progress")
        self.after = after


class IdempotencyEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    at: int  # when it was made, by the store's clock
    fingerprint: str = ""  # of the request; not known before a stream has been read
    until: int = 0  # not 0: being worked on, and alive until then
    holder: str = ""
    status: int = 0
    answer: Any = None


class KeyLock:
    """The right to work on a key. It is kept alive until it is finished or given up."""

    def __init__(self, queue: Queue, name: str, entry: IdempotencyEntry, version: int) -> None:
        self.seed = name  # what is made by the request may be named after it
        self._queue = queue
        self._entry = entry
        self._version = version
        self._open = True
        self._write_lock = asyncio.Lock()  # one change of the document at a time

    async def finish(self, status: int, answer: Any, fingerprint: str = "") -> None:
        """Keep the answer for whoever repeats the request."""
        fingerprint = fingerprint or self._entry.fingerprint
        kept = IdempotencyEntry(self._entry.at, fingerprint, status=status, answer=answer)
        async with self._write_lock:
            self._open = False
            await self._queue.compare_and_swap(document_kind(self.seed), self.seed, _encode(kept), self._version)

    async def give_up(self) -> None:
        """Leave no trace: the request failed, and may be put right and repeated."""
        async with self._write_lock:
            if self._open:
                self._open = False
                await self._queue.compare_and_swap(document_kind(self.seed), self.seed, None, self._version)

    async def keep_alive(self) -> None:
        while self._open:
            await asyncio.sleep(LOCK_TTL / 3)
            with contextlib.suppress(QueueUnavailable):
                async with self._write_lock:
                    if not self._open or not await self._renew():
                        return

    async def _renew(self) -> bool:
        """False: another took it for dead. Both do the same then, and it keeps the answer."""
        until = await self._queue.now() + int(LOCK_TTL * 1e6)
        entry = msgspec.structs.replace(self._entry, until=until)
        won = await self._queue.compare_and_swap(document_kind(self.seed), self.seed, _encode(entry), self._version)
        if won is not None:
            self._entry, self._version = entry, won.version
        return won is not None


def document_name(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()


def document_kind(name: str) -> str:
    return kinds.IDEMPOTENCY + name[:2]


async def acquire(queue: Queue, name: str, fingerprint: str = "") -> KeyLock | IdempotencyEntry:
    """The right to work on it, or what it was answered; raises Reused and Busy."""
    while True:
        document, now = await queue.document(document_kind(name), name), await queue.now()
        known = _decode_entry(document)
        fresh = known is None or now - known.at > RETENTION * 1e6
        if known is not None and not fresh:
            if fingerprint and known.fingerprint and fingerprint != known.fingerprint:
                raise KeyReused("this key was used with another request before")
            if not known.until:
                return known
            if known.until > now:
                raise RequestInProgress(min(2.0, (known.until - now) / 1e6))
        entry = IdempotencyEntry(
            now if known is None or fresh else known.at, fingerprint, now + int(LOCK_TTL * 1e6), secrets.token_hex(8)
        )
        won = await queue.compare_and_swap(
            document_kind(name), name, _encode(entry), document.version if document else 0
        )
        if won is not None:
            return KeyLock(queue, name, entry, won.version)


@contextlib.asynccontextmanager
async def keep_locked(lock: KeyLock) -> AsyncIterator[KeyLock]:
    """Kept alive meanwhile; what was not finished is given up."""
    renewal = asyncio.create_task(lock.keep_alive(), name="idempotency")
    try:
        yield lock
    finally:
        renewal.cancel()
        await asyncio.wait([renewal])
        with contextlib.suppress(QueueUnavailable):
            await asyncio.shield(lock.give_up())


def key_sweeper(queue: Queue) -> ShardSweeper:
    """Removes old keys."""

    async def is_expired(document: Document, now: int) -> bool:
        known = _decode_entry(document)
        return known is None or now - known.at > RETENTION * 1e6

    return ShardSweeper(queue, kinds.IDEMPOTENCY, is_expired)


def _decode_entry(document: Document | None) -> IdempotencyEntry | None:
    if document is None:
        return None
    try:
        return msgspec.json.decode(document.text, type=IdempotencyEntry)
    except msgspec.DecodeError:
        return None


def _encode(entry: IdempotencyEntry) -> str:
    return msgspec.json.encode(entry).decode()
