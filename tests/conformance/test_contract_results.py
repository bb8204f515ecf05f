"""Results: tasks by identity, records by task, and records that have gone to a store of their own."""

from __future__ import annotations

import json

import pytest

from conformance.world import World, pages
from shoal.core.task import digest


async def done(world: World, run: int, urls: str, records: int = 2) -> dict[str, int]:
    """Add pages and settle them, the last one first; their ids by url."""
    await world.add(run, urls)
    ids = {}
    for leased in reversed((await world.claim()).tasks):
        ids[leased.url] = leased.id
        data = (json.dumps({"url": leased.url, "n": n}).encode() for n in range(records))
        assert await world.settle(leased, records=tuple(data)) == "ok"
    return ids


async def texts(world: World, run: int, **words: object) -> list[str]:
    kept = [json.loads(it.data) for it in await world.queue.records(run, **words)]  # type: ignore[arg-type]
    return [f"{it['url']}{it['n']}" for it in kept]


# ids


async def test_ids_come_in_the_order_they_were_asked_for(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(20))
    wanted = ["p7", "p0", "no", "p19", "p7"]
    found = await world.queue.ids(run, [digest(url) for url in wanted])
    expected = []
    for url in wanted:
        view = await world.queue.find(run, digest(url))
        expected.append(view.id if view else 0)
    assert found == expected and found[2] == 0 and 0 not in found[:2]
    assert await world.queue.ids(run, []) == []


async def test_ids_are_found_in_every_state(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b c d e")
    await world.add(run, "late", delay=60.0)
    expected = await world.queue.ids(run, [digest(url) for url in "abcde"])
    for leased, result in zip(
        (await world.claim(4)).tasks, ("done", "dead", "cancelled", "retry"), strict=True
    ):
        await world.settle(leased, result, cause="x")
    assert await world.queue.ids(run, [digest(url) for url in "abcde"]) == expected
    await world.queue.set_run(run, "cancel")
    for _ in range(3):
        await world.queue.reap()
    assert await world.queue.ids(run, [digest(url) for url in "abcde"]) == expected


async def test_ids_of_one_run_are_not_those_of_another(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await world.add(one, "a")
    assert await world.queue.ids(other, [digest("a")]) == [0]
    await world.add(other, "a")
    assert await world.queue.ids(other, [digest("a")]) != await world.queue.ids(one, [digest("a")])


async def test_where_a_redirect_led_is_known_by_its_task(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.settle(leased, same_as=digest("target"))
    assert await world.queue.ids(run, [digest("target")]) == [leased.id]


# records by task


async def test_records_of_chosen_tasks_come_in_the_order_of_settling(world: World) -> None:
    run = await world.run()
    ids = await done(world, run, "a b c d")
    assert await texts(world, run, tasks=[ids["a"], ids["c"]]) == ["c0", "c1", "a0", "a1"]
    assert await texts(world, run, tasks={ids["b"]}) == ["b0", "b1"]
    assert len(await texts(world, run, tasks=())) == 8


async def test_records_of_chosen_tasks_come_page_by_page(world: World) -> None:
    run = await world.run()
    ids = await done(world, run, "a b c d", records=3)
    got, after, chosen = [], 0, [ids["a"], ids["b"], ids["d"], ids["d"]]
    while some := await world.queue.records(run, after=after, limit=2, tasks=chosen):
        assert len(some) <= 2
        got += [json.loads(it.data)["url"] for it in some]
        after = some[-1].seq
    assert got == ["d"] * 3 + ["b"] * 3 + ["a"] * 3


async def test_tasks_without_records_add_nothing(world: World) -> None:
    run, other = await world.run("one"), await world.run("other")
    ids = await done(world, run, "a")
    elsewhere = await done(world, other, "a x")
    await world.add(run, "open")
    (open_,) = await world.queue.ids(run, [digest("open")])
    dead = await world.one()
    await world.settle(dead, "dead", cause="x")
    assert await texts(world, run, tasks=[open_, dead.id, 12345, elsewhere["a"]]) == []
    assert await texts(world, run, tasks=[open_, ids["a"]]) == ["a0", "a1"]


async def test_records_of_many_tasks_are_found(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(600))
    claim = await world.claim(600)
    await world.settle_all(claim, records=(b'{"n":1}',))
    chosen = [leased.id for leased in claim.tasks[::2]]
    kept = await world.queue.records(run, tasks=chosen)
    assert {it.task for it in kept} == set(chosen) and len(kept) == 300


# trim


async def test_trimmed_records_are_gone_but_stay_in_the_account(world: World) -> None:
    run = await world.run()
    await done(world, run, "a b c")
    cut = (await world.queue.records(run))[3].seq
    assert await world.queue.trim(run, cut) == 4
    assert await texts(world, run) == ["a0", "a1"]
    stats = await world.stats(run)
    assert (stats.records, stats.trimmed, stats.done) == (6, 4, 3)
    recount = await world.queue.recount(run)
    assert (recount.records, recount.trimmed) == (6, 4)
    assert await world.queue.trim(run, cut + 1) == 1
    assert ((await world.stats(run)).trimmed, await texts(world, run)) == (5, ["a1"])


async def test_trimming_again_changes_nothing(world: World) -> None:
    run = await world.run()
    await done(world, run, "a b")
    last = (await world.queue.records(run))[-1].seq
    assert await world.queue.trim(run, last) == 4
    assert await world.queue.trim(run, last) == 0
    assert await world.queue.trim(run, 0) == 0
    assert (await world.stats(run)).trimmed == 4


@pytest.mark.parametrize("beyond", [0, 1000])
async def test_no_seq_is_given_twice(world: World, beyond: int) -> None:
    run = await world.run()
    await done(world, run, "a")
    last = (await world.queue.records(run))[-1].seq
    assert await world.queue.trim(run, last + beyond) == 2
    await done(world, run, "b")
    assert await texts(world, run, after=last) == ["b0", "b1"]
    assert min(it.seq for it in await world.queue.records(run)) > last
    stats = await world.stats(run)
    assert (stats.records, stats.trimmed) == (4, 2)


async def test_a_task_says_how_many_records_it_had_also_when_they_are_trimmed(world: World) -> None:
    run = await world.run()
    ids = await done(world, run, "a b")
    await world.queue.trim(run, (await world.queue.records(run))[2].seq)
    assert await texts(world, run, tasks=[ids["a"], ids["b"]]) == ["a1"]
    assert {view.records for view in await world.queue.look(run)} == {2}


async def test_trimming_one_run_leaves_the_others_alone(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await done(world, one, "a")
    await done(world, other, "a")
    assert await world.queue.trim(one, 1000) == 2
    assert len(await world.queue.records(other)) == 2
    assert ((await world.stats(other)).records, (await world.stats(other)).trimmed) == (2, 0)


async def test_trimmed_stays_trimmed_over_a_restart(world: World) -> None:
    run = await world.run()
    await done(world, run, "a b")
    await world.queue.trim(run, (await world.queue.records(run))[1].seq)
    await world.reopen()
    assert await texts(world, run) == ["a0", "a1"]
    await done(world, run, "c")
    assert ((await world.stats(run)).records, (await world.stats(run)).trimmed) == (6, 2)
