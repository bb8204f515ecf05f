"""Workers: who is there, what they hold, and what people ask of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from conformance.world import World
from shoal.core.lane import Mark
from shoal.queue.base import FIGURES_CAP


def mark(id: str, **more: Any) -> Mark:
    return Mark(id, f"name of {id}", "host", 42, "1.0", **{"started_at": 5, "seen_at": 0, **more})


async def known(world: World) -> dict[str, Mark]:
    return {worker.id: worker for worker in await world.queue.workers()}


async def test_a_mark_comes_back_as_it_was_given(world: World) -> None:
    given = mark(
        "w1", state="working", doing="a page", serves=("books", "task:a"), code="abc", done=7, failed=2,
        memory=1 << 40, figures=bytes(range(256)),
    )  # fmt: skip
    await world.queue.register(given)
    assert (await known(world))["w1"] == replace(given, seen_at=await world.queue.now())


async def test_each_heartbeat_replaces_what_the_last_one_said(world: World) -> None:
    await world.queue.register(mark("w1", serves=("books",), code="a", done=1))
    await world.advance(10)
    await world.queue.register(mark("w1", serves=("books", "more"), code="b", done=5, failed=1, memory=9))
    found = (await known(world))["w1"]
    assert (found.serves, found.code, found.done, found.failed) == (("books", "more"), "b", 5, 1)
    assert (found.memory, found.seen_at) == (9, await world.queue.now())


@pytest.mark.parametrize("length", [0, 1, FIGURES_CAP])
async def test_figures_come_back_as_they_were_given(world: World, length: int) -> None:
    given = b"\xff\x00" * (length // 2) + b"\x00" * (length % 2)
    await world.queue.register(mark("w1", figures=given))
    assert (await known(world))["w1"].figures == given


async def test_figures_that_are_too_long_are_left_out(world: World) -> None:
    await world.queue.register(mark("w1", done=1, figures=b"good"))
    await world.queue.register(mark("w1", done=2, figures=b"x" * (FIGURES_CAP + 1)))
    found = (await known(world))["w1"]
    assert (found.done, found.figures) == (2, b"")


async def test_each_heartbeat_replaces_the_figures(world: World) -> None:
    for figures in (b"first", b"second"):
        await world.queue.register(mark("w1", figures=figures))
    await world.queue.register(mark("w2"))
    assert {id: it.figures for id, it in (await known(world)).items()} == {"w1": b"second", "w2": b""}
    await (await world.reopen()).register(mark("w1"))
    assert (await known(world))["w1"].figures == b""


async def test_a_worker_is_shown_with_what_it_holds(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b c d")
    for worker in ("w1", "w2"):
        await world.queue.register(mark(worker, leased=99))
    first = await world.claim(3, "w1")
    await world.claim(1, "w2")
    assert {id: worker.leased for id, worker in (await known(world)).items()} == {"w1": 3, "w2": 1}
    await world.settle_all(first)
    assert {id: worker.leased for id, worker in (await known(world)).items()} == {"w1": 0, "w2": 1}


@pytest.mark.parametrize("wanted", ["drain", "pause"])
async def test_a_worker_hears_what_was_asked_of_it(world: World, wanted: Any) -> None:
    assert await world.queue.register(mark("w1")) == ""
    assert await world.queue.register(mark("w2")) == ""
    assert await world.queue.ask_worker("w1", wanted)
    assert await world.queue.ask_worker("w1", wanted)
    assert (await known(world))["w1"].asked == wanted
    for _ in range(2):
        assert await world.queue.register(mark("w1", state="draining")) == wanted
    assert await world.queue.register(mark("w2")) == ""
    assert await world.queue.ask_worker("w1", "")
    assert await world.queue.register(mark("w1")) == ""


async def test_nothing_can_be_asked_of_a_worker_that_is_not_there(world: World) -> None:
    assert not await world.queue.ask_worker("w1", "drain")
    assert await world.queue.workers() == []
    assert await world.queue.register(mark("w1")) == ""


async def test_a_worker_cannot_ask_anything_of_itself(world: World) -> None:
    assert await world.queue.register(mark("w1", asked="drain")) == ""
    assert (await known(world))["w1"].asked == ""


async def test_what_was_asked_of_a_worker_is_forgotten_with_it(world: World) -> None:
    await world.queue.register(mark("w1"))
    await world.queue.ask_worker("w1", "drain")
    await world.queue.forget_worker("w1")
    assert not await world.queue.ask_worker("w1", "drain")
    assert await world.queue.register(mark("w1")) == ""


async def test_what_was_asked_outlives_a_restart(world: World) -> None:
    await world.queue.register(mark("w1", serves=("books",)))
    await world.queue.ask_worker("w1", "pause")
    queue = await world.reopen()
    assert await queue.register(mark("w1", serves=("books",))) == "pause"


async def test_workers_that_are_silent_leave_when_the_old_is_removed(world: World) -> None:
    await world.queue.register(mark("old"))
    await world.advance(50)
    await world.queue.register(mark("young"))
    await world.advance(20)
    assert await world.queue.purge(older_than=60.0) == 0
    assert set(await known(world)) == {"young"}


async def test_removing_one_run_removes_no_worker(world: World) -> None:
    run = await world.run()
    await world.queue.register(mark("w1"))
    await world.queue.set_run(run, "finish")
    await world.advance(1000)
    assert await world.queue.purge(run=run) == 1
    assert set(await known(world)) == {"w1"}
