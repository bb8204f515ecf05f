"""Locks in the queue: one holder at a time, whoever dies and whoever sleeps."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.control import lock as module
from shoal.control.lock import KIND, Holder, Lock, forget_locks, held
from shoal.errors import Act, QueueFull, QueueUnavailable, RunBusy
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

SECOND = 1_000_000


class Clock:
    now = 1_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(tmp_path: Path, clock: Clock) -> AsyncIterator[Queue]:
    queue = await SqliteQueue.open(str(tmp_path / "shoal.db"), synchronous="normal", clock=clock)
    yield queue
    await queue.close()


async def elsewhere(queue: Queue, **changed: Any) -> None:
    """The lock as a process on another machine holds it."""
    paper = await queue.paper(KIND, "books")
    holder = msgspec.json.decode(paper.text, type=Holder) if paper else Holder("t", pid=1, until=2**60)
    holder = msgspec.structs.replace(holder, **({"host": "far", "token": "theirs"} | changed))
    text = msgspec.json.encode(holder).decode()
    assert await queue.swap(KIND, "books", text, paper.version if paper else 0)


async def test_second_taker_is_told_who_has_it_until_it_is_released(queue: Queue) -> None:
    await elsewhere(queue, pid=77, until=await queue.now() + 12 * SECOND)
    with pytest.raises(RunBusy, match=r"scraper books is being run on far \(process 77\)") as caught:
        await Lock.take(queue, "books", "scraper books")
    assert "in 12 s" in caught.value.hint


async def test_released_lock_can_be_taken_again_and_not_renewed(queue: Queue, clock: Clock) -> None:
    lock = await Lock.take(queue, "books", "x")
    assert (await held(queue, "books") or Holder()).pid == os.getpid()
    await lock.release()
    assert await held(queue, "books") is None
    clock.now += 1
    await Lock.take(queue, "books", "x")
    assert not await lock._renew()


async def test_lock_that_was_not_renewed_in_time_goes_to_the_next_by_the_stores_clock(
    queue: Queue, clock: Clock
) -> None:
    first = await Lock.take(queue, "books", "x", lasts=30)
    await elsewhere(queue, token=_token(first))  # the first holder is out of our sight now
    with pytest.raises(RunBusy):
        await Lock.take(queue, "books", "x")
    clock.now += 31 * SECOND
    await Lock.take(queue, "books", "x")
    assert not await first._renew()


def _token(lock: Lock) -> str:
    return msgspec.json.decode(lock._paper.text, type=Holder).token


def a_dead_process() -> int:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    return int(gone.stdout)


async def test_holder_that_died_on_this_machine_is_not_waited_for(queue: Queue) -> None:
    await elsewhere(queue, place=module.here(), pid=a_dead_process(), until=2**60)
    await Lock.take(queue, "books", "x")


async def test_holder_whose_number_another_process_has_by_now_is_not_waited_for(queue: Queue) -> None:
    await elsewhere(queue, place=module.here(), pid=os.getpid(), born="1", until=2**60)
    await Lock.take(queue, "books", "x")


@pytest.mark.parametrize("number", [os.getpid, a_dead_process])
async def test_holder_in_a_container_of_the_same_name_is_not_taken_for_dead(
    queue: Queue, number: Callable[[], int]
) -> None:
    host = socket.gethostname()
    await elsewhere(queue, host=host, place="the same boot pid:[7]", pid=number(), until=2**60)
    with pytest.raises(RunBusy):
        await Lock.take(queue, "books", "x")


async def test_lock_is_not_taken_twice_by_one_process(queue: Queue) -> None:
    lock = await Lock.take(queue, "books", "x")
    with pytest.raises(RunBusy):
        await Lock.take(queue, "books", "x")
    assert await lock._renew()


async def test_lost_lock_is_noticed_and_told_once(queue: Queue) -> None:
    lock = await Lock.take(queue, "books", "scraper books", lasts=0.3)
    told = asyncio.Event()
    keeping = asyncio.create_task(lock.keep(told.set))
    await elsewhere(queue)
    async with asyncio.timeout(30):
        await told.wait()
        await keeping
    assert lock.lost
    assert "on far" in str(await lock.gone())
    await lock.release()  # harmless
    assert (await held(queue, "books") or Holder()).token == "theirs"


async def test_renewal_whose_answer_was_lost_is_a_renewal(queue: Queue) -> None:
    lock = await Lock.take(queue, "books", "x")
    stale = lock._paper
    assert await lock._renew()
    lock._paper = stale
    assert await lock._renew()


@pytest.mark.parametrize("error", [QueueUnavailable, QueueFull])
async def test_lock_out_of_reach_for_two_thirds_of_its_time_counts_as_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, error: type[Act]
) -> None:
    lock = await Lock.take(queue, "books", "x", lasts=0.3)

    async def away() -> int:
        raise error("gone")

    monkeypatch.setattr(queue, "now", away)
    told = asyncio.Event()
    async with asyncio.timeout(30):
        await lock.keep(told.set)
    assert told.is_set() and lock.lost


async def test_locks_of_those_who_died_long_ago_are_forgotten_and_others_are_not(
    queue: Queue, clock: Clock
) -> None:
    await Lock.take(queue, "dead", "x")
    await Lock.take(queue, "held", "x", lasts=1000.0)
    clock.now += 100 * SECOND
    await forget_locks(queue, 50.0)
    assert [paper.name for paper in await queue.papers(KIND)] == ["held"]
