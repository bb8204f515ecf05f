"""Results: tasks by identity, records by task, and records that have gone to a store of their own."""

from __future__ import annotations

import json

import pytest

from conformance.harness import QueueHarness, pages
from shoal.core.task import digest


async def done(harness: QueueHarness, run: int, urls: str, records: int = 2) -> dict[str, int]:
    """Add pages and settle them, the last one first; their ids by url."""
    await harness.add(run, urls)
    ids = {}
    for leased in reversed((await harness.claim()).tasks):
        ids[leased.url] = leased.id
        data = (json.dumps({"url": leased.url, "n": n}).encode() for n in range(records))
        assert await harness.settle(leased, records=tuple(data)) == "ok"
    return ids


async def texts(harness: QueueHarness, run: int, **words: object) -> list[str]:
    kept = [json.loads(it.data) for it in await harness.queue.records(run, **words)]  # type: ignore[arg-type]
    return [f"{it['url']}{it['n']}" for it in kept]


# ids


async def test_ids_come_in_the_order_they_were_asked_for(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(20))
    wanted = ["p7", "p0", "no", "p19", "p7"]
    found = await harness.queue.ids(run, [digest(url) for url in wanted])
    expected = []
    for url in wanted:
        view = await harness.queue.find(run, digest(url))
        expected.append(view.id if view else 0)
    assert found == expected and found[2] == 0 and 0 not in found[:2]
    assert await harness.queue.ids(run, []) == []


async def test_ids_are_found_in_every_state(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c d e")
    await harness.add(run, "late", delay=60.0)
    expected = await harness.queue.ids(run, [digest(url) for url in "abcde"])
    for leased, result in zip((await harness.claim(4)).tasks, ("done", "dead", "cancelled", "retry"), strict=True):
        await harness.settle(leased, result, cause="x")
    assert await harness.queue.ids(run, [digest(url) for url in "abcde"]) == expected
    await harness.queue.set_run(run, "cancel")
    for _ in range(3):
        await harness.queue.reap()
    assert await harness.queue.ids(run, [digest(url) for url in "abcde"]) == expected


async def test_ids_of_one_run_are_not_those_of_another(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await harness.add(one, "a")
    assert await harness.queue.ids(other, [digest("a")]) == [0]
    await harness.add(other, "a")
    assert await harness.queue.ids(other, [digest("a")]) != await harness.queue.ids(one, [digest("a")])


async def test_where_a_redirect_led_is_known_by_its_task(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.settle(leased, redirect_digest=digest("target"))
    assert await harness.queue.ids(run, [digest("target")]) == [leased.id]


# records by task


async def test_records_of_chosen_tasks_come_in_the_order_of_settling(harness: QueueHarness) -> None:
    run = await harness.run()
    ids = await done(harness, run, "a b c d")
    assert await texts(harness, run, tasks=[ids["a"], ids["c"]]) == ["c0", "c1", "a0", "a1"]
    assert await texts(harness, run, tasks={ids["b"]}) == ["b0", "b1"]
    assert len(await texts(harness, run, tasks=())) == 8


async def test_records_of_chosen_tasks_come_page_by_page(harness: QueueHarness) -> None:
    run = await harness.run()
    ids = await done(harness, run, "a b c d", records=3)
    got, after, chosen = [], 0, [ids["a"], ids["b"], ids["d"], ids["d"]]
    while some := await harness.queue.records(run, after=after, limit=2, tasks=chosen):
        assert len(some) <= 2
        got += [json.loads(it.data)["url"] for it in some]
        after = some[-1].seq
    assert got == ["d"] * 3 + ["b"] * 3 + ["a"] * 3


async def test_tasks_without_records_add_nothing(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    ids = await done(harness, run, "a")
    elsewhere = await done(harness, other, "a x")
    await harness.add(run, "open")
    (open_,) = await harness.queue.ids(run, [digest("open")])
    dead = await harness.one()
    await harness.settle(dead, "dead", cause="x")
    assert await texts(harness, run, tasks=[open_, dead.id, 12345, elsewhere["a"]]) == []
    assert await texts(harness, run, tasks=[open_, ids["a"]]) == ["a0", "a1"]


async def test_records_of_many_tasks_are_found(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(600))
    claim = await harness.claim(600)
    await harness.settle_all(claim, records=(b'{"n":1}',))
    chosen = [leased.id for leased in claim.tasks[::2]]
    kept = await harness.queue.records(run, tasks=chosen)
    assert {it.task for it in kept} == set(chosen) and len(kept) == 300


# trim


async def test_trimmed_records_are_gone_but_stay_in_the_account(harness: QueueHarness) -> None:
    run = await harness.run()
    await done(harness, run, "a b c")
    cut = (await harness.queue.records(run))[3].seq
    assert await harness.queue.trim(run, cut) == 4
    assert await texts(harness, run) == ["a0", "a1"]
    stats = await harness.stats(run)
    assert (stats.records, stats.trimmed, stats.done) == (6, 4, 3)
    recount = await harness.queue.recount(run)
    assert (recount.records, recount.trimmed) == (6, 4)
    assert await harness.queue.trim(run, cut + 1) == 1
    assert ((await harness.stats(run)).trimmed, await texts(harness, run)) == (5, ["a1"])


async def test_trimming_again_changes_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await done(harness, run, "a b")
    last = (await harness.queue.records(run))[-1].seq
    assert await harness.queue.trim(run, last) == 4
    assert await harness.queue.trim(run, last) == 0
    assert await harness.queue.trim(run, 0) == 0
    assert (await harness.stats(run)).trimmed == 4


@pytest.mark.parametrize("beyond", [0, 1000])
async def test_no_seq_is_given_twice(harness: QueueHarness, beyond: int) -> None:
    run = await harness.run()
    await done(harness, run, "a")
    last = (await harness.queue.records(run))[-1].seq
    assert await harness.queue.trim(run, last + beyond) == 2
    await done(harness, run, "b")
    assert await texts(harness, run, after=last) == ["b0", "b1"]
    assert min(it.seq for it in await harness.queue.records(run)) > last
    stats = await harness.stats(run)
    assert (stats.records, stats.trimmed) == (4, 2)


async def test_a_task_says_how_many_records_it_had_also_when_they_are_trimmed(harness: QueueHarness) -> None:
    run = await harness.run()
    ids = await done(harness, run, "a b")
    await harness.queue.trim(run, (await harness.queue.records(run))[2].seq)
    assert await texts(harness, run, tasks=[ids["a"], ids["b"]]) == ["a1"]
    assert {view.records for view in await harness.queue.list_tasks(run)} == {2}


async def test_trimming_one_run_leaves_the_others_alone(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await done(harness, one, "a")
    await done(harness, other, "a")
    assert await harness.queue.trim(one, 1000) == 2
    assert len(await harness.queue.records(other)) == 2
    assert ((await harness.stats(other)).records, (await harness.stats(other)).trimmed) == (2, 0)


async def test_trimmed_stays_trimmed_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await done(harness, run, "a b")
    await harness.queue.trim(run, (await harness.queue.records(run))[1].seq)
    await harness.reopen()
    assert await texts(harness, run) == ["a0", "a1"]
    await done(harness, run, "c")
    assert ((await harness.stats(run)).records, (await harness.stats(run)).trimmed) == (6, 2)
