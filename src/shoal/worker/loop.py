"""Worker: claims tasks, keeps a number of them going, settles them, and hands back what it cannot finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from shoal.core.lane import Pace
from shoal.core.resources import Pressure
from shoal.core.run import run_of
from shoal.core.run_counters import UNCHANGED
from shoal.core.task import LeasedTask, Outcome, Verdict
from shoal.queue.base import SLOT_HORIZON_SECONDS, ExtendResult
from shoal.queue.follow_ups import FollowUps
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.buffer import BufferedTask, TaskBuffer
from shoal.worker.claimer import Claimer
from shoal.worker.context import WorkerContext
from shoal.worker.futures import cancel_all, wait_first
from shoal.worker.heartbeat import Heartbeat, HeartbeatThread
from shoal.worker.idle_runners import IdleRunners
from shoal.worker.leases import Leases
from shoal.worker.missed_slots import MissedSlots
from shoal.worker.outbox_drain import OutboxDrain
from shoal.worker.places import Places
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.final_counts import counters_of, save_final_counts
from shoal.worker.push_inbox import PushInbox
from shoal.worker.resource_guard import ResourceGuard
from shoal.worker.settler import Settler
from shoal.worker.status_report import StatusReport, TaskCounts
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.slot import NewSlotNeeded

log = logging.getLogger("shoal.worker")

TICK_INTERVAL = 1.0
MAX_PACED_LANES = 50_000  # lanes whose pace the queue need not be told again
MAX_PACED_RUNS = 8  # runs of which that is kept, and more while they go on


class Worker:
    """Runners take tasks from the buffer, which the claimer fills; the settler commits their outcomes."""

    def __init__(self, context: WorkerContext, plan: WorkerPlan) -> None:
        self.counts = TaskCounts()
        self.finished = 0
        self._context = context
        self._plan = plan
        self._leases = Leases(plan.lease)
        self._idle_runners = IdleRunners(self._startable)
        self._places = Places(context.clock, plan.concurrency)
        self._buffer = TaskBuffer(context.clock, self._idle_runners.wake)
        self._claimer = Claimer(context, plan, self._leases, self._buffer, self)
        self._inbox = PushInbox(self._claimer, self._leases, context.crash_note, plan.concurrency, self._fail_with)
        self._missed_slots = MissedSlots(context, self._buffer, self._places, self._release, self._fail_with)
        self._settler = Settler(
            context.queue,
            clock=context.clock,
            on_settled=self._on_settled,
            paces_for=self._paces_for,
            batch_target=max(1, plan.concurrency * 3 // 4),
            outage_timeout=plan.outage_timeout,
            on_places_free=self._on_places_free,
            before_settle=context.before_settle,
            on_queue_call=context.counters.count_queue_call,
        )
        self._outbox_drain = OutboxDrain(FollowUps(context.queue).drain)
        self._running: dict[asyncio.Task[None], BufferedTask] = {}
        self._runners: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._all_finished = asyncio.Event()
        self._has_ended = False
        self._is_draining = False
        self._guard = ResourceGuard(context.worker, plan.resources, plan.folder) if plan.resources else None
        self._status_report = StatusReport(
            context.worker,
            plan,
            self._leases,
            self.counts,
            context.run_title,
            context.clients.progress,
            context.counters.snapshot,
            self._guard,
        )
        self._paced_lanes: dict[int, set[str]] = {}
        self._ticked_at = context.clock()
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def places(self) -> Places:
        return self._places

    @property
    def soon_back(self) -> int:
        return self._missed_slots.count_within(SLOT_HORIZON_SECONDS)

    @property
    def is_blocked(self) -> bool:
        return self._settler.is_full

    @property
    def is_idle(self) -> bool:
        unstarted = len(self._buffer) + len(self._missed_slots) + len(self._inbox.tasks)
        return not self._running and not unstarted and self._settler.is_idle

    @property
    def is_drained(self) -> bool:
        """Whether it ended because somebody asked it to drain."""
        return self._is_draining

    def check_resources(self) -> Pressure:
        """Whether to claim less, or nothing, because the machine is running out of something."""
        if self._guard is None:
            return ""
        self._guard.check_memory(self._context.clock(), self.finished)
        if self._guard.pressure == "stop":
            self._release_unstarted()  # for others, at no cost: here they would only wait
        return self._guard.pressure

    def stop(self) -> None:
        """Start nothing new, hand back what is unfinished at no cost, and end."""
        self._claimer.stop()
        if self._is_draining:
            self._all_finished.set()

    def wake(self) -> None:
        """There may be work, or leave to start some: look now."""
        self._claimer.wake()

    def drain(self) -> None:
        """Like stop, but what is in progress is finished first, within reason."""
        self._is_draining = True
        self._status_report.command = "drain"
        self._claimer.stop()

    def apply_command(self, command: str) -> None:
        """Do what a person asks of this worker: drain, pause, or neither any more."""
        if command == "drain":
            self.drain()
        elif not self._is_draining:
            self._status_report.command = command
            self._claimer.pause(command == "pause")

    def take_over(self, batch: PushedBatch) -> None:
        """Work on tasks that were pushed to this worker."""
        self._inbox.put(batch)

    def _write_counters(self, counters: bytes) -> None:
        self._context.crash_note.write_counters(counters)
        self._inbox.write_load()

    async def run(self) -> TaskCounts:
        """Work until there is nothing left or until stopped; raises what a person must act on."""
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._guard is not None:
            self._guard.read()  # before the first claim; from then on the heartbeat does
        stop_heartbeat = self._start_heartbeat(failure)
        settling = asyncio.create_task(self._settler.run(), name="settle")
        self._failure = failure
        claiming = asyncio.create_task(self._claimer.run(), name="claim")
        self._tick()
        self._context.counters.watch_lag(self._write_counters)
        self._start_runners()
        try:
            await wait_first(claiming, settling, failure)
        finally:
            self._claimer.stop()
            try:
                if not settling.done():
                    await self._hand_back()
            finally:
                self._end()
                await cancel_all(claiming, settling, failure, *self._inbox.tasks, *self._runners)
                await self._outbox_drain.close()
                await stop_heartbeat()
        await self._save_final_counts()
        return self.counts

    async def _save_final_counts(self) -> None:
        """The history finds a worker either in the registry or by its final counts."""
        queue = self._context.queue
        with contextlib.suppress(*TRANSIENT_ERRORS):
            await save_final_counts(queue, counters_of(self._status_report.worker_status(await queue.now())))
        with contextlib.suppress(*TRANSIENT_ERRORS):
            await queue.forget_worker(self._context.worker)

    async def _run_tasks(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        context, leases, settler, running = self._context, self._leases, self._settler, self._running
        clock, idle_runners = context.clock, self._idle_runners
        while True:
            now = clock()
            if idle_runners.is_turn_over(now):
                await asyncio.sleep(0)
                continue
            buffered = self._next_task()
            if buffered is None:
                if not running and not self._claimer.may_have_more:
                    settler.hurry()
                await idle_runners.wait()
                continue
            self._claimer.on_task_taken()
            task = buffered.task
            if not leases.start(task, now):
                if leases.holds(task.id, task.lease):  # whoever has it now has it; else others may
                    settler.put(Outcome(task=task.id, lease=task.lease, result="released"))
                continue
            running[runner] = buffered
            self._places.take(now)
            try:
                outcome = await process_task(task, context, buffered.start_at, may_leave=True)
            except NewSlotNeeded as needed:
                del running[runner]
                self._wait_without_place(buffered, needed.spacing)
                continue
            del running[runner]
            if self._has_ended:
                return
            while runner.cancelling():  # its task was cancelled, not the runner
                runner.uncancel()
            self.finished += 1
            context.counters.count_attempt(task.lane, outcome)
            if context.on_attempt is not None and outcome.attempt is not None:
                context.on_attempt(task, outcome, self._run_name(task.run))
            if not running:
                self._all_finished.set()
            self._put_outcome(task, outcome)

    def _put_outcome(self, task: LeasedTask, outcome: Outcome) -> None:
        """To whoever settles it. Most tasks take up their place until then."""
        key, budget = (task.id, task.lease), self._context.run_budget(task.run)
        if budget is not None:
            budget.end(key, outcome.counters)
        is_lazy = self._is_lazy(task, outcome)  # nothing waits for it
        if is_held := self._leases.holds(*key):
            self._settler.put(outcome, takes_place=not is_lazy, lazy=is_lazy)
        elif budget is not None:
            budget.settle(key, is_counted=False)
        if is_lazy or not is_held:
            self._places.free(1)

    def _wait_without_place(self, buffered: BufferedTask, spacing: float) -> None:
        """Nothing of it has happened: it is begun anew when its next slot comes."""
        task = buffered.task
        self._leases.undo_start(task)
        if (budget := self._context.run_budget(task.run)) is not None:
            budget.give_back((task.id, task.lease))
        if self._claimer.is_stopped:
            self._release([buffered])
        else:
            self._missed_slots.put(buffered, spacing)
        self._on_places_free(1)
        if not self._running:
            self._all_finished.set()

    def _is_lazy(self, task: LeasedTask, outcome: Outcome) -> bool:
        if task.ack == "auto":
            return True
        run_context = self._context.known_run_context(task.run)
        if run_context is None or run_context.recrawl is None:
            return False
        return is_nobody_waiting(outcome, task.spacing, run_context.pace(task.lane))

    def _next_task(self) -> BufferedTask | None:
        """One to start, if there is a place for it; none is started whose outcome could not be kept."""
        self.check_resources()
        while self._startable() > 0:
            buffered = self._buffer.pop()
            if not self._missed_slots.must_wait(buffered, self._context.clock()):
                return buffered
            self._missed_slots.put(buffered)
        return None

    def _startable(self) -> int:
        places = float(self._plan.concurrency)
        if self._guard is not None:
            places = min(places, self._guard.most_in_progress)
        return 0 if self._settler.is_full else min(self._buffer.waiting, int(places) - self._places.busy)

    def _on_places_free(self, places: int) -> None:
        self._places.free(places)
        self._idle_runners.wake()
        self._claimer.wake()

    async def _hand_back(self) -> None:
        """Release what was not started, cancel what is unfinished, settle the rest, within the grace."""
        await self._inbox.settle_down()
        self._release_unstarted()
        if self._is_draining and self._running:
            self._all_finished.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._plan.drain_timeout):
                    await self._all_finished.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._plan.grace_period):
                if self._running:
                    self._all_finished.clear()
                    self._cancel_runners(self._running)
                    await self._all_finished.wait()
                await self._settler.flush()
        if len(self._leases):
            log.warning("left_behind", extra={"worker": self._context.worker, "tasks": len(self._leases)})

    def _release_unstarted(self, leases: Collection[int] | None = None) -> None:
        self._release([*self._missed_slots.remove(leases), *self._buffer.remove(leases)])

    def _release(self, unstarted: Iterable[BufferedTask]) -> None:
        for buffered in unstarted:
            if self._leases.holds(buffered.task.id, buffered.task.lease):
                self._settler.put(Outcome(task=buffered.task.id, lease=buffered.task.lease, result="released"))

    def _cancel_runners(self, runners: Iterable[asyncio.Task[None]]) -> None:
        for runner in list(runners):
            runner.cancel()

    def _on_settled(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        done, failed, counters = 0, 0, self._context.counters
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if verdict == "stale":
                self.counts.stale += 1
                counters.count_stale()
            else:
                # With same_as the queue may have dropped the links: they must not be taken for known.
                if outcome.found and outcome.redirect_digest is None:
                    self._on_links_committed(outcome)
                if outcome.result == "part":
                    continue
                if outcome.outbox:
                    self._outbox_drain.wake()
                counters.count_settled(outcome)
                if outcome.result == "done":
                    done += 1
                    self.counts.records += len(outcome.records)
                elif outcome.result in ("retry", "dead"):
                    failed += 1
            if (budget := self._context.run_budget(run_of(outcome.task))) is not None:
                budget.settle((outcome.task, outcome.lease), is_counted=verdict != "stale")
            self._leases.remove_task(outcome.task, outcome.lease)
        self.counts.done += done
        self._context.crash_note.add_done(done)
        if failed:
            self.counts.failed += failed
            self._context.crash_note.add_counts(failed=failed)
        self._context.crash_note.write_leases(self._leases.numbers)
        self._write_counters(counters.encoded())
        self._claimer.wake()

    def _on_links_committed(self, outcome: Outcome) -> None:
        """Only now are its links known to the queue, and the paces of their lanes."""
        run = run_of(outcome.task)
        run_context, paced = self._context.known_run_context(run), self._paced_lanes.setdefault(run, set())
        if run_context is not None:
            run_context.links.mark_committed(outcome.found)
        if len(paced) > MAX_PACED_LANES:
            paced.clear()
        paced.update(task.lane for task in outcome.found)

    def _run_name(self, run: int) -> str:
        run_context = self._context.known_run_context(run)
        return run_context.name if run_context is not None else ""

    def _paces_for(self, outcomes: Sequence[Outcome]) -> Mapping[str, Pace] | None:
        """The paces of lanes that found tasks open, sent until the queue has taken them once."""
        paces: dict[str, Pace] = {}
        for outcome in outcomes:
            if not outcome.found:
                continue
            run = run_of(outcome.task)
            run_context, paced = (self._context.known_run_context(run), self._paced_lanes.setdefault(run, set()))
            if run_context is None:
                continue
            for lane in {task.lane for task in outcome.found} - paced:
                paces[lane] = _slower_pace(paces.get(lane), run_context.pace(lane))
        return paces or None

    def _start_heartbeat(self, failure: asyncio.Future[None]) -> Callable[[], Awaitable[None]]:
        """Beside the event loop where the queue can be opened twice, else within it."""
        loop, context, plan = asyncio.get_running_loop(), self._context, self._plan

        def from_thread(call: Callable[[Any], None], value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(call, value)

        def failed(error: BaseException) -> None:
            if not failure.done():
                failure.set_exception(error)

        heartbeat = Heartbeat(
            context.worker,
            self._leases,
            interval=plan.heartbeat,
            clock=context.clock,
            on_extended=lambda answer: from_thread(self._on_extended, answer),
            on_command=lambda command: from_thread(self.apply_command, command),
            worker_status=self._status_report.worker_status,
        )
        if context.open_queue is not None:
            thread = HeartbeatThread(heartbeat, context.open_queue, lambda error: from_thread(failed, error))
            thread.start()
            return thread.stop
        heartbeat_task = asyncio.create_task(heartbeat.run(context.queue, asyncio.Event()), name="heartbeat")
        heartbeat_task.add_done_callback(lambda ended: None if ended.cancelled() else failed(_error_of(ended)))
        return lambda: cancel_all(heartbeat_task)

    def _on_extended(self, answer: ExtendResult) -> None:
        """Leave what is no longer ours; its outcome would be dropped anyway."""
        self._leases.drop_leases(answer.lost)
        self._context.crash_note.add_counts(lost=len(answer.lost))
        self._context.counters.count_lost(len(answer.lost))
        self._leases.drop_tasks(answer.cancelled)
        self._cancel_lost()

    def _cancel_lost(self) -> None:
        holds = self._leases.holds
        self._cancel_runners(
            r for r, buffered in self._running.items() if not holds(buffered.task.id, buffered.task.lease)
        )

    def _tick(self) -> None:
        now, before = self._context.clock(), self._ticked_at
        self._ticked_at = now
        # After a stall the heartbeat may only just be renewing: give it one tick before giving up the leases.
        if now - before < 2 * TICK_INTERVAL and (old := self._leases.give_up_unconfirmed(now)):
            log.warning("leases_in_doubt", extra={"worker": self._context.worker, "leases": len(old)})
            self._release_unstarted(old)
            self._cancel_runners(runner for runner, buffered in self._running.items() if buffered.task.lease in old)
        if self._guard is not None and self._guard.needs_fresh_start(now, idle=self.is_idle):
            log.warning("fresh_start", extra={"worker": self._context.worker, "why": self._guard.reason})
            self._claimer.stop()
        if len(self._paced_lanes) > MAX_PACED_RUNS:
            self._paced_lanes = {
                run: paced for run, paced in self._paced_lanes.items() if self._context.known_run_context(run)
            }
        self._ticker = asyncio.get_running_loop().call_later(TICK_INTERVAL, self._tick)

    def _start_runners(self) -> None:
        """As many as pages may be in progress at a time, and never more, however slow servers are."""
        for _ in range(self._plan.concurrency):
            runner = asyncio.create_task(self._run_tasks(), name="runner")
            self._runners.add(runner)
            runner.add_done_callback(self._on_runner_ended)

    def _on_runner_ended(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        self._fail_with(runner)

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        """Whatever one of its parts raises ends the worker."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _end(self) -> None:
        self._has_ended = True
        self._buffer.close()
        self._context.counters.stop()
        if self._ticker is not None:
            self._ticker.cancel()


def is_nobody_waiting(outcome: Outcome, spacing: float, pace: Pace) -> bool:
    """Whether a page was as it had been: no link is new, and its host waits neither for it nor for what it says."""
    if UNCHANGED not in outcome.counters or outcome.found or outcome.lanes or outcome.outbox:
        return False
    return not spacing and not pace.max_in_flight


def _slower_pace(one: Pace | None, other: Pace) -> Pace:
    if one is None:
        return other
    limits = [limit for limit in (one.max_in_flight, other.max_in_flight) if limit]
    return Pace(max(one.spacing, other.spacing), min(limits, default=0))


def _error_of(ended: asyncio.Future[Any]) -> BaseException:
    return ended.exception() or RuntimeError("the heartbeat stopped")
