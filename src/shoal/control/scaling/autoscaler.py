"""Autoscaler: measures, decides, asks the driver, and says what it did. In the whole fleet one acts at a time.

A driver may hang, refuse or lie. What it was asked for and did not do is asked for again after ever longer pauses,
and nothing is decided by what it says alone: workers that it claims to have and the queue never heard of are
no reason to start more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from shoal.control.scaling.base import Replicas, Scaler, ScalerFailed
from shoal.control.scaling.scale_documents import (
    LOCK,
    ScaleEvent,
    ScaleState,
    add_event,
    read_request,
    read_state,
    write_state,
)
from shoal.core.autoscale import SECOND, Decision, ScaleLimits, ScaleLoad, ScaleMemory, decide, trusted_memory
from shoal.core.lane import WorkerStatus
from shoal.core.scaling import Capacity
from shoal.errors import RunBusy
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.runs.fleet_lock import FleetLock, keep_renewed

log = logging.getLogger("shoal.scaler")

MAX_PAUSE = 600.0  # seconds between two tries of what the driver does not do
STAND_BY = 10.0  # seconds between two looks whether somebody else still acts
SILENT_AFTER = 120.0  # seconds in which a new worker must have registered


class Measured(msgspec.Struct, frozen=True):
    """The load, as one look at the queue shows it."""

    at: int
    capacity: Capacity
    explanation: str
    workers: Sequence[WorkerStatus]  # of the fleet that live


class Room(msgspec.Struct, frozen=True):
    """How many more workers fit where the driver starts them."""

    count: int
    limit: str


Measure = Callable[[], Awaitable[Measured]]
FindRoom = Callable[[], Awaitable[Room]]


class _Asked(msgspec.Struct, frozen=True):
    """What the driver was asked for last, and has not done yet."""

    wanted: int
    before: int
    tries: int
    at: int

    def is_under_way(self, count: int) -> bool:
        """Whether the number has moved towards what was asked for, and not beyond."""
        return count != self.before and min(self.before, self.wanted) <= count <= max(self.before, self.wanted)


class Autoscaler:
    """`evaluate` it at its interval; it acts from the first time at which nobody else does."""

    def __init__(
        self,
        queue: Queue,
        scaler: Scaler,
        limits: ScaleLimits,
        measure: Measure,
        *,
        timeout: float = 60.0,
        target: str = "",
        find_room: FindRoom | None = None,
        dry_run: bool = False,
    ) -> None:
        self._queue = queue
        self._scaler = scaler
        self._limits = limits
        self._measure = measure
        self._timeout = timeout
        self._target = target
        self._find_room = find_room
        self._dry_run = dry_run  # nothing is changed, not even a document
        self._memory: ScaleMemory | None = None
        self._asked: _Asked | None = None
        self._grown_at = 0  # when there were last more than before
        self._is_settled = False  # that was long ago: all should run and have registered
        self._count = 0
        self._last_problem = ""
        self._is_ours = False

    async def run(self, stop: asyncio.Event, on_state: Callable[[ScaleState], None] = lambda state: None) -> None:
        """Evaluate until stopped; RunBusy if somebody else acts, or has taken over."""
        lock = None if self._dry_run else await FleetLock.acquire(self._queue, LOCK, "a scaler of this queue")
        self._is_ours = True
        try:
            async with keep_renewed(lock, self._on_lost):
                while self._is_ours and not stop.is_set():
                    on_state(await self.evaluate())
                    await _wait(stop, self._limits.interval)
        finally:
            await self._say_stopped()
            self._is_ours = False
            if lock is not None:
                await lock.release()

    async def run_or_stand_by(
        self,
        stop: asyncio.Event,
        on_state: Callable[[ScaleState], None] = lambda state: None,
        on_wait: Callable[[str], None] = lambda words: None,
    ) -> None:
        """The same until stopped, whoever else acts meanwhile and however often the queue is away."""
        while not stop.is_set():
            try:
                await self.run(stop, on_state)
            except (RunBusy, *TRANSIENT_ERRORS) as error:
                on_wait(str(error))
                await _wait(stop, min(STAND_BY, self._limits.interval))

    async def _say_stopped(self) -> None:
        if self._dry_run or not self._is_ours:
            return
        with contextlib.suppress(*TRANSIENT_ERRORS):
            state = await read_state(self._queue)
            if state is not None:
                await write_state(self._queue, msgspec.structs.replace(state, stopped=True))

    def _on_lost(self) -> None:
        self._is_ours = False

    async def evaluate(self) -> ScaleState:
        """One round. What is wrong with the driver is part of the answer; what is wrong with the queue is raised."""
        measured = await self._measure()
        if self._memory is None:
            known = await read_state(self._queue)
            self._memory = trusted_memory(known.memory, measured.at) if known else ScaleMemory()
        replicas, decision, problem, hint = None, None, "", ""
        try:
            replicas = await self._limited(self._scaler.current())
            load = await self._load(measured, replicas)
            decision, self._memory = decide(load, self._limits, self._memory)
            words = await self._act(decision, replicas, measured), self._missing(replicas), replicas.problem
            problem = "; ".join(filter(None, words))
        except ScalerFailed as error:
            problem, hint = str(error), error.hint
        state = ScaleState(
            at=measured.at,
            driver=self._scaler.name,
            host=socket.gethostname(),
            limits=self._limits,
            memory=self._memory,
            target=self._target,
            decision=decision,
            replicas=replicas,
            problem=problem,
            hint=hint,
            can_choose=self._scaler.can_choose,
        )
        await self._report(state)
        return state

    async def _load(self, measured: Measured, replicas: Replicas) -> ScaleLoad:
        request = await read_request(self._queue)
        room = await self._find_room() if self._find_room is not None else None
        ours = [it for it in measured.workers if replicas.names is None or replicas.has(it.name, it.host)]
        if replicas.count > self._count or not self._grown_at:
            self._grown_at = measured.at
        self._count = replicas.count
        self._is_settled = measured.at - self._grown_at > SILENT_AFTER * SECOND
        active = [it for it in measured.workers if it.state in ("working", "idle") and not it.command]
        return ScaleLoad(
            at=measured.at,
            current=replicas.count,
            capacity=measured.capacity,
            explanation=measured.explanation,
            others=0 if replicas.names is None else sum(not replicas.has(it.name, it.host) for it in active),
            room=room.count // self._limits.processes if room else None,
            room_limit=room.limit if room else "",
            silent=max(0, replicas.running * self._limits.processes - len(ours)) if self._is_settled else 0,
            fixed=request.fixed,
            fixed_by=request.by,
        )

    async def _act(self, decision: Decision, replicas: Replicas, measured: Measured) -> str:
        """Ask the driver where there is something to ask; says what is wrong with how it went."""
        if decision.wanted == replicas.count:
            self._asked = None
            return ""
        asked = self._next_try(decision, replicas)
        if asked is None:
            return self._unheard(replicas)
        if self._dry_run or not self._is_ours:
            return ""
        self._asked = asked
        log.info(
            "scale",
            extra={"driver": self._scaler.name, "from": replicas.count, "to": decision.wanted, "why": decision.reason},
        )
        await add_event(self._queue, _event(self._scaler.name, decision, measured.at))
        await self._limited(self._scaler.scale_to(decision.wanted, _held(measured.workers)))
        return self._unheard(replicas)

    def _next_try(self, decision: Decision, replicas: Replicas) -> _Asked | None:
        """None: what was asked for last has not happened, and it is too early to ask again."""
        asked, tries = self._asked, 0
        if asked is not None and not asked.is_under_way(replicas.count):
            tries = asked.tries
            pause = min(MAX_PAUSE, self._limits.interval * 2 ** min(tries, 10))
            if decision.at < asked.at + pause * SECOND:
                return None
        return _Asked(decision.wanted, replicas.count, tries + 1, decision.at)

    def _missing(self, replicas: Replicas) -> str:
        """Those that should run by now."""
        if not self._is_settled or replicas.running >= replicas.count:
            return ""
        return f"{replicas.running} of {replicas.count} run"

    def _unheard(self, replicas: Replicas) -> str:
        asked = self._asked
        if asked is None or asked.tries < 2:
            return ""
        return f"the driver was asked for {asked.wanted} {asked.tries} times and still has {replicas.count}"

    async def _limited(self, call: Awaitable[Replicas | None]) -> Replicas:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await call
        except TimeoutError as error:
            raise ScalerFailed(
                f"the driver {self._scaler.name} did not answer within {self._timeout:g} s",
                hint="--scale-timeout gives it more time",
            ) from error
        return answer or Replicas(0, 0)

    async def _report(self, state: ScaleState) -> None:
        if state.problem and state.problem != self._last_problem:
            log.warning("scale_failing", extra={"driver": state.driver, "error": state.problem, "hint": state.hint})
            if not self._dry_run:
                made = state.decision or Decision(state.at, self._count, self._count, 0, "")
                event = _event(state.driver, made, state.at)
                await add_event(self._queue, msgspec.structs.replace(event, problem=state.problem))
        self._last_problem = state.problem
        if not self._dry_run and self._is_ours:
            await write_state(self._queue, state)


async def scale_once(queue: Queue, scaler: Scaler, count: int, workers: Sequence[WorkerStatus], timeout: float) -> None:
    """Have a driver set a number of workers, while no scaler acts."""
    lock = await FleetLock.acquire(queue, LOCK, "a scaler of this queue")
    try:
        async with asyncio.timeout(timeout):
            await scaler.scale_to(count, _held(workers))
    except TimeoutError as error:
        raise ScalerFailed(
            f"the driver {scaler.name} did not answer within {timeout:g} s", hint="--scale-timeout gives it more time"
        ) from error
    finally:
        await lock.release()


def _held(workers: Sequence[WorkerStatus]) -> Counter[str]:
    """Tasks in progress by machine and by name; one that is gone from the registry holds nothing."""
    held = Counter[str]()
    for status in workers:
        for key in {status.host, status.name, status.name.rpartition("-")[0]}:
            held[key] += status.leased
    return held


def _event(driver: str, decision: Decision, at: int) -> ScaleEvent:
    return ScaleEvent(
        at=at,
        driver=driver,
        current=decision.current,
        wanted=decision.wanted,
        reason=decision.reason,
        open=decision.open,
        claimable=decision.claimable,
        in_flight=decision.in_flight,
    )


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
