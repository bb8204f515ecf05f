"""The URLs of a request, stored with its run as they were written, so that each can be accounted for.

The list is stored before the run starts: any server can resume the seeding of a run whose server died.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence

import msgspec

from shoal.config.load import Settings
from shoal.control.document_gc import ShardSweeper
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.identity import finish_seeding
from shoal.runs.start import TaskBatches, add_tasks
from shoal.runs.url_policy import UrlPolicy, run_settings
from shoal.web.submit.turns import Turns

BATCH_SIZE = 250
ORPHANED_AFTER = 3600.0  # seconds after which a list without a run is taken for forgotten
REFUSED_PREFIX = "refused: private address"


class StoredUrls(msgspec.Struct, frozen=True, omit_defaults=True):
    urls: tuple[str, ...]


class UrlList:
    """A list of URLs: each becomes a task, or has a reason why it does not."""

    def __init__(self, stored: StoredUrls, settings: Settings) -> None:
        self.stored = stored
        self._policy = UrlPolicy(settings, refused=REFUSED_PREFIX)

    def __len__(self) -> int:
        return len(self.stored.urls)

    async def _classify(self, first: int) -> list[tuple[str, Task | str]]:
        """Some of them, as they were written, each with its task or the reason why it has none."""
        found, turns = list[tuple[str, Task | str]](), Turns()
        for number, url in enumerate(self.stored.urls[first : first + BATCH_SIZE], first + 1):
            found.append((url, self._task(number, url)))
            await turns.pause()
        return found

    def _task(self, number: int, url: str) -> Task | str:
        made = self._policy.make_task(number, url)
        return f"not fetched: {made}" if isinstance(made, str) and not made.startswith(REFUSED_PREFIX) else made

    async def in_batches(self) -> AsyncIterator[Sequence[tuple[str, Task | str]]]:
        """All of them, some at a time, so that nobody else has to wait."""
        for first in range(0, len(self), BATCH_SIZE):
            yield await self._classify(first)
            await asyncio.sleep(0)

    async def add_to_run(self, queue: Queue, run: Run) -> int:
        """Put all of them into the run; those that are there already stay. Says how many are new."""
        added = await add_tasks(queue, run, self.batches())
        await finish_seeding(queue, run.name)
        return added.added

    async def batches(self) -> TaskBatches:
        """Those that can be fetched, as tasks."""
        async for some in self.in_batches():
            tasks = [task for _, task in some if isinstance(task, Task)]
            yield tasks, self._policy.paces(tasks)


async def store(queue: Queue, run: str, stored: StoredUrls) -> None:
    """Keep a list for a run of this name, which is to begin."""
    text = await asyncio.to_thread(_packed, stored)  # ten thousand long URLs take a moment
    known = await queue.document(_kind(run), run)
    await queue.compare_and_swap(_kind(run), run, text, known.version if known else 0)


async def urls_of_run(queue: Queue, own: Settings, run: Run) -> UrlList | None:
    """The URLs that a run was begun with; None if it did not begin here."""
    document = await queue.document(_kind(run.name), run.name)
    return None if document is None else UrlList(_read(document), await run_settings(queue, own, run))


def _kind(run: str) -> str:
    return kinds.URL_LIST + hashlib.sha256(run.encode()).hexdigest()[:2]


def _packed(stored: StoredUrls) -> str:
    return b64encode(zlib.compress(msgspec.json.encode(stored), 6)).decode()


def _read(document: Document) -> StoredUrls:
    return msgspec.json.decode(zlib.decompress(b64decode(document.text)), type=StoredUrls)


def shelves(queue: Queue) -> ShardSweeper:
    """Where the lists of runs are removed that were removed themselves."""

    async def is_expired(document: Document, now: int) -> bool:
        if now - document.made_at < ORPHANED_AFTER * 1e6:
            return False
        return not any(run.name == document.name for run in await queue.runs(name=document.name, limit=1))

    return ShardSweeper(queue, kinds.URL_LIST, is_expired)
