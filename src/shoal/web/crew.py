"""Crew: worker processes of a control room itself, for runs that were left to it and not to the fleet.

They are started when there is such a run and end when there has been none for a while. Nothing about a run
is kept here: any control room of the same queue goes on with what another one left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from shoal.config import Settings
from shoal.control.runs import HERE, being_seeded, here
from shoal.control.upkeep import ODD, RUNNING
from shoal.core.run import Run
from shoal.errors import Act, Usage
from shoal.queue.base import Queue
from shoal.web.addresses import addresses_of

if TYPE_CHECKING:
    from shoal.worker.supervisor import Limits, Supervisor

log = logging.getLogger("shoal.crew")

LOOK_EVERY = 2.0  # seconds
IDLE = 60.0  # seconds without work after which the processes end
SILENT = 3  # heartbeats after which another control room's processes are taken for gone
HALF_DONE = 30.0  # seconds after which whoever filled a run is taken for dead
LONGEST_PAUSE = 30.0
MOST = 10_000  # runs looked at


class Crew:
    """Of one server. `run` it for as long as the server lives; `wake` it when a run was begun for it."""

    def __init__(self, queue: Queue, settings: Settings, *, idle: float = IDLE) -> None:
        self._queue = queue
        self._settings = settings
        self._idle = idle
        self._woken = asyncio.Event()
        self._supervisor: Supervisor | None = None
        self._runs: dict[int, Run] = {}  # for us, with work left when we last looked
        self._sown: set[int] = set()  # runs known to have all their addresses
        self._busy_at = self._again_at = -math.inf
        self._looked = self._sent_home = False

    @property
    def working(self) -> bool:
        return self._supervisor is not None

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look for work and keep processes at it, until stopped. What fails is tried again."""
        pause = LOOK_EVERY
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._check()
                try:
                    await self._turn()
                    pause = LOOK_EVERY
                except (Act, *ODD) as error:  # of the queue; processes at work wait for it as well
                    hint = error.hint if isinstance(error, Act) else "a run or document is not understood"
                    log.warning("crew_failing", extra={"error": str(error), "hint": hint})
                    pause = min(pause * 2, LONGEST_PAUSE)
                woken = asyncio.create_task(self._woken.wait())
                await asyncio.wait((stopping, woken), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        finally:
            stopping.cancel()
            await self._end()

    async def _check(self) -> None:
        """Send processes home that cannot go on; after a while others are tried."""
        try:
            if self._supervisor is not None:
                await self._supervisor.check()
        except Act as error:
            log.warning("crew_broken", extra={"error": str(error), "hint": error.hint})
            self._again_at = time.monotonic() + LONGEST_PAUSE
            await self._end()

    async def _turn(self) -> None:
        woken, first = self._woken.is_set(), not self._looked
        self._woken.clear()
        await self._look()
        self._looked = True
        self._sent_home = self._sent_home and not woken
        if self._runs:
            self._busy_at = time.monotonic()
        crew = self._supervisor
        if crew is not None:
            self._sent_home = crew.drained  # by a person, who does not want them back before the next run
            if crew.drained or (not self._runs and time.monotonic() - self._busy_at > self._idle):
                await self._end()
        elif self._runs and self._wanted and (woken or first or not await self._others()):
            await self._begin()

    @property
    def _wanted(self) -> bool:
        return not self._sent_home and time.monotonic() >= self._again_at

    async def _look(self) -> None:
        """See which runs are for us; go on with those whose server died while it filled them."""
        now = await self._queue.now()
        running = await self._queue.runs(states=RUNNING, limit=MOST)
        for run in running:
            if "api" in run.spec and run.id not in self._sown and now - run.created_at > HALF_DONE * 1e6:
                await self._fill(run)
        ours = [run for run in running if here(run)]
        stats = await self._queue.stats_of([run.id for run in ours]) if ours else []
        self._runs = {run.id: run for run, one in zip(ours, stats, strict=True) if one.open}
        self._sown &= {run.id for run in running}

    async def _fill(self, run: Run) -> None:
        if await being_seeded(self._queue, run):
            known = await addresses_of(self._queue, self._settings, run)
            if known is not None:
                log.warning("run_filled_again", extra={"run": run.name, "addresses": len(known)})
                await known.sow(self._queue, run)
        self._sown.add(run.id)

    async def _others(self) -> bool:
        """Whether processes of another control room are there to do it."""
        since = await self._queue.now() - int(SILENT * self._settings.heartbeat * 1e6)
        return any(
            HERE in mark.serves and mark.seen_at > since and mark.state != "draining"
            for mark in await self._queue.workers()
        )

    async def _begin(self) -> None:
        from shoal import app
        from shoal.crew import COMMAND, crew_size
        from shoal.fleetworker import incarnation
        from shoal.job import Duty
        from shoal.worker.supervisor import Supervisor

        name, numbers = incarnation(self._settings), itertools.count(1)
        taken: Collection[str] = {mark.id.rpartition("-")[0] for mark in await self._queue.workers()}
        while name in taken:
            name = incarnation(self._settings)
        self._supervisor = Supervisor(
            COMMAND,
            crew_size(self._settings),
            self._queue,
            app.notes_folder(self._settings),
            settings=Duty(self._settings, name, here=True).orders(),
            limits=_limits(self._settings),
            limits_of=self._limits_of(),
            names=lambda: f"{name}-{next(numbers)}",
        )
        log.info("crew_begins", extra={"worker": name})
        await self._supervisor.start()

    async def _end(self) -> None:
        crew, self._supervisor = self._supervisor, None
        if crew is not None:
            log.info("crew_ends")
            await crew.stop()

    def _limits_of(self) -> Callable[[int], Awaitable[Limits]]:
        from shoal.travelling import serving_settings

        async def limits(run: int) -> Limits:
            known = self._runs.get(run)
            with contextlib.suppress(Usage):  # the processes refuse such a run, and say why
                if known is not None:
                    return _limits(serving_settings(self._settings, known))
            return _limits(self._settings)

        return limits


def _limits(settings: Settings) -> Limits:
    from shoal.crew import crew_limits

    return crew_limits(settings, patience=math.inf)
