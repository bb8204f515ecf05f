"""Claimer: claims tasks from the queue, as rarely as the worker's speed allows and never in a busy loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterable
from typing import Protocol

from shoal.core.resources import Pressure
from shoal.core.task import Claim
from shoal.queue.reconnect import TRANSIENT_ERRORS, WaitStopped, reconnecting
from shoal.queue.request_ids import new_request_id
from shoal.worker.buffer import BufferedTask, TaskBuffer
from shoal.worker.context import WorkerContext
from shoal.worker.leases import Leases
from shoal.worker.places import Places
from shoal.worker.plan import WorkerPlan

log = logging.getLogger("shoal.worker")

POLL_MIN, POLL_MAX = 0.05, 1.0  # how often an idle worker asks; wake-ups are hints, this is the guarantee
MIN_SLEEP = 0.005
PREFETCH_SECONDS = 0.25  # seconds of work kept at hand beyond what is being worked on
PREFETCH_MIN = 4
MIN_TASK_SECONDS = 0.02  # nobody is expected to be done sooner with a page
MAX_GAP = 0.25  # seconds between claims while there is work ahead
MAX_DELAYED = 2_000  # tasks that wait for their slots
MIN_REFILL = 8  # part of the places that must be free for it to be worth asking
NEGLIGIBLE_SHARE = 0.02
WAKEUP_WAIT = 30.0  # seconds that one wait for a wake-up lasts
WAKEUP_GAP, WAKEUP_GAP_MAX = 0.05, 1.0  # between claims after wake-ups; grows while these find nothing
MAX_LATENCY_SHARE = 0.25  # of the spacing: a slower answer says too little about its slots


class WorkerLoad(Protocol):
    """What the claimer needs to know of its worker."""

    @property
    def running(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def places(self) -> Places: ...
    @property
    def soon_back(self) -> int: ...  # tasks that missed their slots, and may get new ones within the horizon
    @property
    def is_blocked(self) -> bool: ...
    @property
    def is_idle(self) -> bool: ...
    def check_resources(self) -> Pressure: ...


class Claimer:
    def __init__(
        self, context: WorkerContext, plan: WorkerPlan, leases: Leases, buffer: TaskBuffer, load: WorkerLoad
    ) -> None:
        self._context = context
        self._plan = plan
        self._leases = leases
        self._buffer = buffer
        self._load = load
        self._wake_event = asyncio.Event()
        self._is_stopped = False
        self._is_paused = False
        self._pressure: Pressure = ""
        self._wakeup_task: asyncio.Task[None] | None = None
        self._wakeup_gap = WAKEUP_GAP
        self._low_mark = 2 * plan.concurrency // 4  # with more at hand nothing is needed, see _tasks_needed
        self.may_have_more = True  # the last claim was full: there is probably more
        self._gap = 0.0  # seconds from one claim to the next, at least
        self._not_before = 0.0
        self._paced_share = 0.0  # of the tasks that came lately: they have slots
        self._rate = 0.0
        self._finished_before = 0
        self._measured_at = context.clock()

    def wake(self) -> None:
        """There may be work: found links were committed, or a place of a lane has become free."""
        if not self._wake_event.is_set() and self._tasks_needed() > 0:
            self._wake_event.set()

    def on_task_taken(self) -> None:
        """A task was taken from the buffer; ask for more in time, if there was more the last time."""
        if self.may_have_more and self._buffer.waiting <= self._low_mark:
            self.wake()

    def stop(self) -> None:
        self._is_stopped = True
        self._cancel_wakeup_wait()
        self._wake_event.set()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def pause(self, paused: bool) -> None:
        """Ask for no more work until further notice."""
        self._is_paused = paused
        self._wake_event.set()

    async def run(self) -> None:
        """Claim until stopped, or until no task is open any more."""
        pause = POLL_MIN
        while not self._is_stopped:
            self._wake_event.clear()
            self._pressure = self._load.check_resources()
            limit = self._tasks_needed()
            if limit <= 0:
                rest = self._not_before - self._context.clock()
                await self._sleep(min(rest, POLL_MAX) if rest > 0 else POLL_MAX)
                continue
            if (start_limit := self._context.start_limit) is not None and (limit := start_limit.take(limit)) <= 0:
                await self._sleep(min(POLL_MAX, start_limit.wait_seconds()))
                continue
            claim = await self._claim(limit, fresh=pause > POLL_MIN)
            if start_limit is not None:
                start_limit.give_back(limit - (len(claim.tasks) if claim is not None else 0))
            if claim is None:
                return
            self.may_have_more = len(claim.tasks) >= limit or any(task.lost for task in claim.tasks)
            self._set_gap(claim)
            if self.may_have_more:
                pause = POLL_MIN
                continue
            if not claim.tasks and await self._is_finished():
                return
            pause = POLL_MIN if claim.tasks else min(pause * 2, POLL_MAX)
            # Half of the pause is drawn, so that idle workers do not ask in step.
            if not claim.tasks and self._plan.use_wakeups:
                self._start_wakeup_wait()
            await self._sleep(
                min(pause * (0.5 + self._context.jitter() / 2), POLL_MAX if claim.next_in is None else claim.next_in)
            )

    def _tasks_needed(self) -> int:
        """How many tasks to ask for now; 0 while there is enough at hand."""
        if self._load.is_blocked or self._is_stopped or self._is_paused or self._pressure == "stop":
            return 0
        if self._gap and self._context.clock() < self._not_before:
            return 0
        most, prefetch = self._plan.concurrency, self._prefetch_target()
        if self._pressure:
            most, prefetch = max(1, most // 2), 0
        if self._buffer.waiting > prefetch // 4:
            return 0
        if self._paced_share or self._buffer.delayed:
            needed = self._slots_needed(most) + int(prefetch * (1 - self._paced_share))
        else:
            needed = most + prefetch - self._load.running - self._buffer.waiting
        needed = max(0, needed)
        return min(needed, self._plan.batch_size) if self._plan.batch_size else needed

    def _set_gap(self, claim: Claim) -> None:
        """When to ask again at the soonest: hosts that are asked for ahead of time are asked for many at a time."""
        if self.may_have_more or not self._buffer.delayed:
            self._gap = 0.0
        elif claim.tasks:
            self._gap = min(MAX_GAP, min(task.start_in for task in claim.tasks) / 2)
        else:
            self._gap = min(MAX_GAP, max(2 * self._gap, POLL_MIN))
        self._not_before = self._context.clock() + self._gap

    def _slots_needed(self, most: int) -> int:
        """How many tasks with slots may be claimed. One that finds no place when its slot comes misses it.

        Their slots may lie anywhere within the horizon, so there must be as many places at any moment of it.
        """
        places, buffer = self._load.places, self._buffer
        seconds = max(places.task_seconds(), MIN_TASK_SECONDS)
        needed = most - buffer.most_at_once(places.busy, seconds) - self._load.soon_back
        needed = min(needed, MAX_DELAYED - len(buffer.delayed))
        return needed if needed >= most // MIN_REFILL else 0

    def _prefetch_target(self) -> int:
        return min(2 * self._plan.concurrency, max(PREFETCH_MIN, int(self._rate * PREFETCH_SECONDS)))

    @property
    def is_taking(self) -> bool:
        """Whether tasks may be given to the worker now."""
        return not (self._is_stopped or self._is_paused or self._load.is_blocked)

    async def take_over(self, claim: Claim, sent: float) -> None:
        """Take what was leased to this worker by a push, which was sent at that time."""
        context, timeout = self._context, self._plan.outage_timeout
        await reconnecting(lambda: context.after_claim(claim.tasks), timeout, errors=TRANSIENT_ERRORS)
        self._accept(claim, sent)

    async def _claim(self, limit: int, *, fresh: bool) -> Claim | None:
        """One batch. A lost answer is asked for again by the same id: the tasks in it are ours already.

        fresh: there was nothing the last time, so look for runs that have just begun, too.
        """
        context, plan = self._context, self._plan
        request, sent = new_request_id(), math.inf

        async def claim() -> Claim:
            nonlocal sent
            names = context.run_list
            serves = plan.serves if names is None else await names.names_to_claim(fresh=fresh)
            if serves == ():
                return Claim(0)
            now = context.clock()
            sent = min(sent, now)  # of the first try: that may be the one that was heard
            answer = await context.queue.claim(
                context.worker,
                limit,
                lease=plan.lease,
                serves=serves,
                capabilities=plan.capabilities,
                request_id=request,
            )
            context.counters.count_queue_call(context.clock() - now)
            await context.after_claim(answer.tasks)
            self._accept(answer, sent)
            return answer

        def note_failure(error: Exception, tries: int) -> None:
            if self._is_stopped:
                raise WaitStopped
            if tries == 1:
                log.warning("claim_failing", extra={"error": str(error)})
            self._wake_event.clear()

        try:
            return await reconnecting(
                claim,
                plan.outage_timeout,
                errors=TRANSIENT_ERRORS,
                on_failure=note_failure,
                sleep=lambda pause: self._sleep(pause * (0.5 + context.jitter() / 2)),
                clock=context.clock,
            )
        except WaitStopped:
            return None

    def _accept(self, claim: Claim, sent: float) -> None:
        now = self._context.clock()
        self._update_rate(now)
        if not claim.tasks:
            return
        self._wakeup_gap = WAKEUP_GAP
        share = (self._paced_share + sum(task.spacing > 0 for task in claim.tasks) / len(claim.tasks)) / 2
        self._paced_share = share if share > NEGLIGIBLE_SHARE else 0.0
        self._leases.add(claim, sent)
        self._context.crash_note.add_counts(claimed=len(claim.tasks))
        self._context.crash_note.write_leases(self._leases.numbers)
        self._buffer.put(self._to_buffer(claim, now, now - sent))

    def _to_buffer(self, claim: Claim, now: float, latency: float) -> Iterable[BufferedTask]:
        for task in claim.tasks:
            missed = task.spacing and latency > max(task.spacing * MAX_LATENCY_SHARE, 0.01)
            yield BufferedTask(task, -math.inf if missed else now + task.start_in)

    def _update_rate(self, now: float) -> None:
        """Pages per second, smoothed; it decides how much to keep at hand."""
        seconds = now - self._measured_at
        if seconds < 0.1:
            return
        finished = self._load.finished
        self._rate = (self._rate + (finished - self._finished_before) / seconds) / 2
        self._finished_before, self._measured_at = finished, now

    async def _is_finished(self) -> bool:
        if not self._plan.stop_when_empty or not self._load.is_idle:
            return False
        queue = self._context.queue
        try:
            runs = self._plan.runs or [run.id for run in await queue.runs(states=("running", "paused"))]
            for run in runs:
                if not (await queue.stats(run)).is_over:
                    return False
        except TRANSIENT_ERRORS:
            return False
        return self._load.is_idle

    def _start_wakeup_wait(self) -> None:
        """Have the queue wake us when there may be work; the polling stays as it is without that."""
        if self._wakeup_task is None or self._wakeup_task.done():
            self._wakeup_task = asyncio.create_task(self._wait_for_wakeup(), name="wakeup")

    async def _wait_for_wakeup(self) -> None:
        with contextlib.suppress(*TRANSIENT_ERRORS):
            await self._context.queue.wait(WAKEUP_WAIT)
            self._wake_event.set()
        await asyncio.sleep(self._wakeup_gap)
        self._wakeup_gap = min(WAKEUP_GAP_MAX, 2 * self._wakeup_gap)

    def _cancel_wakeup_wait(self) -> None:
        if self._wakeup_task is not None:
            self._wakeup_task.cancel()

    async def _sleep(self, seconds: float) -> None:
        if self._wake_event.is_set():
            return
        timer = asyncio.get_running_loop().call_later(max(seconds, MIN_SLEEP), self._wake_event.set)
        try:
            await self._wake_event.wait()
        finally:
            timer.cancel()
