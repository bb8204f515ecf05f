"""Lock: one process of the whole fleet at a time, by a document in the queue that must be renewed.

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

from shoal.errors import Act, RunBusy
from shoal.queue.base import Paper, Queue

KIND = "lock"
LASTS = 30.0
RENEW_EVERY = 5.0


class Holder(msgspec.Struct, frozen=True):
    """Who has a lock; without a token nobody has it."""

    token: str = ""
    host: str = ""  # for people: machines and containers may share a name
    pid: int = 0
    since: int = 0  # by the store's clock
    until: int = 0
    place: str = ""  # where its number is the number of a process
    born: str = ""  # tells it from a later process of that number

    def died_here(self) -> bool:
        """Whether it is certain that the holder is gone: it was a process that we would see."""
        if not self.place or self.place != here():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        born = _born(self.pid)
        return bool(self.born and born) and born != self.born


@cache
def here() -> str:
    """This machine since it was started, and this numbering of processes: containers have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def _born(pid: int) -> str:
    """When a process began, in ticks; empty where that cannot be known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _me(now: int, until: int) -> Holder:
    pid = os.getpid()
    return Holder(secrets.token_hex(8), socket.gethostname(), pid, now, until, here(), _born(pid))


class Lock:
    def __init__(self, queue: Queue, name: str, what: str, paper: Paper, lasts: float) -> None:
        self.lost = False
        self._queue = queue
        self._name = name
        self._what = what
        self._paper = paper
        self._lasts = lasts
        self._renewed = time.monotonic()

    @classmethod
    async def take(cls, queue: Queue, name: str, what: str, *, lasts: float = LASTS) -> Lock:
        """Take a lock, or say who has it."""
        known = await queue.paper(KIND, name)
        now = await queue.now()
        holder = _holder(known)
        if holder.token and holder.until > now and not holder.died_here():
            raise _busy(what, holder, now)
        mine = _me(now, now + _micro(lasts))
        paper = await queue.swap(KIND, name, _text(mine), known.version if known else 0)
        if paper is None:
            paper = await queue.paper(
                KIND, name
            )  # somebody was quicker; or it was us, and the answer was lost
            if paper is None or _holder(paper).token != mine.token:
                raise _busy(what, _holder(paper), now)
        return cls(queue, name, what, paper, lasts)

    async def keep(self, on_lost: Callable[[], None]) -> None:
        """Renew it for as long as this goes on; calls `on_lost` once when it is somebody else's."""
        while not self.lost:
            await asyncio.sleep(min(RENEW_EVERY, self._lasts / 6))
            try:
                async with asyncio.timeout(self._lasts / 3):
                    self.lost = not await self._renew()
            except (Act, TimeoutError):  # whatever it is: a lock that is not renewed is somebody else's soon
                self.lost = time.monotonic() - self._renewed > self._lasts * 2 / 3
        on_lost()

    async def release(self) -> None:
        """Give it up; harmless if it is not ours any more."""
        if not self.lost:
            await self._queue.swap(KIND, self._name, None, self._paper.version)

    async def gone(self) -> RunBusy:
        """The error that says who has it now."""
        holder = _holder(await self._queue.paper(KIND, self._name))
        return _busy(self._what, holder, await self._queue.now())

    async def _renew(self) -> bool:
        now = await self._queue.now()
        mine = _holder(self._paper)
        text = _text(msgspec.structs.replace(mine, until=now + _micro(self._lasts)))
        paper = await self._queue.swap(KIND, self._name, text, self._paper.version)
        if paper is None:
            paper = await self._queue.paper(KIND, self._name)
            if paper is None or _holder(paper).token != mine.token:
                return False
        self._paper, self._renewed = paper, time.monotonic()
        return True


async def only_here(queue: Queue, mode: str, scraper: str, key: str, what: str, *, file: bool) -> Lock | None:
    """What keeps others away: a single scraper runs once in the fleet, any other run is driven by one.

    file: the queue is a file of this machine, where a lock on a file does the latter.
    """
    if mode == "single":
        return await Lock.take(queue, f"scraper/{scraper}", what)
    return None if file else await Lock.take(queue, f"run/{key}", what)


@contextlib.asynccontextmanager
async def kept(lock: Lock | None, on_lost: Callable[[], None]) -> AsyncIterator[None]:
    """Keep a lock while something is done; raises RunBusy afterwards if it was lost."""
    if lock is None:
        yield
        return
    keeping = asyncio.create_task(lock.keep(on_lost), name="keep-lock")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    if lock.lost:
        raise await lock.gone()


async def held(queue: Queue, name: str) -> Holder | None:
    """Who has a lock now, None if nobody does."""
    holder = _holder(await queue.paper(KIND, name))
    return holder if holder.token and holder.until > await queue.now() else None


async def forget_locks(queue: Queue, older_than: float) -> None:
    """Remove locks whose holders died so many seconds ago, and that nobody wanted since."""
    before = await queue.now() - _micro(older_than)
    for paper in await queue.papers(KIND):
        if _holder(paper).until < before:
            await queue.swap(KIND, paper.name, None, paper.version)


def _holder(paper: Paper | None) -> Holder:
    try:
        return msgspec.json.decode(paper.text, type=Holder) if paper else Holder()
    except msgspec.DecodeError:
        return Holder()  # nobody's


def _text(holder: Holder) -> str:
    return msgspec.json.encode(holder).decode()


def _micro(seconds: float) -> int:
    return int(seconds * 1e6)


def _busy(what: str, holder: Holder, now: int) -> RunBusy:
    who = f" on {holder.host} (process {holder.pid})" if holder.host else ""
    left = max(0.0, (holder.until - now) / 1e6)
    return RunBusy(
        f"{what} is being run{who}",
        hint=f"watch it with `shoal status`, or stop that process first; if it died, in {left:.0f} s again",
    )
