"""add: many at once, each once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.harness import QueueHarness, outcome, page, pages
from shoal.core.run import run_of


async def test_every_new_task_is_added_and_ready(harness: QueueHarness) -> None:
    run = await harness.run()
    assert await harness.add(run, "a b c") == ["added"] * 3
    stats = await harness.stats(run)
    assert (stats.seen, stats.ready, stats.open) == (3, 3, 3)


async def test_adding_again_is_known_and_changes_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    before = await harness.stats(run)
    assert await harness.add(run, "b c a") == ["known", "added", "known"]
    assert (await harness.stats(run)).seen == before.seen + 1


async def test_a_duplicate_within_one_call_is_known(harness: QueueHarness) -> None:
    run = await harness.run()
    assert await harness.add(run, "a a b a") == ["added", "known", "added", "known"]
    assert (await harness.stats(run)).seen == 2


async def test_new_tasks_are_numbered_in_the_order_given(harness: QueueHarness) -> None:
    harness.need_one_order()
    run = await harness.run()
    first = [page(f"z{n % 7}{n}", lane=f"host{n % 5}") for n in range(40)]
    later = [page(f"a{n}", lane=f"host{n % 3}", priority=n % 4) for n in range(40)]
    await harness.add(run, first)
    await harness.add(run, [first[3], *later, first[1]])
    found = await harness.queue.list_tasks(run, limit=100)
    assert [view.url for view in found] == [task.url for task in (*first, *later)]
    assert [view.id for view in found] == sorted(view.id for view in found)


async def test_identity_is_the_digest_not_the_url(harness: QueueHarness) -> None:
    run = await harness.run()
    one, other = page("a"), page("b")
    same = replace(page("another spelling of a"), digest=one.digest)
    assert await harness.add(run, [one, same, other]) == ["added", "known", "added"]


@pytest.mark.parametrize("result", ["done", "dead", "cancelled", "retry", "released"])
async def test_a_task_stays_known_whatever_became_of_it(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), result, cause="" if result == "done" else "x", after=60.0)
    assert await harness.add(run, "a") == ["known"]
    assert (await harness.stats(run)).seen == 1


async def test_a_task_stays_known_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.settle(await harness.one())
    await harness.reopen()
    assert await harness.add(run, "a b c") == ["known", "known", "added"]


async def test_a_leased_task_is_known(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.one()
    assert await harness.add(run, "a") == ["known"]
    assert not (await harness.claim()).tasks


async def test_two_runs_know_nothing_of_each_other(harness: QueueHarness) -> None:
    one, other = await harness.run("one", name="one"), await harness.run("other", name="other")
    assert await harness.add(one, "a") == ["added"]
    assert await harness.add(other, "a") == ["added"]
    assert len((await harness.claim()).tasks) == 2


async def test_a_delayed_task_is_not_handed_out_before_its_time(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "later", delay=10.0)
    assert (await harness.stats(run)).delayed == 1
    await harness.advance(9.5)
    assert not (await harness.claim()).tasks
    await harness.advance(1.0)
    assert (await harness.one()).url == "later"


async def test_a_paused_run_takes_work(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, "pause")
    assert await harness.add(run, "a") == ["added"]


@pytest.mark.parametrize("action", ["cancel", "finish"])
async def test_an_ended_run_rejects_work(harness: QueueHarness, action: str) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, action)
    assert await harness.add(run, "a b") == ["rejected", "rejected"]
    assert (await harness.stats(run)).seen == 0


async def test_adding_nothing_is_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    assert await harness.add(run, []) == []
    assert (await harness.stats(run)).seen == 0


async def test_what_was_added_comes_out_as_it_went_in(harness: QueueHarness) -> None:
    run = await harness.run()
    meta = {"a": [1, None, {"b": "c"}]}
    task = page("a", "host.test", kind="image", priority=7, depth=3, parent=42, meta=meta)
    await harness.add(run, [task])
    leased = await harness.one()
    assert (leased.url, leased.lane, leased.kind, leased.priority) == ("a", "host.test", "image", 7)
    assert (leased.depth, leased.parent, leased.meta, leased.run) == (3, 42, meta, run)
    assert (leased.attempts, leased.lost) == (0, 0)
    assert not leased.failures


async def test_a_task_id_carries_its_run(harness: QueueHarness) -> None:
    one, other = await harness.run("one", name="one"), await harness.run("other", name="other")
    await harness.add(one, "a b")
    await harness.add(other, "a b")
    for leased in (await harness.claim()).tasks:
        assert run_of(leased.id) == leased.run


async def test_ids_are_unique_and_grow_with_age(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5, "first"))
    await harness.add(run, pages(5, "second"))
    views = await harness.queue.list_tasks(run)
    assert [view.url for view in views] == [task.url for task in pages(5, "first") + pages(5, "second")]
    assert len({view.id for view in views}) == 10


async def test_a_task_that_cannot_be_stored_changes_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    with pytest.raises(Exception, match=r"."):
        await harness.add(run, [page("a"), page("b", meta={"no": object()}), page("c")])
    assert (await harness.stats(run)).seen == 0
    assert await harness.add(run, "a b c") == ["added"] * 3


async def test_found_tasks_are_known_like_all_others(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.settle([outcome(await harness.one(), found=(page("b"), page("a"), page("b")))])
    assert await harness.add(run, "b") == ["known"]
    assert (await harness.stats(run)).seen == 2
