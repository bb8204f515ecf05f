"""Locks in the queue: one holder at a time, whoever dies and whoever sleeps."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fake_clock import FakeClock
from wait import HANG

from shoal.errors import ActionRequired, QueueFull, QueueUnavailable, RunBusy
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs import fleet_lock as module
from shoal.runs.fleet_lock import FleetLock, LockHolder, current_holder, remove_expired_locks

SECOND = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def elsewhere(queue: Queue, **changed: Any) -> None:
    """The lock as a process on another machine holds it."""
    document = await queue.document(kinds.LOCK, "books")
    holder = msgspec.json.decode(document.text, type=LockHolder) if document else LockHolder("t", pid=1, until=2**60)
    holder = msgspec.structs.replace(holder, **({"host": "far", "token": "theirs"} | changed))
    text = msgspec.json.encode(holder).decode()
    assert await queue.compare_and_swap(kinds.LOCK, "books", text, document.version if document else 0)


async def test_second_taker_is_told_who_has_it_until_it_is_released(queue: Queue) -> None:
    await elsewhere(queue, pid=77, until=await queue.now() + 12 * SECOND)
    with pytest.raises(RunBusy, match=r"scraper books is already running on far \(process 77\)") as caught:
        await FleetLock.acquire(queue, "books", "scraper books")
    assert "in 12 s" in caught.value.hint


async def test_of_two_who_find_it_free_at_the_same_moment_one_has_it(queue: Queue) -> None:
    class Late:
        """Somebody else takes it after we have looked."""

        def __getattr__(self, verb: str) -> Any:
            return getattr(queue, verb)

        async def compare_and_swap(self, *args: Any) -> Any:
            await elsewhere(queue)
            return await queue.compare_and_swap(*args)

    late: Any = Late()
    with pytest.raises(RunBusy, match="x is already running on far"):
        await FleetLock.acquire(late, "books", "x")
    assert (await current_holder(queue, "books") or LockHolder()).token == "theirs"


async def test_released_lock_can_be_taken_again_and_not_renewed(queue: Queue, clock: FakeClock) -> None:
    lock = await FleetLock.acquire(queue, "books", "x")
    assert (await current_holder(queue, "books") or LockHolder()).pid == os.getpid()
    await lock.release()
    assert await current_holder(queue, "books") is None
    clock.at += 1
    await FleetLock.acquire(queue, "books", "x")
    assert not await lock._renew()


async def test_lock_that_was_not_renewed_in_time_goes_to_the_next_by_the_stores_clock(
    queue: Queue, clock: FakeClock
) -> None:
    first = await FleetLock.acquire(queue, "books", "x", ttl=30)
    await elsewhere(queue, token=_token(first))  # the first holder is out of our sight now
    with pytest.raises(RunBusy):
        await FleetLock.acquire(queue, "books", "x")
    clock.step(31)
    await FleetLock.acquire(queue, "books", "x")
    assert not await first._renew()


def _token(lock: FleetLock) -> str:
    return msgspec.json.decode(lock._document.text, type=LockHolder).token


def a_dead_process() -> int:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    return int(gone.stdout)


async def test_holder_that_died_on_this_machine_is_not_waited_for(queue: Queue) -> None:
    await elsewhere(queue, place=module.process_namespace(), pid=a_dead_process(), until=2**60)
    await FleetLock.acquire(queue, "books", "x")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs the process table of Linux")  # noqa: PTH110
async def test_holder_that_has_ended_and_was_not_waited_for_is_gone(queue: Queue) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it stays in the process table
        await elsewhere(queue, place=module.process_namespace(), pid=ended.pid, until=2**60)
        await FleetLock.acquire(queue, "books", "x")
    finally:
        ended.wait()


async def test_holder_whose_number_another_process_has_by_now_is_not_waited_for(queue: Queue) -> None:
    await elsewhere(queue, place=module.process_namespace(), pid=os.getpid(), born="1", until=2**60)
    await FleetLock.acquire(queue, "books", "x")


@pytest.mark.parametrize("number", [os.getpid, a_dead_process])
async def test_holder_in_a_container_of_the_same_name_is_not_taken_for_dead(
    queue: Queue, number: Callable[[], int]
) -> None:
    host = socket.gethostname()
    await elsewhere(queue, host=host, place="the same boot pid:[7]", pid=number(), until=2**60)
    with pytest.raises(RunBusy):
        await FleetLock.acquire(queue, "books", "x")


async def test_lock_is_not_taken_twice_by_one_process(queue: Queue) -> None:
    lock = await FleetLock.acquire(queue, "books", "x")
    with pytest.raises(RunBusy):
        await FleetLock.acquire(queue, "books", "x")
    assert await lock._renew()


async def test_lost_lock_is_noticed_and_told_once(queue: Queue) -> None:
    lock = await FleetLock.acquire(queue, "books", "scraper books", ttl=0.3)
    told = asyncio.Event()
    keeping = asyncio.create_task(lock.renew_until_lost(told.set))
    await elsewhere(queue)
    async with asyncio.timeout(HANG):
        await told.wait()
        await keeping
    assert lock.lost
    assert "on far" in str(await lock.lost_error())
    await lock.release()  # harmless
    assert (await current_holder(queue, "books") or LockHolder()).token == "theirs"


async def test_renewal_whose_answer_was_lost_is_a_renewal(queue: Queue) -> None:
    lock = await FleetLock.acquire(queue, "books", "x")
    stale = lock._document
    assert await lock._renew()
    lock._document = stale
    assert await lock._renew()


@pytest.mark.parametrize("error", [QueueUnavailable, QueueFull])
async def test_lock_out_of_reach_for_two_thirds_of_its_time_counts_as_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, error: type[ActionRequired]
) -> None:
    lock = await FleetLock.acquire(queue, "books", "x", ttl=0.3)

    async def away() -> int:
        raise error("gone")

    monkeypatch.setattr(queue, "now", away)
    told = asyncio.Event()
    async with asyncio.timeout(HANG):
        await lock.renew_until_lost(told.set)
    assert told.is_set() and lock.lost


async def test_locks_of_those_who_died_long_ago_are_forgotten_and_others_are_not(
    queue: Queue, clock: FakeClock
) -> None:
    await FleetLock.acquire(queue, "dead", "x")
    await FleetLock.acquire(queue, "held", "x", ttl=1000.0)
    clock.step(100)
    await remove_expired_locks(queue, 50.0)
    assert [document.name for document in await queue.documents(kinds.LOCK)] == ["held"]
