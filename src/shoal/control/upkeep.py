"""Upkeep: what a fleet needs done now and then. Any number may do it at once; one is enough."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from shoal.control.history import History
from shoal.control.lock import forget_locks
from shoal.control.registry import STALE_AFTER
from shoal.control.runs import alone, being_seeded
from shoal.core.run import Run, RunState
from shoal.core.typed import PREFIX
from shoal.errors import Act, ShoalError
from shoal.queue.base import REAP_EVERY, Queue

log = logging.getLogger("shoal.upkeep")

FINISH_EVERY = 0.5
SCHEDULE_EVERY = 1.0
RELAY_EVERY = 1.0
HISTORY_EVERY = 5.0  # so that no slot of it is missed
LAST = 2.0  # seconds for the last sample when we end
PURGE_EVERY = 3600.0
LONGEST_PAUSE = 30.0  # seconds between two tries of what keeps failing
MANY = 10_000
RUNNING: tuple[RunState, ...] = ("running",)
EMPTY_FOR = 10.0  # seconds in which a run without any task may still get its first
SILENT = 86_400.0  # seconds after which a worker that is gone leaves the registry
ALIVE = 60.0  # seconds; who was silent for longer has no share in the upkeep
REGISTRY_EVERY = 30.0
CROWD = 16  # workers from which on each does its upkeep less often, so that all together do it as often
RAREST = 60.0  # seconds: a crowd that is gone in a moment leaves its work to few
REPAIRED_FOR = 3600.0  # likewise one that a schedule began: another may have to finish what it started
# What comes of a run or document that another version made, or that somebody who may write there made up.
ODD = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)
AFTER_MIDNIGHT = timedelta(minutes=10)  # producers' clocks may be behind


class Relay(Protocol):
    """Whoever carries records to the store."""

    async def drain_all(self, *, seconds: float = 5.0) -> int: ...


class Duty:
    """One thing to be done again and again."""

    def __init__(self, name: str, every: float, work: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self.every = every
        self.work = work
        self.failing = ""

    async def once(self) -> bool:
        """False if it failed in a way that a person or time may heal; that is said once."""
        try:
            await self.work()
        except (Act, *ODD) as error:
            words = str(error) if isinstance(error, Act) else f"{type(error).__name__}: {error}"
            if words != self.failing:
                hint = error.hint if isinstance(error, Act) else "a run or document is not understood"
                log.warning("upkeep_failing", extra={"duty": self.name, "error": words, "hint": hint})
            self.failing = words
            return False
        self.failing = ""
        return True


class Upkeep:
    def __init__(
        self,
        queue: Queue,
        *,
        reap: bool = True,  # False where a supervisor does it anyway
        retention: float = 0.0,  # seconds after which ended runs are removed; 0: never
        tidy: Callable[[], Awaitable[object]] | None = None,  # after a removal, on this machine
        tick: Callable[[Queue, int], Awaitable[object]] | None = None,  # schedules
        relay: Relay | None = None,
        stale_after: float = STALE_AFTER,  # seconds of silence after which a worker is stale
        more: Sequence[Duty] = (),  # what whoever does the upkeep has to do besides
    ) -> None:
        self._queue = queue
        self._retention = retention
        self._tidy = tidy
        self._tick = tick
        self.reached_at = time.monotonic()  # when the queue last answered
        self._stored = relay is not None
        self._history = History(queue, stale_after=stale_after)
        self._share = 1.0
        self._duties = [
            Duty("registry", REGISTRY_EVERY, self.tidy_registry),
            Duty("finish", FINISH_EVERY, self.finish_empty),
            Duty("history", HISTORY_EVERY, self._history.note),
        ]
        if reap:
            self._duties.append(Duty("reap", REAP_EVERY, queue.reap))
        if retention:
            self._duties.append(Duty("purge", PURGE_EVERY, self._purge))
        if tick is not None:
            self._duties.append(Duty("schedules", SCHEDULE_EVERY, self._run_schedules))
        if relay is not None:
            self._duties.append(Duty("store", RELAY_EVERY, relay.drain_all))
        self._duties += more

    async def run(self, stop: asyncio.Event) -> None:
        """Do everything in its time until stopped. What fails is tried again; nothing here ends a worker."""
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                group.create_task(self._again_and_again(duty, stop), name=duty.name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await Duty("history", HISTORY_EVERY, lambda: self._history.note(final=True)).once()

    async def _again_and_again(self, duty: Duty, stop: asyncio.Event) -> None:
        pause = duty.every
        while not stop.is_set():
            if await duty.once():
                pause = self._pause(duty.every) * random.uniform(0.75, 1.25)
                self.reached_at = time.monotonic()
            else:
                pause = min(LONGEST_PAUSE, max(1.0, pause * 2)) if pause < PURGE_EVERY else LONGEST_PAUSE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()

    def _pause(self, every: float) -> float:
        return min(every * self._share, max(every, RAREST))

    async def once(self) -> None:
        """Every duty once, whatever became of the others."""
        for duty in self._duties:
            await duty.once()

    async def tidy_registry(self) -> None:
        """Forget workers that vanished long ago, and see how many share the upkeep."""
        marks, now = await self._queue.workers(), await self._queue.now()
        for mark in marks:
            if now - mark.seen_at > SILENT * 1e6:
                await self._queue.forget_worker(mark.id)
        alive = sum(now - mark.seen_at < ALIVE * 1e6 for mark in marks)
        self._share = max(1.0, alive / CROWD)

    async def finish_empty(self) -> int:
        """Finish runs in which nothing is open and to which nobody adds any more; says how many."""
        finished, now = 0, 0
        for run in await self._queue.runs(states=RUNNING, limit=MANY):
            if alone(run):
                continue  # whoever started it finishes it
            now = now or await self._queue.now()
            if await self._over(run, now):
                with contextlib.suppress(ShoalError):  # work was added, or another was quicker
                    await self._queue.set_run(run.id, "finish")
                    finished += 1
        return finished

    async def _over(self, run: Run, now: int) -> bool:
        stats = await self._queue.stats(run.id)
        if stats.open or (self._stored and stats.records > stats.trimmed) or not _may_end(run, now):
            return False
        if await being_seeded(self._queue, run):
            return False
        # Only now: what was added before the mark went is in this account.
        stats = await self._queue.stats(run.id)
        if not stats.seen:
            grace = REPAIRED_FOR if run.key.startswith("schedule/") else EMPTY_FOR
            return now - run.created_at > grace * 1e6
        return not stats.open

    async def _purge(self) -> None:
        if await self._queue.purge(older_than=self._retention) and self._tidy is not None:
            await self._tidy()
        await forget_locks(self._queue, SILENT)

    async def _run_schedules(self) -> None:
        assert self._tick is not None
        await self._tick(self._queue, await self._queue.now())


def _may_end(run: Run, now: int) -> bool:
    """A standing run of typed tasks, scraper task:TYPE and key task:TYPE/2026-11-15, ends with its day."""
    if not run.scraper.startswith(PREFIX):
        return True
    try:
        day = datetime.strptime(run.key.rpartition("/")[2], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return True
    return datetime.fromtimestamp(now / 1e6, UTC) > day + timedelta(days=1) + AFTER_MIDNIGHT
