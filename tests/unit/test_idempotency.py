from __future__ import annotations

import asyncio

import pytest
from fake_clock import FakeClock

from shoal.control import idempotency
from shoal.control.document_gc import SHARDS, DocumentGc
from shoal.control.idempotency import (
    IdempotencyEntry,
    KeyLock,
    KeyReused,
    RequestInProgress,
    acquire,
    document_kind,
    document_name,
    keep_locked,
)
from shoal.queue.base import Queue

NAME = document_name("somebody", "a key")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(tick=1)


async def begun(queue: Queue, print: str = "p") -> KeyLock:
    opened = await acquire(queue, NAME, print)
    assert isinstance(opened, KeyLock)
    return opened


async def test_what_was_answered_is_answered_again(queue: Queue) -> None:
    hold = await begun(queue)
    await hold.finish(201, {"run": "r1"})
    known = await acquire(queue, NAME, "p")
    assert isinstance(known, IdempotencyEntry)
    assert (known.status, known.answer) == (201, {"run": "r1"})


async def test_another_request_with_the_same_key_is_refused(queue: Queue) -> None:
    hold = await begun(queue)
    with pytest.raises(KeyReused):
        await acquire(queue, NAME, "q")
    await hold.finish(200, {})
    with pytest.raises(KeyReused):
        await acquire(queue, NAME, "q")


async def test_while_one_works_the_others_are_told_to_come_back(queue: Queue) -> None:
    await begun(queue)
    with pytest.raises(RequestInProgress) as error:
        await acquire(queue, NAME, "p")
    assert 0 < error.value.after <= 2


async def test_one_who_died_is_taken_over_and_has_no_say_any_more(queue: Queue, clock: FakeClock) -> None:
    dead = await begun(queue)
    clock.step(idempotency.LOCK_TTL + 1)
    heir = await begun(queue)
    assert heir.seed == dead.seed
    await dead.finish(500, "too late")
    await dead.give_up()
    await heir.finish(201, "done")
    known = await acquire(queue, NAME, "p")
    assert isinstance(known, IdempotencyEntry) and known.answer == "done"


async def test_one_who_takes_long_is_kept_alive(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LOCK_TTL", 0.03)
    async with keep_locked(await begun(queue)) as hold:
        await asyncio.sleep(0.05)  # several signs of life
        with pytest.raises(RequestInProgress):
            await acquire(queue, NAME, "p")
        await hold.finish(200, "done")
    assert isinstance(await acquire(queue, NAME, "p"), IdempotencyEntry)


async def test_what_failed_leaves_no_trace(queue: Queue) -> None:
    with pytest.raises(ValueError):
        async with keep_locked(await begun(queue)):
            raise ValueError
    assert await queue.document(document_kind(NAME), NAME) is None


async def test_the_print_of_a_stream_is_known_only_at_its_end(queue: Queue) -> None:
    hold = await begun(queue, "")
    await hold.finish(200, "done", "print of all of it")
    known = await acquire(queue, NAME, "")
    assert isinstance(known, IdempotencyEntry) and known.fingerprint == "print of all of it"


async def test_after_a_day_a_key_is_free_again_and_maintenance_removes_it(queue: Queue, clock: FakeClock) -> None:
    await (await begun(queue)).finish(200, "old")
    clock.step(idempotency.RETENTION + 1)
    await (await begun(queue, "another request")).finish(200, "new")
    clock.step(idempotency.RETENTION / 2)
    tidying = DocumentGc(idempotency.key_sweeper(queue))
    assert sum([await tidying.sweep() for _ in range(SHARDS)]) == 0
    clock.step(idempotency.RETENTION)
    assert sum([await tidying.sweep() for _ in range(SHARDS)]) == 1


async def test_of_many_at_once_one_works(queue: Queue) -> None:
    async def ask() -> str:
        try:
            return type(await acquire(queue, NAME, "p")).__name__
        except RequestInProgress:
            return "Busy"

    said = await asyncio.gather(*(ask() for _ in range(20)))
    assert sorted(said) == ["Busy"] * 19 + ["KeyLock"]


def test_keys_of_two_callers_are_two_keys() -> None:
    assert document_name("a", "b") != document_name("b", "a") != document_name("a", "bb")
