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
from shoal.errors import ShoalError
from shoal.queue.base import MAX_FOUND_PER_SETTLE, Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS, reconnecting
from shoal.worker.deferred import RETRY_SECONDS, DeferredOutcomes

log = logging.getLogger("shoal.worker")

BATCH_WAIT = 0.005  # seconds that an outcome may wait for others
LAZY_WAIT = 0.05  # likewise where nobody waits for it: a task that comes once at most holds nothing up
BATCH = 200
BATCH_BYTES = 8_000_000
BATCH_FOUND = 500  # found tasks of one commit, unless a single page has more
BACKLOG = 1_000  # outcomes waiting; above this no task is started
BACKLOG_BYTES = 32_000_000

OnSettled = Callable[[Sequence[Outcome], Sequence[Verdict]], None]
PacesFor = Callable[[Sequence[Outcome]], Mapping[str, Pace] | None]


def split_outcome(outcome: Outcome) -> Iterator[Outcome]:
    """An outcome with more found tasks than one commit should carry: those go first, in chunks."""
    found = outcome.found
    if len(found) <= MAX_FOUND_PER_SETTLE:
        yield outcome
        return
    last = (len(found) - 1) // MAX_FOUND_PER_SETTLE * MAX_FOUND_PER_SETTLE
    for start in range(0, last, MAX_FOUND_PER_SETTLE):
        chunk = found[start : start + MAX_FOUND_PER_SETTLE]
        yield Outcome(task=outcome.task, lease=outcome.lease, result="part", found=chunk)
    yield msgspec.structs.replace(outcome, found=found[last:])


class Settler:
    def __init__(
        self,
        queue: Queue,
        *,
        clock: Callable[[], float],
        on_settled: OnSettled,
        paces_for: PacesFor,
        batch_target: int,
        outage_timeout: float,
        on_places_free: Callable[[int], None] = lambda places: None,
        before_settle: Callable[[], Awaitable[None]] | None = None,
        on_queue_call: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._on_settled = on_settled
        self._paces_for = paces_for
        self._batch_target = batch_target  # outcomes that are worth a commit without waiting for more
        self._outage_timeout = outage_timeout
        self._before_settle = before_settle  # makes durable what the outcomes refer to
        self._on_queue_call = on_queue_call  # told how long the queue took to answer
        self._on_places_free = on_places_free  # of tasks that took up one until they were settled
        # With the size of its records, whether its task takes up a place, and whether it is lazy.
        self._pending: deque[tuple[Outcome, int, bool, bool]] = deque()
        self._pending_bytes = 0
        self._eager = 0  # pending ones that are not lazy
        self._timer: asyncio.TimerHandle | None = None
        self._is_settling = self._is_flushing = False
        self._has_batch = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_failing = False  # the queue does not take outcomes at the moment
        self._deferred = DeferredOutcomes(clock, outage_timeout)

    @property
    def is_full(self) -> bool:
        """No task should be started: its outcome could not be kept."""
        waiting = len(self._pending) + len(self._deferred)
        return self._is_failing or waiting > BACKLOG or self._pending_bytes > BACKLOG_BYTES

    @property
    def is_idle(self) -> bool:
        return self._is_empty.is_set()

    def put(self, outcome: Outcome, *, takes_place: bool = False, lazy: bool = False) -> None:
        if not self._pending:
            self._is_empty.clear()
            if lazy:
                self._set_timer(LAZY_WAIT)
        if len(outcome.found) > MAX_FOUND_PER_SETTLE:
            *first, outcome = split_outcome(outcome)
            self._pending.extend((part, 0, False, True) for part in first)
        size = sum(map(len, outcome.records)) if outcome.records else 0
        if outcome.outbox:
            size += sum(len(entry.data) for entry in outcome.outbox)
        self._pending.append((outcome, size, takes_place, lazy))
        self._pending_bytes += size
        if not lazy:
            self._eager += 1
            if self._eager == 1:
                self._set_timer(BATCH_WAIT)
        if self._eager >= self._batch_target or len(self._pending) >= BATCH:
            self._has_batch.set()

    def hurry(self) -> None:
        """Nothing else is going on: what is lazy need not wait for more."""
        if self._pending and not self._eager:
            self._set_timer(BATCH_WAIT)

    async def flush(self) -> None:
        """Return when everything put so far is settled."""
        self._is_flushing = True
        self._has_batch.set()
        await self._is_empty.wait()
        self._is_flushing = False

    async def run(self) -> None:
        """Settle until cancelled; raises when the queue stays out of reach."""
        while True:
            await self._has_batch.wait()
            self._has_batch.clear()
            self._is_settling = True
            while self._pending:
                batch, places = self._next_batch()
                if batch := self._deferred.keep_in_order(batch):
                    await self._settle(batch)
                self._on_places_free(places)
                if not (self._eager or self._is_flushing or len(self._pending) >= BATCH):
                    break
            self._is_settling = False
            if self._pending:
                self._set_timer(LAZY_WAIT)
            elif not self._deferred:
                self._is_empty.set()

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_settling:  # then it looks by itself what there is
            self._timer = asyncio.get_running_loop().call_later(seconds, self._has_batch.set)

    def _next_batch(self) -> tuple[list[Outcome], int]:
        """What goes into one commit, and how many places it makes free."""
        batch: list[Outcome] = []
        places = size = found = 0
        while self._pending and len(batch) < BATCH:
            outcome, record_bytes, takes_place, lazy = self._pending[0]
            size += record_bytes
            found += len(outcome.found)
            if batch and (size > BATCH_BYTES or found > BATCH_FOUND):
                break
            self._pending.popleft()
            self._pending_bytes -= record_bytes
            batch.append(outcome)
            places += takes_place
            self._eager -= not lazy
        return batch, places

    async def _settle(self, batch: list[Outcome]) -> None:
        try:
            verdicts = await self._settle_with_retries(batch)
        except ShoalError:
            raise
        except Exception as error:  # noqa: BLE001 - settled here, one by one
            if len(batch) == 1:
                await self._settle_unstorable(batch[0], error)
                return
            for outcome in batch:
                await self._settle([outcome])
            return
        if "away" in verdicts:
            batch, verdicts = self._defer(batch, verdicts)
        for outcome in batch:
            self._deferred.forget(outcome)
        self._on_settled(batch, verdicts)

    def _defer(self, batch: list[Outcome], verdicts: list[Verdict]) -> tuple[list[Outcome], list[Verdict]]:
        """Keep what the queue cannot take now; what is left is answered, or given up."""
        if not self._deferred:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry_deferred)
        answered: list[Outcome] = []
        answers: list[Verdict] = []
        for outcome, verdict in zip(batch, verdicts, strict=True):
            if verdict != "away" or not self._deferred.keep(outcome):
                answered.append(outcome)
                answers.append("stale" if verdict == "away" else verdict)
        return answered, answers

    def _retry_deferred(self) -> None:
        """First of all: what came later must not overtake it."""
        for outcome in reversed(self._deferred.take()):
            size = sum(map(len, outcome.records)) + sum(len(entry.data) for entry in outcome.outbox)
            self._pending.appendleft((outcome, size, False, False))
            self._pending_bytes += size
            self._eager += 1
        self._has_batch.set()

    async def _settle_with_retries(self, batch: list[Outcome]) -> list[Verdict]:
        """Repeat until the queue takes it: repeating a settle is harmless."""
        paces = self._paces_for(batch)

        async def settle() -> list[Verdict]:
            if self._before_settle is not None:
                await self._before_settle()
            sent = self._clock()
            verdicts = await self._queue.settle(batch, paces)
            self._on_queue_call(self._clock() - sent)
            return verdicts

        def note_failure(error: Exception, tries: int) -> None:
            if tries == 1:
                log.warning("settle_failing", extra={"error": str(error), "outcomes": len(batch)})
            self._is_failing = True

        verdicts = await reconnecting(
            settle, self._outage_timeout, errors=TRANSIENT_ERRORS, on_failure=note_failure, clock=self._clock
        )
        self._is_failing = False
        return verdicts

    async def _settle_unstorable(self, outcome: Outcome, error: Exception) -> None:
        """An outcome the queue cannot store must not take its worker, or its neighbours, with it."""
        if outcome.result == "dead" and outcome.cause.startswith("settle."):
            raise error
        cause = f"settle.{type(error).__name__}"
        details = {"run": run_of(outcome.task), "task": outcome.task, "error": repr(error)}
        log.error("settle_refused", extra=details)
        dead = Outcome(
            task=outcome.task,
            lease=outcome.lease,
            result="dead",
            cause=cause,
            evidence={"error": ascii(str(error))[:500]},
        )
        await self._settle([dead])
