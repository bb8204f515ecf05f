from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from stepped import Clock

from shoal.control import idempotency
from shoal.control.idempotency import Busy, Entry, Hold, Reused, begin, held, kind_of, name_of
from shoal.control.tidying import SHELVES, Tidying
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

NAME = name_of("somebody", "a key")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(clock: Clock) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=clock)
    yield opened
    await opened.close()


async def begun(queue: Queue, print: str = "p") -> Hold:
    opened = await begin(queue, NAME, print)
    assert isinstance(opened, Hold)
    return opened


async def test_what_was_answered_is_answered_again(queue: Queue) -> None:
    hold = await begun(queue)
    await hold.finish(201, {"run": "r1"})
    known = await begin(queue, NAME, "p")
    assert isinstance(known, Entry)
    assert (known.status, known.answer) == (201, {"run": "r1"})


async def test_another_request_with_the_same_key_is_refused(queue: Queue) -> None:
    hold = await begun(queue)
    with pytest.raises(Reused):
        await begin(queue, NAME, "q")
    await hold.finish(200, {})
    with pytest.raises(Reused):
        await begin(queue, NAME, "q")


async def test_while_one_works_the_others_are_told_to_come_back(queue: Queue) -> None:
    await begun(queue)
    with pytest.raises(Busy) as error:
        await begin(queue, NAME, "p")
    assert 0 < error.value.after <= 2


async def test_one_who_died_is_taken_over_and_has_no_say_any_more(queue: Queue, clock: Clock) -> None:
    dead = await begun(queue)
    clock.pass_(idempotency.HOLD + 1)
    heir = await begun(queue)
    assert heir.seed == dead.seed
    await dead.finish(500, "too late")
    await dead.give_up()
    await heir.finish(201, "done")
    known = await begin(queue, NAME, "p")
    assert isinstance(known, Entry) and known.answer == "done"


async def test_one_who_takes_long_is_kept_alive(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "HOLD", 0.03)
    async with held(await begun(queue)) as hold:
        await asyncio.sleep(0.05)  # several signs of life
        with pytest.raises(Busy):
            await begin(queue, NAME, "p")
        await hold.finish(200, "done")
    assert isinstance(await begin(queue, NAME, "p"), Entry)


async def test_what_failed_leaves_no_trace(queue: Queue) -> None:
    with pytest.raises(ValueError):
        async with held(await begun(queue)):
            raise ValueError
    assert await queue.paper(kind_of(NAME), NAME) is None


async def test_the_print_of_a_stream_is_known_only_at_its_end(queue: Queue) -> None:
    hold = await begun(queue, "")
    await hold.finish(200, "done", "print of all of it")
    known = await begin(queue, NAME, "")
    assert isinstance(known, Entry) and known.print == "print of all of it"


async def test_after_a_day_a_key_is_free_again_and_upkeep_removes_it(queue: Queue, clock: Clock) -> None:
    await (await begun(queue)).finish(200, "old")
    clock.pass_(idempotency.KEPT + 1)
    await (await begun(queue, "another request")).finish(200, "new")
    clock.pass_(idempotency.KEPT / 2)
    tidying = Tidying(idempotency.shelves(queue))
    assert sum([await tidying.turn() for _ in range(SHELVES)]) == 0
    clock.pass_(idempotency.KEPT)
    assert sum([await tidying.turn() for _ in range(SHELVES)]) == 1


async def test_of_many_at_once_one_works(queue: Queue) -> None:
    async def ask() -> str:
        try:
            return type(await begin(queue, NAME, "p")).__name__
        except Busy:
            return "Busy"

    said = await asyncio.gather(*(ask() for _ in range(20)))
    assert sorted(said) == ["Busy"] * 19 + ["Hold"]


def test_keys_of_two_callers_are_two_keys() -> None:
    assert name_of("a", "b") != name_of("b", "a") != name_of("a", "bb")
