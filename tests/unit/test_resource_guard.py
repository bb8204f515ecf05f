"""A worker claims less, then nothing, before its machine runs out of something, and goes on when there is room."""

from __future__ import annotations

import asyncio
import logging
import math

import msgspec
import pytest
from test_worker_loop import WorkerHarness, on_virtual_clock

from shoal.core.counters import decode
from shoal.core.lane import WorkerStatus
from shoal.core.resources import MachineResources, ResourcePolicy
from shoal.worker import resource_guard
from shoal.worker.resource_guard import ResourceGuard

GB = 10**9
ROOMY = MachineResources(memory_total=8 * GB, memory_used=GB, disk_total=GB, disk_free=GB)
FULL = msgspec.structs.replace(ROOMY, memory_used=8 * GB)
TIGHT = msgspec.structs.replace(ROOMY, memory_used=7_400_000_000)


class Machine:
    """Whose figures a test sets."""

    def __init__(self) -> None:
        self.have = ROOMY

    def __call__(self, *_: object) -> Machine:
        return self

    def read(self) -> MachineResources:
        return self.have

    def read_memory(self) -> tuple[int, int, str]:
        return self.have.memory_total, self.have.memory_used, self.have.limited_by


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(resource_guard, "MachineReader", made)
    return made


async def watched(harness: WorkerHarness) -> WorkerStatus:
    (status,) = await harness.queue.queue.workers()
    return status


def test_worker_stops_claiming_while_memory_is_short_and_goes_on_by_itself(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    @on_virtual_clock
    async def story() -> None:
        machine.have = FULL
        harness = WorkerHarness(resources=ResourcePolicy(), concurrency=4)
        await harness.open(*(f"/{number}" for number in range(100)))
        working = asyncio.create_task(harness.worker.run())
        await asyncio.sleep(60)
        assert harness.queue.calls.count("claim") == 0
        status = await watched(harness)
        assert status.activity.startswith("claims nothing: 100% of 8 GB memory in use")
        figures = decode(status.counters)
        assert (figures.pressure, figures.machine) == ("stop", FULL)
        machine.have = ROOMY
        await asyncio.sleep(30)
        assert (await harness.queue.queue.stats(harness.run)).done == 100
        await working

    with caplog.at_level(logging.WARNING, "shoal.worker"):
        story()
    assert [record.message for record in caplog.records] == ["claiming_stopped", "claiming_again"]


def test_worker_under_pressure_has_half_as_much_in_progress(machine: Machine) -> None:
    @on_virtual_clock
    async def story() -> None:
        harness = WorkerHarness(resources=ResourcePolicy(), concurrency=8, stop_when_empty=False)
        harness.latency = 10.0
        machine.have = TIGHT
        await harness.open()
        working = asyncio.create_task(harness.worker.run())
        await asyncio.sleep(20)
        await harness.add_pages(40)
        await asyncio.sleep(5)
        assert len(harness.fetched) == 4
        assert (await watched(harness)).activity.startswith("claims less")
        harness.worker.stop()
        await working

    story()


def test_memory_that_fills_up_between_two_heartbeats_is_seen_before_the_next_claim(machine: Machine) -> None:
    @on_virtual_clock
    async def story() -> None:
        harness = WorkerHarness(resources=ResourcePolicy(), concurrency=4, stop_when_empty=False)
        harness.latency = 0.1
        await harness.open(*(f"/{number}" for number in range(400)))
        working = asyncio.create_task(harness.worker.run())
        await asyncio.sleep(1)
        machine.have = FULL
        begun = len(harness.fetched)
        await asyncio.sleep(1.5)  # the next heartbeat comes after five
        assert 0 < begun <= len(harness.fetched) <= begun + 16
        assert (await harness.queue.queue.stats(harness.run)).leased == 0  # what it had at hand is for others
        harness.worker.stop()
        await working

    story()


@pytest.mark.parametrize(
    ("memory", "have", "idle", "fresh"),
    [
        (2 * GB, FULL, True, True),
        (2 * GB, FULL, False, False),  # something is in progress
        (2 * GB, TIGHT, True, False),  # it still claims
        (GB + 5_000_000, FULL, True, False),  # it has hardly grown
        (GB + GB // 2, FULL, True, False),  # others would still fill the machine
    ],
)
def test_worker_starts_afresh_only_if_its_own_growth_is_the_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, memory: int, have: MachineResources, idle: bool, fresh: bool
) -> None:
    guard = ResourceGuard("w", ResourcePolicy(), ".")
    monkeypatch.setattr(resource_guard, "memory_of", lambda *_: GB)
    guard.read()
    machine.have = have
    guard.read()
    monkeypatch.setattr(resource_guard, "memory_of", lambda *_: memory)
    assert not guard.needs_fresh_start(0.0, idle=idle)  # it has only just become idle
    assert guard.needs_fresh_start(10.0, idle=idle) == fresh


def test_pages_that_leave_much_in_memory_are_fewer_at_a_time_and_looked_at_more_often(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = ResourceGuard("w", ResourcePolicy(processes=2), ".")
    memory = GB
    monkeypatch.setattr(resource_guard, "memory_of", lambda *_: memory)
    guard.read()
    guard.check_memory(0.0, finished=0)
    assert guard.most_in_progress == math.inf
    memory += 4_000_000
    machine.have = msgspec.structs.replace(ROOMY, memory_used=7_200_000_000)
    guard.check_memory(0.01, finished=1)
    assert guard.most_in_progress == math.inf  # too soon to look again
    guard.check_memory(0.02, finished=2)
    # 0.4 GB are left until 95 %, half of that for this process, and a page leaves 2 MB.
    assert (guard.most_in_progress, guard.pressure) == (100, "slow")
    machine.have = FULL
    guard.check_memory(0.03, finished=13)
    assert guard.pressure == "slow"
    guard.check_memory(0.03, finished=14)  # an eighth of them has ended
    assert (guard.pressure, guard.most_in_progress) == ("stop", 1)


def test_process_that_has_more_than_its_share_where_memory_is_getting_short_starts_afresh(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = ResourceGuard("w", ResourcePolicy(processes=2), ".")
    memory = GB // 2
    monkeypatch.setattr(resource_guard, "memory_of", lambda *_: memory)
    guard.read()  # 7.2 GB without the supervisor's half: 3.35 for each of the two
    memory = 3_500_000_000
    for used, pressure in ((5.5, ""), (6.1, "stop")):
        machine.have = msgspec.structs.replace(ROOMY, memory_used=int(used * GB))
        guard.check_memory(used, finished=1000)
        assert guard.pressure == pressure
    assert "more than its share" in guard.reason
    assert not guard.needs_fresh_start(10.0, idle=True)
    assert guard.needs_fresh_start(20.0, idle=True)
