"""Feeder: asks the queue for work, as rarely as the pace of the worker allows and never without pause."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Iterable
from typing import Protocol

from shoal.core.task import Claim
from shoal.worker.buffer import Buffer, Held
from shoal.worker.leases import Leases
from shoal.worker.patience import Patience
from shoal.worker.plan import Plan
from shoal.worker.settler import PASSING
from shoal.worker.tools import Tools

log = logging.getLogger("shoal.worker")

POLL_MIN, POLL_MAX = 0.05, 1.0  # how often an idle worker asks; wake-ups are hints, this is the guarantee
SHORTEST = 0.005
AHEAD = 0.25  # seconds of work kept at hand beyond what is being worked on
AHEAD_MIN = 4
HINT_FOR = 30.0  # seconds that one wait for a wake-up lasts
HINT_GAP, HINT_GAP_MAX = 0.05, 1.0  # between two claims that wake-ups led to, longer while they are in vain
TRUSTED_TRIP = 0.25  # of the spacing: an answer that took longer says too little about when its slots are


class Work(Protocol):
    """What the feeder needs to know of its worker."""

    @property
    def running(self) -> int: ...
    @property
    def places(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def blocked(self) -> bool: ...
    @property
    def at_rest(self) -> bool: ...


class Feeder:
    def __init__(self, tools: Tools, plan: Plan, leases: Leases, buffer: Buffer, work: Work) -> None:
        self._tools = tools
        self._plan = plan
        self._leases = leases
        self._buffer = buffer
        self._work = work
        self._bell = asyncio.Event()
        self._stopped = False
        self._paused = False
        self._hint: asyncio.Task[None] | None = None
        self._gap = HINT_GAP
        self._more = True  # the last claim was full: there is probably more
        self._rate = 0.0
        self._counted = 0
        self._counted_at = tools.clock()

    def ring(self) -> None:
        """There may be work: found links were committed, or a place of a lane has become free."""
        if not self._bell.is_set() and self._wanted() > 0:
            self._bell.set()

    def low(self) -> None:
        """A task was taken from the buffer; ask for more in time, if there was more the last time."""
        if self._more:
            self.ring()

    def stop(self) -> None:
        self._stopped = True
        self._end_hint()
        self._bell.set()

    def pause(self, paused: bool) -> None:
        """Ask for no more work until further notice."""
        self._paused = paused
        self._bell.set()

    async def run(self) -> None:
        """Feed until stopped, or until there is nothing open any more."""
        pause = POLL_MIN
        while not self._stopped:
            self._bell.clear()
            limit = self._wanted()
            if limit <= 0:
                await self._nap(POLL_MAX)
                continue
            claim = await self._claim(limit, fresh=pause > POLL_MIN)
            if claim is None:
                return
            self._more = len(claim.tasks) >= limit or any(task.lost for task in claim.tasks)
            if self._more:
                pause = POLL_MIN
                continue
            if not claim.tasks and await self._is_over():
                return
            pause = POLL_MIN if claim.tasks else min(pause * 2, POLL_MAX)
            # Half of the pause is drawn, so that idle workers do not ask in step.
            if not claim.tasks and self._plan.hints:
                self._listen()
            await self._nap(min(pause * (0.5 + self._tools.jitter() / 2), _or(claim.next_in, POLL_MAX)))

    def _wanted(self) -> int:
        """How many tasks to ask for now; 0 while there is enough at hand."""
        if self._work.blocked or self._stopped or self._paused:
            return 0
        soon, ahead = self._buffer.soon(AHEAD), self._ahead()
        if soon > ahead // 4:
            return 0
        places = self._work.places
        room = places + ahead - self._work.running - soon
        wanted = max(0, min(room, 4 * places - len(self._buffer.later)))
        return min(wanted, self._plan.batch_size) if self._plan.batch_size else wanted

    def _ahead(self) -> int:
        return min(2 * self._plan.concurrency, max(AHEAD_MIN, int(self._rate * AHEAD)))

    async def _claim(self, limit: int, *, fresh: bool) -> Claim | None:
        """One batch. A lost answer is asked for again by the same id: the tasks in it are ours already.

        fresh: there was nothing the last time, so look for runs that have just begun, too.
        """
        tools, plan = self._tools, self._plan
        request, sent = uuid.uuid4().hex, math.inf
        patience = Patience(tools.clock, plan.patience)
        while True:
            try:
                serves = plan.serves if tools.roster is None else await tools.roster.serves(fresh=fresh)
                if serves == ():
                    return Claim(0)
                now = tools.clock()
                sent = min(sent, now)  # of the first try: that may be the one that was heard
                claim = await tools.queue.claim(
                    tools.worker, limit, lease=plan.lease, serves=serves, request_id=request
                )
            except PASSING as error:
                if self._stopped:
                    return None
                if (pause := patience.pause()) is None:
                    raise
                if patience.tries == 1:
                    log.warning("claim_failing", extra={"error": str(error)})
                self._bell.clear()
                await self._nap(pause * (0.5 + tools.jitter() / 2))
            else:
                tools.figures.asked(tools.clock() - now)
                self._accept(claim, sent)
                return claim

    def _accept(self, claim: Claim, sent: float) -> None:
        now = self._tools.clock()
        self._measure(now)
        if not claim.tasks:
            return
        self._gap = HINT_GAP
        self._leases.take(claim, sent)
        self._tools.note.add(claimed=len(claim.tasks))
        self._tools.note.hold(self._leases.numbers)
        self._buffer.put(self._held(claim, now, now - sent))

    def _held(self, claim: Claim, now: float, trip: float) -> Iterable[Held]:
        for task in claim.tasks:
            missed = task.spacing and trip > max(task.spacing * TRUSTED_TRIP, 0.01)
            yield Held(task, -math.inf if missed else now + task.start_in)

    def _measure(self, now: float) -> None:
        """Pages per second, smoothed; it decides how much to keep at hand."""
        seconds = now - self._counted_at
        if seconds < 0.1:
            return
        finished = self._work.finished
        self._rate = (self._rate + (finished - self._counted) / seconds) / 2
        self._counted, self._counted_at = finished, now

    async def _is_over(self) -> bool:
        if not self._plan.stop_when_empty or not self._work.at_rest:
            return False
        queue = self._tools.queue
        try:
            runs = self._plan.runs or [run.id for run in await queue.runs(states=("running", "paused"))]
            for run in runs:
                if (await queue.stats(run)).open:
                    return False
        except PASSING:
            return False
        return self._work.at_rest

    def _listen(self) -> None:
        """Have the queue ring the bell when there may be work; the pauses stay as they are without it."""
        if self._hint is None or self._hint.done():
            self._hint = asyncio.create_task(self._hear(), name="hint")

    async def _hear(self) -> None:
        with contextlib.suppress(*PASSING):
            await self._tools.queue.wait(HINT_FOR)
            self._bell.set()
        await asyncio.sleep(self._gap)
        self._gap = min(HINT_GAP_MAX, 2 * self._gap)

    def _end_hint(self) -> None:
        if self._hint is not None:
            self._hint.cancel()

    async def _nap(self, seconds: float) -> None:
        if self._bell.is_set():
            return
        timer = asyncio.get_running_loop().call_later(max(seconds, SHORTEST), self._bell.set)
        try:
            await self._bell.wait()
        finally:
            timer.cancel()


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
