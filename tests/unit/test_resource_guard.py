"""A worker claims less, then nothing, before its machine runs out of something, and goes on when there is room."""

from __future__ import annotations

import asyncio
import logging

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


@pytest.mark.parametrize(
    ("memory", "have", "idle", "fresh"),
    [(300, FULL, True, True), (300, FULL, False, False), (120, FULL, True, False), (300, TIGHT, True, False)],
)
def test_worker_that_waits_for_memory_of_its_own_starts_afresh(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, memory: int, have: MachineResources, idle: bool, fresh: bool
) -> None:
    guard = ResourceGuard("w", ResourcePolicy(), ".")
    monkeypatch.setattr(resource_guard, "memory_of", lambda: 100)
    guard.read()
    machine.have = have
    guard.read()
    monkeypatch.setattr(resource_guard, "memory_of", lambda: memory)
    assert not guard.needs_fresh_start(0.0, idle=idle)  # it has only just become idle
    assert guard.needs_fresh_start(10.0, idle=idle) == fresh
