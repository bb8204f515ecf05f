"""The autoscaler with drivers that hang, refuse or lie: seen, shown, and never driven in circles."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.control.history import Series
from shoal.control.scaling.autoscaler import Autoscaler, Measured, Room
from shoal.control.scaling.base import Replicas, ScalerFailed
from shoal.control.scaling.scale_documents import (
    MAX_EVENTS,
    ScaleEvent,
    ScaleRequest,
    ScaleState,
    add_event,
    read_history,
    read_state,
    write_request,
)
from shoal.core.autoscale import ScaleLimits, ScaleMemory
from shoal.core.lane import WorkerStatus
from shoal.core.scaling import Capacity, Workload
from shoal.errors import RunBusy
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.view.advice import recommend
from shoal.view.scale import ScaleStatus
from shoal.view.snapshot import Snapshot

LIMITS = ScaleLimits(minimum=0, maximum=9, up_cooldown=0, down_cooldown=0, interval=0.001)
MINUTE = 60_000_000


class ScriptedDriver:
    """Does as it is told, or what a test has in mind."""

    name = "scripted"
    can_choose = True

    def __init__(self, on_scale: Callable[[int], object] | None = None) -> None:
        self.count = 0
        self.asked: list[int] = []
        self.held: Mapping[str, int] = {}
        self.names: frozenset[str] | None = None
        self._on_scale = on_scale

    async def current(self) -> Replicas:
        return Replicas(self.count, self.count, self.names)

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        self.asked.append(count)
        self.held = held
        if self._on_scale is None:
            self.count = count
            return
        answer = self._on_scale(count)
        if asyncio.iscoroutine(answer):
            await answer


class Fleet:
    """What a scaler measures; every look is a minute later."""

    def __init__(self, desired: int = 3, step: int = MINUTE) -> None:
        self.desired = desired
        self.workers: list[WorkerStatus] = []
        self.at, self.step = 1_000 * MINUTE, step

    async def measure(self) -> Measured:
        self.at += self.step
        work = Workload(
            workers=len(self.workers), idle=0, open=100 * bool(self.desired), waiting=100, claimable=100, in_flight=0,
            rate=0.0, failing=0.0, fetchable=100, allowed=math.inf,
        )  # fmt: skip
        return Measured(self.at, Capacity(work, self.desired, 10.0, 600.0), "because", self.workers)


def worker(name: str, leased: int = 0, host: str = "m") -> WorkerStatus:
    return WorkerStatus(f"{name}-1", name, host, 1, "0", 1, 1, leased=leased)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    made = await SqliteQueue.open(tmp_path / "q.db")
    yield made
    await made.close()


async def evaluate(queue: Queue, driver: Any, fleet: Fleet, times: int = 1, **more: Any) -> list[ScaleState]:
    scaler = Autoscaler(queue, driver, more.pop("limits", LIMITS), fleet.measure, **more)
    stop, states = asyncio.Event(), list[ScaleState]()

    def note(state: ScaleState) -> None:
        states.append(state)
        if len(states) == times:
            stop.set()

    await scaler.run(stop, note)
    return states


async def test_what_is_decided_is_done_once_and_kept_with_its_reason(queue: Queue) -> None:
    driver, fleet = ScriptedDriver(), Fleet(3)
    await evaluate(queue, driver, fleet, times=3)
    assert driver.asked == [3]
    (event,) = await read_history(queue)
    assert (event.current, event.wanted, event.reason, event.claimable) == (0, 3, "because", 100)
    state = await read_state(queue)
    assert state is not None
    assert (state.problem, state.decision and state.decision.wanted) == ("", 3)


async def test_a_driver_that_says_yes_and_does_nothing_is_asked_ever_more_rarely(queue: Queue) -> None:
    liar = ScriptedDriver(on_scale=lambda count: None)
    limits = msgspec.structs.replace(LIMITS, interval=0.01)
    states = await evaluate(queue, liar, Fleet(3, step=10_000), times=32, limits=limits)
    assert 3 <= len(liar.asked) <= 6  # at once, then after 2, 4, 8 … intervals
    assert "asked for 3" in states[-1].problem
    assert "still has 0" in states[-1].problem


async def test_a_driver_that_does_the_opposite_is_not_driven_in_circles(queue: Queue) -> None:
    def opposite(count: int) -> None:
        contrary.count = 0 if contrary.count else 9

    contrary = ScriptedDriver(on_scale=opposite)
    limits = msgspec.structs.replace(LIMITS, interval=0.01)
    await evaluate(queue, contrary, Fleet(3, step=10_000), times=64, limits=limits)
    assert len(contrary.asked) <= 8


async def test_a_driver_that_hangs_or_refuses_is_timed_out_and_shown(queue: Queue) -> None:
    hanging = ScriptedDriver(on_scale=lambda count: asyncio.sleep(600))
    (state,) = await evaluate(queue, hanging, Fleet(), timeout=0.01)
    assert state.problem == "the driver scripted did not answer within 0.01 s"

    def refuse(count: int) -> None:
        raise ScalerFailed("the cluster refuses (HTTP 403)", hint="ask its owner")

    states = await evaluate(queue, ScriptedDriver(on_scale=refuse), Fleet(), times=2)
    assert (states[-1].problem, states[-1].hint) == ("the cluster refuses (HTTP 403)", "ask its owner")
    assert states[-1].problem in {event.problem for event in await read_history(queue)}


async def test_workers_that_the_queue_never_heard_of_are_no_reason_for_more(queue: Queue) -> None:
    driver, fleet = ScriptedDriver(), Fleet(3)
    ends_at = fleet.at + 4 * MINUTE

    async def measure() -> Measured:
        fleet.desired = 8 if fleet.at >= ends_at else 3
        return await Fleet.measure(fleet)

    scaler = Fleet()
    scaler.measure = measure  # type: ignore[method-assign]
    states = await evaluate(queue, driver, scaler, times=6)
    assert driver.asked == [3]
    assert states[-1].decision is not None
    assert "3 workers did not register with the queue" in states[-1].decision.reason


async def test_replicas_that_do_not_run_are_a_problem_only_once_they_should(queue: Queue) -> None:
    class Stuck(ScriptedDriver):
        async def current(self) -> Replicas:
            return Replicas(self.count, 0)

    states = await evaluate(queue, Stuck(), Fleet(2), times=5)
    assert [state.problem for state in states[:3]] == ["", "", ""]
    assert states[-1].problem == "0 of 2 run"


async def test_who_scales_down_knows_what_each_worker_holds_and_leaves_those_of_others(queue: Queue) -> None:
    driver, fleet = ScriptedDriver(), Fleet(2)
    driver.count, driver.names = 3, frozenset({"auto-a", "auto-b", "pod-c"})
    fleet.workers = [worker("auto-a-1f", 4), worker("auto-b-2e"), worker("by-hand", 9), worker("x", 1, host="pod-c")]
    (state,) = await evaluate(queue, driver, fleet)
    assert driver.asked == [1]  # two are needed, and somebody else has started one
    assert (driver.held["auto-a"], driver.held["auto-b"], driver.held["pod-c"]) == (4, 0, 1)
    assert state.decision is not None
    assert "1 of them were started by others" in state.decision.reason


async def test_a_machine_without_room_gets_no_more(queue: Queue) -> None:
    async def no_room() -> Room:
        return Room(1, "this machine has no room for more: memory")

    driver = ScriptedDriver()
    (state,) = await evaluate(queue, driver, Fleet(3), find_room=no_room)
    assert driver.asked == [1]
    assert state.decision is not None
    assert state.decision.reason.endswith("memory")


async def test_what_a_person_set_is_kept_to_at_once(queue: Queue) -> None:
    driver = ScriptedDriver()
    await write_request(queue, ScaleRequest(5, "ada", 1))
    slow = msgspec.structs.replace(LIMITS, up_cooldown=600, down_cooldown=600)
    await evaluate(queue, driver, Fleet(1), limits=slow)
    await write_request(queue, ScaleRequest(0, "ada", 1))
    await evaluate(queue, driver, Fleet(1), limits=slow)
    assert driver.asked == [5, 0]


async def test_only_one_acts_and_a_dry_run_is_no_act(queue: Queue) -> None:
    stop, first = asyncio.Event(), ScriptedDriver()
    acting = asyncio.create_task(Autoscaler(queue, first, LIMITS, Fleet().measure).run(stop))
    while not first.asked:
        await asyncio.sleep(0.001)
    second = ScriptedDriver()
    with pytest.raises(RunBusy, match="a scaler of this queue is already running"):
        await evaluate(queue, second, Fleet())
    (state,) = await evaluate(queue, second, Fleet(), dry_run=True)
    assert state.decision is not None
    assert (state.decision.wanted, second.asked) == (3, [])
    stop.set()
    await acting


async def test_the_history_is_bounded_and_garbage_in_it_is_nobody_s_end(queue: Queue) -> None:
    for number in range(MAX_EVENTS + 5):
        await add_event(queue, ScaleEvent(number, "d", 0, 1, "x" * 10_000))
    events = await read_history(queue)
    assert len(events) == MAX_EVENTS
    assert (events[0].at, len(events[0].reason)) == (MAX_EVENTS + 4, 500)
    await queue.save_document("scale", "history", '{"no": "list"}')
    await queue.save_document("scale", "state", "[]")
    await queue.save_document("scale", "request", '{"fixed": "many"}')
    assert await read_history(queue) == []
    driver = ScriptedDriver()
    (state,) = await evaluate(queue, driver, Fleet(3))
    assert driver.asked == [3]
    # Memory that would hold back growth for ever is not believed, and nobody has fewer than no workers.
    late = msgspec.structs.replace(state, memory=ScaleMemory(changed_at=2**62, speed=math.inf))
    await queue.save_document("scale", "state", msgspec.json.encode(late).decode().replace("null", "1e400", 1))
    slow = msgspec.structs.replace(LIMITS, up_cooldown=60)
    await evaluate(queue, driver, Fleet(5), limits=slow)
    await write_request(queue, ScaleRequest(-7, "mallory", 1))
    await evaluate(queue, driver, Fleet(5), limits=slow)
    assert driver.asked == [3, 5, 0]


async def test_scaler_that_died_is_missed_and_one_that_stopped_in_good_order_is_not(queue: Queue) -> None:
    await evaluate(queue, ScriptedDriver(), Fleet())
    stopped = await read_state(queue)
    assert stopped is not None and stopped.stopped
    hour = stopped.at + 60 * MINUTE
    assert not ScaleStatus(hour, stopped).is_silent
    died = msgspec.structs.replace(stopped, stopped=False)
    assert ScaleStatus(hour, died).is_silent and not ScaleStatus(died.at + MINUTE, died).is_silent
    snapshot = Snapshot(hour, scale=ScaleStatus(hour, died))
    (found,) = [one for one in recommend(snapshot, Series(hour / 1e6)) if one.kind == "scaler_silent"]
    assert (found.level, found.figures["silent_s"]) == ("act", 3600)
