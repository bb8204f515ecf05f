"""Reading: a list that goes into its run while the first of its pages are fetched already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal import app
from shoal.config import Settings
from shoal.control.patience import patiently
from shoal.control.runs import sown
from shoal.control.seeding import Report, Seeding, words
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.sources.open import Input
from shoal.store.beside import RejectedFile

AT_FIRST = 1.0  # seconds in which a short list is read before anything is said of it


class Reading:
    def __init__(
        self,
        queue: Queue,
        run: Run,
        seeding: Seeding,
        given: Input,
        rejected: str,
        say: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._run = run
        self._seeding = seeding
        self._given = given
        self._rejected = rejected
        self._say = say
        self._said = False
        self._work: asyncio.Task[Report] | None = None

    @classmethod
    async def begin(
        cls,
        queue: Queue,
        run: Run,
        given: Input,
        settings: Settings,
        *,
        rejects: Path,
        called: str = "",
        priority: int = 0,
        say: Callable[[str], None] = lambda text: None,
    ) -> Reading:
        """rejects: where lines go that lead to no request; called: that file's name for people."""
        seeding = Seeding(
            queue,
            run,
            given.source,
            settings.state_folder,
            pace=app.pace_rule(settings),
            rejects=lambda size: RejectedFile(rejects, size, csv_safe=settings.csv_safe),
            rewrite=app.rewrite_rule(settings),
            priority=priority,
            patience=app.patience_of(settings),
        )
        await seeding.prepare()
        return cls(queue, run, seeding, given, called, say)

    @property
    def report(self) -> Report:
        """What became of the lines read so far."""
        return self._seeding.report

    @property
    def done(self) -> bool:
        return self._seeding.done

    def stop(self) -> None:
        """End after the batch under way; the same command goes on from there."""
        self._seeding.stop()

    @property
    def paces(self) -> frozenset[Pace]:
        """Of the hosts of the list, as far as it was read."""
        return self._seeding.paces

    async def soon(self) -> None:
        """Begin, and give a short list the time to be read."""
        self._work = asyncio.create_task(self._seeding.run(), name="read-list")
        done, _ = await asyncio.wait([self._work], timeout=AT_FIRST)
        for work in done:
            work.result()  # what keeps it from being read is said before anything is fetched

    def notes(self) -> Iterator[str]:
        if self._seeding.done:
            self._said = True
            yield self._words()
        else:
            yield f"Reading {self._given.source.name} while its first pages are fetched."

    async def run(self) -> Report:
        if self._work is None:
            self._work = asyncio.create_task(self._seeding.run(), name="read-list")
        report = await self._work
        if self._seeding.done:
            await patiently(lambda: sown(self._queue, self._run.name))
        if not self._said:
            self._say(self._words())
        if self._seeding.done and self._given.spooled is not None:
            self._given.spooled.unlink(missing_ok=True)
        return report

    def _words(self) -> str:
        return words(self._seeding.report, self._given.source, self._rejected)
