"""Settler: collects outcomes and settles many in one commit, one commit at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import Outcome, Verdict
from shoal.errors import QueueFull, QueueReadOnly, QueueUnavailable, ShoalError
from shoal.queue.base import FOUND_CAP, Queue
from shoal.worker.patience import Patience

log = logging.getLogger("shoal.worker")

LINGER = 0.005  # how long an outcome may wait for company
BATCH = 200
BATCH_BYTES = 8_000_000
FOUND_TOGETHER = 500  # found tasks of one commit, unless a single page has more
BACKLOG = 1_000  # outcomes waiting; above this no task is started
BACKLOG_BYTES = 32_000_000
PASSING = (QueueUnavailable, QueueFull, QueueReadOnly)  # a person or time may heal these; nothing is lost

Settled = Callable[[Sequence[Outcome], Sequence[Verdict]], None]
Paces = Callable[[Sequence[Outcome]], Mapping[str, Pace] | None]


def parts(outcome: Outcome) -> Iterator[Outcome]:
    """An outcome with more found tasks than one commit should carry: those go first, in chunks."""
    found = outcome.found
    if len(found) <= FOUND_CAP:
        yield outcome
        return
    last = (len(found) - 1) // FOUND_CAP * FOUND_CAP
    for start in range(0, last, FOUND_CAP):
        chunk = found[start : start + FOUND_CAP]
        yield Outcome(task=outcome.task, lease=outcome.lease, result="part", found=chunk)
    yield msgspec.structs.replace(outcome, found=found[last:])


class Settler:
    def __init__(
        self,
        queue: Queue,
        *,
        clock: Callable[[], float],
        settled: Settled,
        paces: Paces,
        company: int,
        patience: float,
        keep: Callable[[], Awaitable[None]] | None = None,
        asked: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._settled = settled
        self._paces = paces
        self._company = company  # outcomes that are worth a commit without waiting for more
        self._patience = patience
        self._keep = keep  # awaited before a settle: what the outcomes speak of is made durable
        self._asked = asked  # told how long the queue took to answer
        self._waiting: deque[tuple[Outcome, asyncio.Future[None] | None]] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._enough = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()
        self._relieved = asyncio.Event()
        self._failing = False  # the queue does not take outcomes at the moment

    @property
    def full(self) -> bool:
        """No task should be started: its outcome could not be kept."""
        return self._failing or len(self._waiting) > BACKLOG or self._bytes > BACKLOG_BYTES

    async def room(self) -> None:
        while self.full:
            self._relieved.clear()
            await self._relieved.wait()

    @property
    def idle(self) -> bool:
        return self._none.is_set()

    async def keep(self, outcome: Outcome) -> None:
        """Return when the outcome is settled: until then its task is in flight and takes up a place."""
        kept = asyncio.get_running_loop().create_future()
        self.put(outcome, kept)
        await kept

    def put(self, outcome: Outcome, kept: asyncio.Future[None] | None = None) -> None:
        *first, last = parts(outcome)
        self._waiting.extend((part, None) for part in first)
        self._waiting.append((last, kept))
        self._bytes += _weight(outcome)
        self._none.clear()
        self._some.set()
        if len(self._waiting) >= self._company:
            self._enough.set()

    async def flushed(self) -> None:
        """Return when everything put so far is settled."""
        await self._none.wait()

    async def run(self) -> None:
        """Settle until cancelled; raises when the queue stays out of reach."""
        while True:
            await self._some.wait()
            if len(self._waiting) < self._company:
                self._enough.clear()
                timer = asyncio.get_running_loop().call_later(LINGER, self._enough.set)
                await self._enough.wait()
                timer.cancel()
            while self._waiting:
                batch, kept = self._next_batch()
                await self._settle(batch)
                for waiter in kept:
                    if not waiter.done():
                        waiter.set_result(None)
            self._some.clear()
            self._none.set()
            self._relieved.set()

    def _next_batch(self) -> tuple[list[Outcome], list[asyncio.Future[None]]]:
        batch: list[Outcome] = []
        waiters: list[asyncio.Future[None]] = []
        weight = found = 0
        while self._waiting and len(batch) < BATCH:
            outcome, kept = self._waiting[0]
            weight += _weight(outcome)
            found += len(outcome.found)
            if batch and (weight > BATCH_BYTES or found > FOUND_TOGETHER):
                break
            self._waiting.popleft()
            self._bytes -= _weight(outcome)
            batch.append(outcome)
            if kept is not None:
                waiters.append(kept)
        return batch, waiters

    async def _settle(self, batch: list[Outcome]) -> None:
        try:
            verdicts = await self._persist(batch)
        except ShoalError:
            raise
        except Exception as error:  # noqa: BLE001 - settled here, one by one
            if len(batch) == 1:
                await self._settle_unkeepable(batch[0], error)
                return
            for outcome in batch:
                await self._settle([outcome])
            return
        self._settled(batch, verdicts)

    async def _persist(self, batch: list[Outcome]) -> list[Verdict]:
        """Repeat until the queue takes it: repeating a settle is harmless."""
        paces = self._paces(batch)
        patience = Patience(self._clock, self._patience)
        while True:
            try:
                if self._keep is not None:
                    await self._keep()
                sent = self._clock()
                verdicts = await self._queue.settle(batch, paces)
            except PASSING as error:
                if (pause := patience.pause()) is None:
                    raise
                if patience.tries == 1:
                    log.warning("settle_failing", extra={"error": str(error), "outcomes": len(batch)})
                self._failing = True
                await asyncio.sleep(pause)
            else:
                self._asked(self._clock() - sent)
                self._failing = False
                self._relieved.set()
                return verdicts

    async def _settle_unkeepable(self, outcome: Outcome, error: Exception) -> None:
        """An outcome the queue cannot store must not take its worker, or its neighbours, with it."""
        if outcome.result == "dead" and outcome.cause.startswith("settle."):
            raise error
        cause = f"settle.{type(error).__name__}"
        told = {"run": run_of(outcome.task), "task": outcome.task, "error": repr(error)}
        log.error("settle_refused", extra=told)
        dead = Outcome(
            task=outcome.task,
            lease=outcome.lease,
            result="dead",
            cause=cause,
            evidence={"error": ascii(str(error))[:500]},
        )
        await self._settle([dead])


def _weight(outcome: Outcome) -> int:
    return sum(map(len, outcome.records)) if outcome.records else 0
