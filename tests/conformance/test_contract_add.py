"""add: many at once, each once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.world import World, outcome, page, pages
from shoal.core.run import run_of


async def test_every_new_task_is_added_and_ready(world: World) -> None:
    run = await world.run()
    assert await world.add(run, "a b c") == ["added"] * 3
    stats = await world.stats(run)
    assert (stats.seen, stats.ready, stats.open) == (3, 3, 3)


async def test_adding_again_is_known_and_changes_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    before = await world.stats(run)
    assert await world.add(run, "b c a") == ["known", "added", "known"]
    assert (await world.stats(run)).seen == before.seen + 1


async def test_a_duplicate_within_one_call_is_known(world: World) -> None:
    run = await world.run()
    assert await world.add(run, "a a b a") == ["added", "known", "added", "known"]
    assert (await world.stats(run)).seen == 2


async def test_identity_is_the_digest_not_the_url(world: World) -> None:
    run = await world.run()
    one, other = page("a"), page("b")
    same = replace(page("another spelling of a"), digest=one.digest)
    assert await world.add(run, [one, same, other]) == ["added", "known", "added"]


@pytest.mark.parametrize("result", ["done", "dead", "cancelled", "retry", "released"])
async def test_a_task_stays_known_whatever_became_of_it(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), result, cause="" if result == "done" else "x", after=60.0)
    assert await world.add(run, "a") == ["known"]
    assert (await world.stats(run)).seen == 1


async def test_a_task_stays_known_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.settle(await world.one())
    await world.reopen()
    assert await world.add(run, "a b c") == ["known", "known", "added"]


async def test_a_leased_task_is_known(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.one()
    assert await world.add(run, "a") == ["known"]
    assert not (await world.claim()).tasks


async def test_two_runs_know_nothing_of_each_other(world: World) -> None:
    one, other = await world.run("one", name="one"), await world.run("other", name="other")
    assert await world.add(one, "a") == ["added"]
    assert await world.add(other, "a") == ["added"]
    assert len((await world.claim()).tasks) == 2


async def test_a_delayed_task_is_not_handed_out_before_its_time(world: World) -> None:
    run = await world.run()
    await world.add(run, "later", delay=10.0)
    assert (await world.stats(run)).delayed == 1
    await world.advance(9.5)
    assert not (await world.claim()).tasks
    await world.advance(1.0)
    assert (await world.one()).url == "later"


async def test_a_paused_run_takes_work(world: World) -> None:
    run = await world.run()
    await world.queue.set_run(run, "pause")
    assert await world.add(run, "a") == ["added"]


@pytest.mark.parametrize("action", ["cancel", "finish"])
async def test_an_ended_run_rejects_work(world: World, action: str) -> None:
    run = await world.run()
    await world.queue.set_run(run, action)
    assert await world.add(run, "a b") == ["rejected", "rejected"]
    assert (await world.stats(run)).seen == 0


async def test_adding_nothing_is_nothing(world: World) -> None:
    run = await world.run()
    assert await world.add(run, []) == []
    assert (await world.stats(run)).seen == 0


async def test_what_was_added_comes_out_as_it_went_in(world: World) -> None:
    run = await world.run()
    meta = {"a": [1, None, {"b": "c"}]}
    task = page("a", "host.test", kind="image", priority=7, depth=3, parent=42, meta=meta)
    await world.add(run, [task])
    leased = await world.one()
    assert (leased.url, leased.lane, leased.kind, leased.priority) == ("a", "host.test", "image", 7)
    assert (leased.depth, leased.parent, leased.meta, leased.run) == (3, 42, meta, run)
    assert (leased.attempts, leased.lost) == (0, 0)
    assert not leased.failures


async def test_a_task_id_carries_its_run(world: World) -> None:
    one, other = await world.run("one", name="one"), await world.run("other", name="other")
    await world.add(one, "a b")
    await world.add(other, "a b")
    for leased in (await world.claim()).tasks:
        assert run_of(leased.id) == leased.run


async def test_ids_are_unique_and_grow_with_age(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5, "first"))
    await world.add(run, pages(5, "second"))
    views = await world.queue.look(run)
    assert [view.url for view in views] == [task.url for task in pages(5, "first") + pages(5, "second")]
    assert len({view.id for view in views}) == 10


async def test_a_task_that_cannot_be_stored_changes_nothing(world: World) -> None:
    run = await world.run()
    with pytest.raises(Exception, match=r"."):
        await world.add(run, [page("a"), page("b", meta={"no": object()}), page("c")])
    assert (await world.stats(run)).seen == 0
    assert await world.add(run, "a b c") == ["added"] * 3


async def test_found_tasks_are_known_like_all_others(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.settle([outcome(await world.one(), found=(page("b"), page("a"), page("b")))])
    assert await world.add(run, "b") == ["known"]
    assert (await world.stats(run)).seen == 2
