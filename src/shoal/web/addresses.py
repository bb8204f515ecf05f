"""Addresses: those of a call, kept with its run as they were written, so that each can be accounted for.

The list is kept before the run begins: whoever finds a run whose server died while it was filled goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence

import msgspec

from shoal.config import Settings
from shoal.control.runs import sown
from shoal.control.tidying import Shelves
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.queue.base import Paper, Queue
from shoal.web.door import Door, run_settings

KIND = "addresses."  # and two letters: so that nobody ever lists all of them
AT_ONCE = 250  # addresses between two moments in which others get their turn
ORPHANED = 3600.0  # seconds after which a list without a run is taken for forgotten
REFUSED = "refused: private address"


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    urls: tuple[str, ...]
    priority: int = 0


class Addresses:
    """A list of addresses, and how each becomes a task, or why it does not."""

    def __init__(self, kept: Kept, settings: Settings) -> None:
        self.kept = kept
        self._door = Door(settings, refused=REFUSED)

    def __len__(self) -> int:
        return len(self.kept.urls)

    def judge(self, first: int, count: int = AT_ONCE) -> list[tuple[str, Task | str]]:
        """Some of them, as they were written, each with its task or the reason why it has none."""
        some = self.kept.urls[first : first + count]
        return [(url, self._task(number, url)) for number, url in enumerate(some, first + 1)]

    def _task(self, number: int, url: str) -> Task | str:
        made = self._door.task(number, url, self.kept.priority)
        return f"not fetched: {made}" if isinstance(made, str) and not made.startswith(REFUSED) else made

    async def sow(self, queue: Queue, run: Run) -> int:
        """Put all of them into the run; those that are there already stay. Says how many are new."""
        added = 0
        for first in range(0, len(self), AT_ONCE):
            tasks = [task for _, task in self.judge(first) if isinstance(task, Task)]
            if tasks:
                added += (await queue.add(run.id, tasks, self._door.paces(tasks))).count("added")
            await asyncio.sleep(0)
        await sown(queue, run.name)
        return added


async def keep(queue: Queue, run: str, kept: Kept) -> None:
    """Keep a list for a run of this name, which is to begin."""
    text = await asyncio.to_thread(_packed, kept)  # ten thousand long addresses take a moment
    known = await queue.paper(_kind(run), run)
    await queue.swap(_kind(run), run, text, known.version if known else 0)


async def addresses_of(queue: Queue, own: Settings, run: Run) -> Addresses | None:
    """The addresses that a run was begun with; None if it did not begin here."""
    paper = await queue.paper(_kind(run.name), run.name)
    return None if paper is None else Addresses(_read(paper), await run_settings(queue, own, run))


def _kind(run: str) -> str:
    return KIND + hashlib.sha256(run.encode()).hexdigest()[:2]


def _packed(kept: Kept) -> str:
    return b64encode(zlib.compress(msgspec.json.encode(kept), 6)).decode()


def _read(paper: Paper) -> Kept:
    return msgspec.json.decode(zlib.decompress(b64decode(paper.text)), type=Kept)


def shelves(queue: Queue) -> Shelves:
    """Where the lists of runs are removed that were removed themselves."""

    async def over(paper: Paper, now: int) -> bool:
        if now - paper.made_at < ORPHANED * 1e6:
            return False
        return not any(run.name == paper.name for run in await queue.runs(name=paper.name, limit=1))

    return Shelves(queue, KIND, over)


async def in_turns(addresses: Addresses) -> AsyncIterator[Sequence[tuple[str, Task | str]]]:
    """All of them, some at a time, so that nobody else has to wait."""
    for first in range(0, len(addresses), AT_ONCE):
        yield addresses.judge(first)
        await asyncio.sleep(0)
