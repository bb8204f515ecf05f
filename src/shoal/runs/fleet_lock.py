"""A lock for one process in the whole fleet: a document in the queue that must be renewed.

Only the store's clock says whether a lock is still held. A document's version never comes again, so a
holder who slept through its own time cannot mistake somebody else's lock for its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import msgspec

from shoal.errors import ActionRequired, RunBusy
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue

LOCK_TTL = 30.0
RENEW_EVERY = 5.0


class LockHolder(msgspec.Struct, frozen=True):
    """Who has a lock; without a token nobody has it."""

    token: str = ""
    host: str = ""  # for people: machines and containers may share a name
    pid: int = 0
    since: int = 0  # by the store's clock
    until: int = 0
    place: str = ""  # where its number is the number of a process
    born: str = ""  # tells it from a later process of that number

    def has_died_locally(self) -> bool:
        """Whether it is certain that the holder is gone: it was a process that we would see."""
        if not self.place or self.place != process_namespace():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        born = process_start(self.pid)
        return (bool(self.born and born) and born != self.born) or is_zombie(self.pid)


@cache
def process_namespace() -> str:
    """This machine since it was started, and this numbering of processes: containers have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def process_start(pid: int) -> str:
    """When a process began, in ticks; empty where that cannot be known."""
    return _process_field(pid, 19)


def is_zombie(pid: int) -> bool:
    """Whether it has ended, and whoever started it has not noticed yet."""
    return _process_field(pid, 0) == "Z"


def _process_field(pid: int, index: int) -> str:
    """Of what the system says about a process, behind its name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[index]
    except (OSError, IndexError):
        return ""


def _new_holder(now: int, until: int) -> LockHolder:
    pid = os.getpid()
    return LockHolder(
        secrets.token_hex(8), socket.gethostname(), pid, now, until, process_namespace(), process_start(pid)
    )


class FleetLock:
    def __init__(self, queue: Queue, name: str, what: str, document: Document, ttl: float) -> None:
        self.lost = False
        self._queue = queue
        self._name = name
        self._what = what
        self._document = document
        self._ttl = ttl
        self._renewed = time.monotonic()

    @classmethod
    async def acquire(cls, queue: Queue, name: str, what: str, *, ttl: float = LOCK_TTL) -> FleetLock:
        """Take a lock, or say who has it."""
        known = await queue.document(kinds.LOCK, name)
        now = await queue.now()
        holder = _decode(known)
        if holder.token and holder.until > now and not holder.has_died_locally():
            raise _busy_error(what, holder, now)
        mine = _new_holder(now, now + _microseconds(ttl))
        document = await queue.compare_and_swap(kinds.LOCK, name, _encode(mine), known.version if known else 0)
        if document is None:
            # Somebody was quicker; or it was us, and the answer was lost.
            document = await queue.document(kinds.LOCK, name)
            if document is None or _decode(document).token != mine.token:
                raise _busy_error(what, _decode(document), now)
        return cls(queue, name, what, document, ttl)

    async def renew_until_lost(self, on_lost: Callable[[], None]) -> None:
        """Renew it for as long as this goes on; calls `on_lost` once when it is somebody else's."""
        while not self.lost:
            await asyncio.sleep(min(RENEW_EVERY, self._ttl / 6))
            try:
                async with asyncio.timeout(self._ttl / 3):
                    self.lost = not await self._renew()
            # Whatever it is: a lock that is not renewed is somebody else's soon.
            except (ActionRequired, TimeoutError):
                self.lost = time.monotonic() - self._renewed > self._ttl * 2 / 3
        on_lost()

    async def release(self) -> None:
        """Give it up; harmless if it is not ours any more."""
        if not self.lost:
            await self._queue.compare_and_swap(kinds.LOCK, self._name, None, self._document.version)

    async def lost_error(self) -> RunBusy:
        """The error that says who has it now."""
        holder = _decode(await self._queue.document(kinds.LOCK, self._name))
        return _busy_error(self._what, holder, await self._queue.now())

    async def _renew(self) -> bool:
        now = await self._queue.now()
        mine = _decode(self._document)
        text = _encode(msgspec.structs.replace(mine, until=now + _microseconds(self._ttl)))
        document = await self._queue.compare_and_swap(kinds.LOCK, self._name, text, self._document.version)
        if document is None:
            document = await self._queue.document(kinds.LOCK, self._name)
            if document is None or _decode(document).token != mine.token:
                return False
        self._document, self._renewed = document, time.monotonic()
        return True


async def acquire_exclusive(
    queue: Queue, mode: str, scraper: str, key: str, what: str, *, file: bool, ttl: float = LOCK_TTL
) -> FleetLock | None:
    """What keeps others away: a single scraper runs once in the fleet, any other run is driven by one.

    file: the queue is a file of this machine, where a lock on a file does the latter.
    """
    if mode == "single":
        return await FleetLock.acquire(queue, f"scraper/{scraper}", what, ttl=ttl)
    return None if file else await FleetLock.acquire(queue, f"run/{key}", what, ttl=ttl)


@contextlib.asynccontextmanager
async def keep_renewed(lock: FleetLock | None, on_lost: Callable[[], None]) -> AsyncIterator[None]:
    """Keep a lock while something is done; raises RunBusy afterwards if it was lost."""
    if lock is None:
        yield
        return
    keeping = asyncio.create_task(lock.renew_until_lost(on_lost), name="keep-lock")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    if lock.lost:
        raise await lock.lost_error()


async def current_holder(queue: Queue, name: str) -> LockHolder | None:
    """Who has a lock now, None if nobody does."""
    holder = _decode(await queue.document(kinds.LOCK, name))
    return holder if holder.token and holder.until > await queue.now() else None


async def remove_expired_locks(queue: Queue, older_than: float) -> None:
    """Remove locks whose holders died so many seconds ago, and that nobody wanted since."""
    before = await queue.now() - _microseconds(older_than)
    for document in await queue.documents(kinds.LOCK):
        if _decode(document).until < before:
            await queue.compare_and_swap(kinds.LOCK, document.name, None, document.version)


def _decode(document: Document | None) -> LockHolder:
    try:
        return msgspec.json.decode(document.text, type=LockHolder) if document else LockHolder()
    except msgspec.DecodeError:
        return LockHolder()  # nobody's


def _encode(holder: LockHolder) -> str:
    return msgspec.json.encode(holder).decode()


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)


def _busy_error(what: str, holder: LockHolder, now: int) -> RunBusy:
    who = f" on {holder.host} (process {holder.pid})" if holder.host else ""
    left = max(0.0, (holder.until - now) / 1e6)
    return RunBusy(
        f"{what} is already running{who}",
        hint=f"watch it with `shoal status`, or stop that process first; if it died, retry in {left:.0f} s",
    )
