"""Worker: claims tasks, keeps a number of them going, settles them, and hands back what it cannot finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import Outcome, Verdict
from shoal.queue.base import Extended
from shoal.worker.bearing import Bearing
from shoal.worker.buffer import Buffer, Held
from shoal.worker.farewell import farewell_of, leave
from shoal.worker.feeder import Feeder
from shoal.worker.heart import Heart, HeartThread
from shoal.worker.leases import Leases
from shoal.worker.plan import SPARE, Plan
from shoal.worker.process import process
from shoal.worker.settler import PASSING, Settler
from shoal.worker.tools import Tools

log = logging.getLogger("shoal.worker")

TICK = 1.0
LATE = 0.5  # seconds after which a page that only waits for its server makes room for another
LANES_TOLD = 50_000  # lanes whose pace the queue need not be told again
RUNS_TOLD = 8  # runs of which that is kept, and more while they go on


class Tally(msgspec.Struct):
    """What a worker did in its life."""

    done: int = 0
    failed: int = 0
    records: int = 0
    stale: int = 0


class Worker:
    """A fixed number of runners take tasks from the buffer; the feeder fills it, the settler empties them."""

    def __init__(self, tools: Tools, plan: Plan) -> None:
        self.tally = Tally()
        self.finished = 0
        self._tools = tools
        self._plan = plan
        self._leases = Leases(plan.lease)
        self._buffer = Buffer(tools.clock)
        self._feeder = Feeder(tools, plan, self._leases, self._buffer, self)
        self._settler = Settler(
            tools.queue,
            clock=tools.clock,
            settled=self._on_settled,
            paces=self._paces,
            company=max(1, plan.concurrency * 3 // 4),
            patience=plan.patience,
            keep=tools.keep,
            asked=tools.figures.asked,
        )
        self._running: dict[asyncio.Task[None], Held] = {}
        self._runners: set[asyncio.Task[None]] = set()
        self._busy = 0  # runners with a page that is not settled
        self._spare = 0
        self._broken: asyncio.Future[None] | None = None
        self._quiet = asyncio.Event()
        self._hard = self._ended = False
        self._draining = False
        self._bearing = Bearing(
            tools.worker,
            plan,
            self._leases,
            self.tally,
            self._title,
            tools.clients.progress,
            tools.figures.report,
        )
        self._told: dict[int, set[str]] = {}
        self._ticked_at = tools.clock()
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def places(self) -> int:
        """How many pages may be under way. Slow servers do not take places from quick ones, within reason."""
        return self._plan.concurrency + self._spare

    @property
    def blocked(self) -> bool:
        return self._settler.full

    @property
    def at_rest(self) -> bool:
        return not self._running and not len(self._buffer) and self._settler.idle

    @property
    def drained(self) -> bool:
        """Whether it ended because somebody asked it to drain."""
        return self._draining

    def stop(self) -> None:
        """Start nothing new, hand back what is unfinished at no cost, and end."""
        self._feeder.stop()
        if self._draining:
            self._quiet.set()

    def drain(self) -> None:
        """Like stop, but what is under way is finished first, within reason."""
        self._draining = True
        self._bearing.order = "drain"
        self._feeder.stop()

    def obey(self, order: str) -> None:
        """What a person asks of this worker: drain, pause, or nothing any more."""
        if order == "drain":
            self.drain()
        elif not self._draining:
            self._bearing.order = order
            self._feeder.pause(order == "pause")

    def stop_hard(self) -> None:
        """End at once. What is held goes back when its lease ends, or when somebody reaps this worker."""
        self._hard = True
        self._feeder.stop()
        self._quiet.set()

    async def run(self) -> Tally:
        """Work until there is nothing left or until stopped; raises what a person must act on."""
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end_heart = self._start_heart(broken)
        settling = asyncio.create_task(self._settler.run(), name="settle")
        self._broken = broken
        feeding = asyncio.create_task(self._feeder.run(), name="feed")
        self._tick()
        self._tools.figures.watch(self._tools.note.figures)
        self._fill_places()
        try:
            await _first(feeding, settling, broken)
        finally:
            self._feeder.stop()
            try:
                if not settling.done() and not self._hard:
                    await self._hand_back()
            finally:
                self._end()
                await _cancel(feeding, settling, broken, *self._runners)
                await end_heart()
        await self._say_farewell()
        return self.tally

    async def _say_farewell(self) -> None:
        """Whoever keeps the history finds a worker either in the registry or by what it left behind."""
        queue = self._tools.queue
        with contextlib.suppress(*PASSING):
            await leave(queue, farewell_of(self._bearing.mark(await queue.now())))
        with contextlib.suppress(*PASSING):
            await queue.forget_worker(self._tools.worker)

    async def _runner(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        tools, leases, settler, running = self._tools, self._leases, self._settler, self._running
        while True:
            if settler.full:
                await settler.room()
            held = await self._buffer.take()
            if self._busy >= self.places:  # the place it was made for is gone
                self._buffer.ready.appendleft(held)
                self._runners.discard(me)
                return
            self._feeder.low()
            task = held.task
            if not leases.start(task, tools.clock()):
                if leases.holds(task.id, task.lease):  # whoever has it now has it; else others may
                    settler.put(Outcome(task=task.id, lease=task.lease, result="released"))
                continue
            running[me] = held
            self._busy += 1
            outcome = await process(task, tools, held.start_at)
            del running[me]
            if self._ended:
                return
            while me.cancelling():  # its task was called back, not the runner
                me.uncancel()
            self.finished += 1
            tools.figures.visited(task.lane, outcome)
            if tools.traced is not None and outcome.attempt is not None:
                tools.traced(task, outcome, self._run_name(task.run))
            if not running:
                self._quiet.set()
            if leases.holds(task.id, task.lease):
                await settler.keep(outcome)
            self._busy -= 1
            if len(self._runners) > self.places:
                self._runners.discard(me)  # at once: others may be about to ask the same
                return

    async def _hand_back(self) -> None:
        """Release what was not started, call back what is unfinished, settle the rest, within the grace."""
        self._release_unstarted()
        if self._draining and self._running and not self._hard:
            self._quiet.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._plan.drain):
                    await self._quiet.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._plan.grace):
                if self._running:
                    self._quiet.clear()
                    self._call_back(self._running)
                    await self._quiet.wait()
                if not self._hard:
                    await self._settler.flushed()
        if len(self._leases):
            log.warning("left_behind", extra={"worker": self._tools.worker, "tasks": len(self._leases)})

    def _release_unstarted(self, leases: Collection[int] | None = None) -> None:
        for held in self._buffer.take_out(leases):
            if self._leases.holds(held.task.id, held.task.lease):
                self._settler.put(Outcome(task=held.task.id, lease=held.task.lease, result="released"))

    def _call_back(self, runners: Iterable[asyncio.Task[None]]) -> None:
        for runner in list(runners):
            runner.cancel()

    def _on_settled(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        done, failed, figures = 0, 0, self._tools.figures
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if verdict == "stale":
                self.tally.stale += 1
                figures.stale()
            else:
                # With same_as the queue may have dropped the links: they must not be taken for known.
                if outcome.found and outcome.same_as is None:
                    self._committed(outcome)
                if outcome.result == "part":
                    continue
                figures.settled(outcome)
                if outcome.result == "done":
                    done += 1
                    self.tally.records += len(outcome.records)
                elif outcome.result in ("retry", "dead"):
                    failed += 1
            self._leases.settled(outcome.task, outcome.lease)
        self.tally.done += done
        self._tools.note.count(done)
        if failed:
            self.tally.failed += failed
            self._tools.note.add(failed=failed)
        self._tools.note.hold(self._leases.numbers)
        self._tools.note.figures(figures.packed())
        self._feeder.ring()

    def _committed(self, outcome: Outcome) -> None:
        """Only now are its links known to the queue, and the paces of their lanes."""
        run = run_of(outcome.task)
        served, told = self._tools.served_now(run), self._told.setdefault(run, set())
        if served is not None:
            served.links.committed(outcome.found)
        if len(told) > LANES_TOLD:
            told.clear()
        told.update(task.lane for task in outcome.found)

    def _run_name(self, run: int) -> str:
        served = self._tools.served_now(run)
        return served.name if served is not None else ""

    def _title(self, run: int) -> str:
        served = self._tools.served_now(run)
        return served.title if served is not None else ""

    def _paces(self, outcomes: Sequence[Outcome]) -> Mapping[str, Pace] | None:
        """What the runs ask of lanes that found tasks open, told until it was heard once."""
        paces: dict[str, Pace] = {}
        for outcome in outcomes:
            if not outcome.found:
                continue
            run = run_of(outcome.task)
            served, told = self._tools.served_now(run), self._told.setdefault(run, set())
            if served is None:
                continue
            for lane in {task.lane for task in outcome.found} - told:
                paces[lane] = _slower(paces.get(lane), served.pace(lane))
        return paces or None

    def _start_heart(self, broken: asyncio.Future[None]) -> Callable[[], Awaitable[None]]:
        """Beside the event loop where the queue can be opened twice, else within it."""
        loop, tools, plan = asyncio.get_running_loop(), self._tools, self._plan

        def from_thread(call: Callable[[Any], None], value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(call, value)

        def failed(error: BaseException) -> None:
            if not broken.done():
                broken.set_exception(error)

        heart = Heart(
            tools.worker,
            self._leases,
            every=plan.heartbeat,
            clock=tools.clock,
            heard=lambda answer: from_thread(self._on_extended, answer),
            asked=lambda order: from_thread(self.obey, order),
            mark=self._bearing.mark,
        )
        if tools.open_queue is not None:
            thread = HeartThread(heart, tools.open_queue, lambda error: from_thread(failed, error))
            thread.start()
            return thread.stop
        beating = asyncio.create_task(heart.beats(tools.queue, asyncio.Event()), name="heart")
        beating.add_done_callback(lambda beats: None if beats.cancelled() else failed(_error_of(beats)))
        return lambda: _cancel(beating)

    def _on_extended(self, answer: Extended) -> None:
        """Leave what is no longer ours; its outcome would be dropped anyway."""
        self._leases.lose(answer.lost)
        self._tools.note.add(lost=len(answer.lost))
        self._tools.figures.lost(len(answer.lost))
        self._leases.drop(answer.cancelled)
        self._call_back_lost()

    def _call_back_lost(self) -> None:
        holds = self._leases.holds
        self._call_back(r for r, held in self._running.items() if not holds(held.task.id, held.task.lease))

    def _tick(self) -> None:
        now, before = self._tools.clock(), self._ticked_at
        self._ticked_at = now
        # After a stall the heart may only just be renewing: give it one tick before giving up the leases.
        if now - before < 2 * TICK and (old := self._leases.give_up(now)):
            log.warning("leases_in_doubt", extra={"worker": self._tools.worker, "leases": len(old)})
            self._release_unstarted(old)
            self._call_back(runner for runner, held in self._running.items() if held.task.lease in old)
        if len(self._told) > RUNS_TOLD:
            self._told = {run: told for run, told in self._told.items() if self._tools.served_now(run)}
        self._ticker = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _fill_places(self) -> None:
        """As many runners as there are places, looked at again in a while."""
        if self._ended:
            return
        now = self._tools.clock()
        late = sum(now - since > LATE for since in self._tools.waiting.values())
        self._spare = min(late, SPARE * self._plan.concurrency)
        while len(self._runners) < self.places:
            runner = asyncio.create_task(self._runner(), name="runner")
            self._runners.add(runner)
            runner.add_done_callback(self._runner_ended)
        if late:
            self._feeder.ring()
        asyncio.get_running_loop().call_later(LATE / 2, self._fill_places)

    def _runner_ended(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        error = None if runner.cancelled() else runner.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _end(self) -> None:
        self._ended = True
        self._buffer.close()
        self._tools.figures.stop()
        if self._ticker is not None:
            self._ticker.cancel()


def _slower(one: Pace | None, other: Pace) -> Pace:
    if one is None:
        return other
    limits = [limit for limit in (one.max_in_flight, other.max_in_flight) if limit]
    return Pace(max(one.spacing, other.spacing), min(limits, default=0))


def _error_of(ended: asyncio.Future[Any]) -> BaseException:
    return ended.exception() or RuntimeError("the heart stopped")


async def _first(*ends: asyncio.Future[Any]) -> None:
    """Wait for the first of them to end and pass on its failure."""
    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in done:
        end.result()


async def _cancel(*ends: asyncio.Future[Any]) -> None:
    """End what still goes on. A handler that will not be cancelled cannot keep the worker from ending."""
    for end in ends:
        end.cancel()
    done, _ = await asyncio.wait(ends, timeout=1.0)
    for end in done:
        if not end.cancelled():
            end.exception()  # looked at: a failure that did not come first is not the one to report
