"""Workers: who is there, what they hold, and what people ask of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from conformance.harness import QueueHarness
from shoal.core.lane import WorkerStatus
from shoal.queue.base import MAX_COUNTERS_BYTES


def worker_status(id: str, **more: Any) -> WorkerStatus:
    return WorkerStatus(id, f"name of {id}", "host", 42, "1.0", **{"started_at": 5, "seen_at": 0, **more})


async def known(harness: QueueHarness) -> dict[str, WorkerStatus]:
    return {worker.id: worker for worker in await harness.queue.workers()}


async def test_a_mark_comes_back_as_it_was_given(harness: QueueHarness) -> None:
    given = worker_status(
        "w1", state="working", activity="a page", serves=("books", "task:a"), code="abc", done=7, failed=2,
        memory=1 << 40, counters=bytes(range(256)),
    )  # fmt: skip
    await harness.queue.register(given)
    assert (await known(harness))["w1"] == replace(given, seen_at=await harness.queue.now())


async def test_each_heartbeat_replaces_what_the_last_one_said(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("w1", serves=("books",), code="a", done=1))
    await harness.advance(10)
    await harness.queue.register(worker_status("w1", serves=("books", "more"), code="b", done=5, failed=1, memory=9))
    found = (await known(harness))["w1"]
    assert (found.serves, found.code, found.done, found.failed) == (("books", "more"), "b", 5, 1)
    assert (found.memory, found.seen_at) == (9, await harness.queue.now())


@pytest.mark.parametrize("length", [0, 1, MAX_COUNTERS_BYTES])
async def test_figures_come_back_as_they_were_given(harness: QueueHarness, length: int) -> None:
    given = b"\xff\x00" * (length // 2) + b"\x00" * (length % 2)
    await harness.queue.register(worker_status("w1", counters=given))
    assert (await known(harness))["w1"].counters == given


async def test_figures_that_are_too_long_are_left_out(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("w1", done=1, counters=b"good"))
    await harness.queue.register(worker_status("w1", done=2, counters=b"x" * (MAX_COUNTERS_BYTES + 1)))
    found = (await known(harness))["w1"]
    assert (found.done, found.counters) == (2, b"")


async def test_each_heartbeat_replaces_the_figures(harness: QueueHarness) -> None:
    for counters in (b"first", b"second"):
        await harness.queue.register(worker_status("w1", counters=counters))
    await harness.queue.register(worker_status("w2"))
    assert {id: it.counters for id, it in (await known(harness)).items()} == {"w1": b"second", "w2": b""}
    await (await harness.reopen()).register(worker_status("w1"))
    assert (await known(harness))["w1"].counters == b""


async def test_a_worker_is_shown_with_what_it_holds(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c d")
    for worker in ("w1", "w2"):
        await harness.queue.register(worker_status(worker, leased=99))
    first = await harness.claim(3, "w1")
    await harness.claim(1, "w2")
    assert {id: worker.leased for id, worker in (await known(harness)).items()} == {"w1": 3, "w2": 1}
    await harness.settle_all(first)
    assert {id: worker.leased for id, worker in (await known(harness)).items()} == {"w1": 0, "w2": 1}


@pytest.mark.parametrize("wanted", ["drain", "pause"])
async def test_a_worker_hears_what_was_asked_of_it(harness: QueueHarness, wanted: Any) -> None:
    assert await harness.queue.register(worker_status("w1")) == ""
    assert await harness.queue.register(worker_status("w2")) == ""
    assert await harness.queue.command_worker("w1", wanted)
    assert await harness.queue.command_worker("w1", wanted)
    assert (await known(harness))["w1"].command == wanted
    for _ in range(2):
        assert await harness.queue.register(worker_status("w1", state="draining")) == wanted
    assert await harness.queue.register(worker_status("w2")) == ""
    assert await harness.queue.command_worker("w1", "")
    assert await harness.queue.register(worker_status("w1")) == ""


async def test_nothing_can_be_asked_of_a_worker_that_is_not_there(harness: QueueHarness) -> None:
    assert not await harness.queue.command_worker("w1", "drain")
    assert await harness.queue.workers() == []
    assert await harness.queue.register(worker_status("w1")) == ""


async def test_a_worker_cannot_ask_anything_of_itself(harness: QueueHarness) -> None:
    assert await harness.queue.register(worker_status("w1", command="drain")) == ""
    assert (await known(harness))["w1"].command == ""


async def test_what_was_asked_of_a_worker_is_forgotten_with_it(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("w1"))
    await harness.queue.command_worker("w1", "drain")
    await harness.queue.forget_worker("w1")
    assert not await harness.queue.command_worker("w1", "drain")
    assert await harness.queue.register(worker_status("w1")) == ""


async def test_what_was_asked_outlives_a_restart(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("w1", serves=("books",)))
    await harness.queue.command_worker("w1", "pause")
    queue = await harness.reopen()
    assert await queue.register(worker_status("w1", serves=("books",))) == "pause"


async def test_workers_that_are_silent_leave_when_the_old_is_removed(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("old"))
    await harness.advance(50)
    await harness.queue.register(worker_status("young"))
    await harness.advance(20)
    assert await harness.queue.purge(older_than=60.0) == 0
    assert set(await known(harness)) == {"young"}


async def test_removing_one_run_removes_no_worker(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.register(worker_status("w1"))
    await harness.queue.set_run(run, "finish")
    await harness.advance(1000)
    assert await harness.queue.purge(run=run) == 1
    assert set(await known(harness)) == {"w1"}
