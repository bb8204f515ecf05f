"""Crawl: drives one run to its end, whoever does the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from shoal.control import runs
from shoal.control.report import Progress, RunUi
from shoal.core.lane import LaneState, Pace
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.task import Task
from shoal.errors import QueueUnavailable, Usage
from shoal.queue.base import Queue, TaskView

LOOK_EVERY = 0.25
EXPORT_EVERY = 1.0
ADD_AT_ONCE = 1000
LANES_SHOWN = 200
STUCK_SHOWN = 3


class Crew(Protocol):
    """Whoever works on the run: child processes, or this very process."""

    async def start(self) -> None: ...

    async def check(self) -> int:
        """How many are at work; raises if they cannot go on."""
        ...

    async def stop(self) -> None:
        """Hand back what is unfinished and end."""
        ...


class Output(Protocol):
    async def drain(self) -> int: ...


class Feed(Protocol):
    """Addresses that are still being added while the run goes on."""

    async def run(self) -> object: ...


class Crawl:
    def __init__(
        self,
        queue: Queue,
        run: Run,
        crew: Crew,
        *,
        output: Output | None = None,
        ui: RunUi | None = None,
        feed: Feed | None = None,
        patience: float = 0.0,
    ) -> None:
        """patience: seconds that the queue may be out of reach before the crawl gives up."""
        self.queue = queue
        self.run = run
        self._crew = crew
        self._output = output
        self._ui = ui
        self._feed = feed
        self._patience = patience
        self._reached = time.monotonic()
        self._feeding: asyncio.Task[object] | None = None
        self._stopped = asyncio.Event()
        self._lanes: tuple[LaneState, ...] = ()
        self._lanes_due = 0.0
        self._exported = 0.0

    def stop(self) -> None:
        self._stopped.set()

    async def seed(self, tasks: Sequence[Task], paces: dict[str, Pace]) -> tuple[int, int]:
        """Add all start addresses; adding them again after a crash changes nothing. Says (new, known)."""
        new = 0
        for first in range(0, len(tasks), ADD_AT_ONCE):
            batch = tasks[first : first + ADD_AT_ONCE]
            new += (await self.queue.add(self.run.id, batch, paces)).count("added")
        await runs.sown(self.queue, self.run.name)
        return new, len(tasks) - new

    async def drive(self) -> Stats:
        """Work until nothing is open, the run was ended by somebody, or we were stopped."""
        await self._crew.start()
        if self._feed:
            self._feeding = asyncio.create_task(self._feed.run(), name="seed")
        try:
            while not self._stopped.is_set():
                workers = await self._crew.check()
                try:
                    if await self._over(workers):
                        break
                except QueueUnavailable:
                    if time.monotonic() - self._reached > self._patience:
                        raise
                else:
                    self._reached = time.monotonic()
                await self._pause()
        finally:
            try:
                await self._stop_feeding()
            finally:
                await self._crew.stop()
        if self._output:  # before the end: a run is finished when nothing of it waits anywhere
            await self._output.drain()
        await self._finish()
        return await runs.account(self.queue, self.run)

    async def _over(self, workers: int) -> bool:
        """Look at the run, show it and copy what is new; whether there is nothing left to do."""
        stats = await self.queue.stats(self.run.id)
        ended = await self._ended()
        await self._show(stats, workers)
        fed = self._fed()
        if ended or (not stats.open and fed and not await runs.being_seeded(self.queue, self.run)):
            return True
        if self._output and time.monotonic() - self._exported > EXPORT_EVERY:
            await self._output.drain()
            self._exported = time.monotonic()
        return False

    def _fed(self) -> bool:
        """Whether every address was added; raises what kept it from being so."""
        if self._feeding is None:
            return True
        if self._feeding.done():
            self._feeding.result()
            return True
        return False

    async def _stop_feeding(self) -> None:
        if self._feeding is None:
            return
        if not self._feeding.done():
            self._feeding.cancel()
            await asyncio.wait([self._feeding])
        if not self._feeding.cancelled():
            self._feeding.exception()  # looked at: what is told is whatever went wrong first

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _show(self, stats: Stats, workers: int) -> None:
        if self._ui is None:
            return
        began = time.monotonic()
        if began >= self._lanes_due:
            self._lanes = tuple(await self.queue.lanes(run=self.run.id, limit=LANES_SHOWN))
            # Ranking a hundred thousand hosts takes a while: it may take a twentieth of our time, no more.
            self._lanes_due = began + 20 * (time.monotonic() - began)
        stuck: Sequence[TaskView] = ()
        if stats.delayed and not stats.leased and stats.ready == stats.delayed:
            stuck = await self.queue.look(self.run.id, state="delayed", limit=STUCK_SHOWN)
        self._ui.update(
            Progress(
                stats,
                self._lanes,
                await self.queue.now(),
                workers,
                paused=self.run.state == "paused",
                stuck=tuple(stuck),
            )
        )

    async def _ended(self) -> bool:
        """Whether somebody else cancelled it, or its page limit did."""
        self.run = await self._fresh()
        return self.run.state in ("finished", "cancelled")

    async def _finish(self) -> None:
        stats = await self.queue.stats(self.run.id)
        self.run = await self._fresh()
        fed = self._feeding is None or (self._feeding.done() and not self._feeding.cancelled())
        if stats.open or not fed or self.run.state not in ("running", "paused"):
            return
        if not await runs.being_seeded(self.queue, self.run):
            self.run = await self.queue.set_run(self.run.id, "finish")

    async def _fresh(self) -> Run:
        found = await self.queue.runs(name=self.run.name, limit=1)
        if not found:
            raise Usage(f"run {self.run.name} was removed while it was worked on", hint="start it again")
        return found[0]
