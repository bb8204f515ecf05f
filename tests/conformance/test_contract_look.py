"""look, find, dead_groups, records, workers: what people see."""

from __future__ import annotations

import json

import pytest

from conformance.world import World, failed, page, pages
from shoal.core.lane import Mark
from shoal.core.task import digest
from shoal.queue.base import Where


async def shown(world: World, run: int, **how: object) -> list[str]:
    return [view.url for view in await world.queue.look(run, **how)]


async def one_of_each(world: World) -> int:
    """A run with a task in every state; each task is named for its state."""
    run = await world.run()
    for result in ("done", "dead", "cancelled"):
        await world.add(run, result)
        await world.settle(await world.one(), result, cause="" if result == "done" else "some.cause")
    await world.add(run, "leased")
    await world.one("holder", lease=30.0)
    await world.add(run, "ready")
    await world.add(run, "delayed", delay=60.0)
    return run


async def test_every_state_can_be_listed(world: World) -> None:
    run = await one_of_each(world)
    for state in ("done", "dead", "cancelled", "leased", "delayed"):
        assert await shown(world, run, state=state) == [state]
    assert "ready" in await shown(world, run, state="ready")
    assert await shown(world, run) == ["done", "dead", "cancelled", "leased", "ready", "delayed"]


async def test_a_task_is_found_by_its_identity_in_every_state(world: World) -> None:
    run = await one_of_each(world)
    for state in ("done", "dead", "cancelled", "leased", "ready", "delayed"):
        view = await world.queue.find(run, digest(state))
        assert view is not None
        assert (view.url, view.state, view.run) == (state, state, run)
    assert await world.queue.find(run, digest("never")) is None


async def test_a_task_of_another_run_is_not_found(world: World) -> None:
    run, other = await world.run("one"), await world.run("other")
    await world.add(run, "a")
    assert await world.queue.find(other, digest("a")) is None
    assert await shown(world, other) == []


async def test_a_leased_task_tells_who_holds_it_until_when(world: World) -> None:
    run = await one_of_each(world)
    (view,) = await world.queue.look(run, state="leased")
    assert (view.worker, view.leased_until) == ("holder", await world.queue.now() + 30_000_000)
    assert view.lease > 0


async def test_a_delayed_task_tells_when_it_is_due(world: World) -> None:
    run = await one_of_each(world)
    (view,) = await world.queue.look(run, state="delayed")
    assert view.due_at == await world.queue.now() + 60_000_000


async def test_a_finished_task_tells_when_and_how_many_records(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", priority=4, depth=2, kind="image")
    added = await world.queue.now()
    await world.advance(5)
    await world.settle(await world.one(), records=(b"{}", b"{}"))
    (view,) = await world.queue.look(run, state="done")
    assert (view.records, view.added_at, view.finished_at) == (2, added, added + 5_000_000)
    assert (view.priority, view.depth, view.kind) == (4, 2, "image")


async def test_history_tells_every_attempt(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "retry", **failed("http.503", status=503))
    await world.settle(await world.one(), "retry", **failed("timeout.total"))
    await world.settle(await world.one(), "done")
    view = await world.queue.find(run, digest("a"))
    assert view is not None
    told = [(attempt.cause, attempt.status) for attempt in view.history]
    assert told[:2] == [("http.503", 503), ("timeout.total", 0)]


async def test_pages_of_a_listing_follow_each_other(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(25))
    for leased in (await world.claim(10)).tasks:
        await world.settle(leased, ["done", "dead"][leased.id % 2], cause="x")
    seen, after = list[int](), 0
    while views := await world.queue.look(run, after=after, limit=7):
        assert len(views) <= 7
        seen += [view.id for view in views]
        after = views[-1].id
    assert len(seen) == 25
    assert seen == sorted(set(seen))


async def test_a_listing_ends_where_it_is_told_to(world: World) -> None:
    run = await one_of_each(world)
    ids = [view.id for view in await world.queue.look(run)]
    names = await shown(world, run)
    for first in range(len(ids)):
        for last in range(first, len(ids)):
            inside = await shown(world, run, after=ids[first], upto=ids[last])
            assert inside == names[first + 1 : last + 1]
    assert await shown(world, run, upto=ids[0]) == names[:1]
    assert await shown(world, run, after=ids[2], upto=ids[1]) == []
    assert await shown(world, run, state="ready", upto=ids[3]) == []
    assert await shown(world, run, state="dead", upto=ids[3]) == ["dead"]
    assert await shown(world, run, upto=ids[-1] + 1_000_000) == names


async def test_windows_that_follow_each_other_find_everything_once(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"{'xy'[n % 5 == 0]}{n}") for n in range(30)])
    for leased in (await world.claim(12)).tasks:
        await world.settle(leased, ["done", "dead", "cancelled"][leased.id % 3], cause="x")
    first, last = (await world.queue.look(run))[0].id - 1, (await world.queue.look(run))[-1].id
    found: list[str] = []
    for after in range(first, last, 7):
        found += await shown(world, run, where=Where(url="y*"), after=after, upto=after + 7)
    assert found == [f"y{n}" for n in range(0, 30, 5)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(), ["a1", "a2", "b1", "b2"]),
        (Where(lane="b.test"), ["b1", "b2"]),
        (Where(lane="b"), []),
        (Where(cause="http.500"), ["a1"]),
        (Where(cause="http.5*"), ["a1", "b1"]),
        (Where(cause="http"), []),
        (Where(cause="http.5?0"), []),
        (Where(url="a1"), ["a1"]),
        (Where(url="*2"), ["a2", "b2"]),
        (Where(url="*"), ["a1", "a2", "b1", "b2"]),
        (Where(url="A1"), []),
        (Where(url="[ab]1"), []),
        (Where(lane="b.test", cause="http.*"), ["b1", "b2"]),
        (Where(lane="a.test", url="*1", cause="timeout*"), []),
    ],
)
async def test_filters_choose_dead_letters(world: World, where: Where, expected: list[str]) -> None:
    run = await world.run()
    causes = {"a1": "http.500", "a2": "timeout.total", "b1": "http.502", "b2": "http.404"}
    await world.add(run, [page(url, f"{url[0]}.test") for url in causes])
    for leased in (await world.claim()).tasks:
        await world.settle(leased, "dead", cause=causes[leased.url])
    assert await shown(world, run, state="dead", where=where) == expected
    assert await world.queue.revive(run, where) == len(expected)
    assert (await world.stats(run)).dead == 4 - len(expected)


async def test_a_filter_by_ids_chooses_exactly_those(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    ids = [view.id for view in await world.queue.look(run)]
    assert await shown(world, run, where=Where(ids=(ids[3], ids[1], 12345))) == ["p1", "p3"]


@pytest.mark.parametrize("url", ["http://a.test/?q=[1]", "http://a.test/100%_x", "http://a.test/a'b\"c"])
async def test_only_the_star_is_special_in_a_filter(world: World, url: str) -> None:
    run = await world.run()
    await world.add(run, [page(url), page("http://a.test/other")])
    assert await shown(world, run, where=Where(url=url)) == [url]
    assert await shown(world, run, where=Where(url=url[:-2] + "*")) == [url]


async def test_dead_letters_are_grouped_by_lane_and_cause(world: World) -> None:
    run = await world.run()
    tasks = [page("a1", "a.test"), page("a2", "a.test"), page("a3", "a.test"), page("b1", "b.test")]
    await world.add(run, tasks)
    start = await world.queue.now()
    for leased in (await world.claim()).tasks:
        cause = "http.404" if leased.url == "a3" else "http.500"
        await world.settle(leased, "dead", **failed(cause))
        await world.advance(1)
    groups = {(group.lane, group.cause): group for group in await world.queue.dead_groups(run)}
    assert {key: group.count for key, group in groups.items()} == {
        ("a.test", "http.500"): 2,
        ("a.test", "http.404"): 1,
        ("b.test", "http.500"): 1,
    }
    biggest = groups["a.test", "http.500"]
    assert biggest.sample in ("a1", "a2")
    assert biggest.message == "it was http.500"
    assert start <= biggest.first_at < biggest.last_at <= start + 4_000_000
    assert len(await world.queue.dead_groups(run, limit=2)) == 2


async def test_the_largest_group_of_dead_letters_comes_first(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a1", "a.test"), *pages(3, "b", "b.test"), *pages(2, "c", "c.test")])
    await world.settle_all(await world.claim(), "dead", **failed("http.500"))
    assert [(it.lane, it.count) for it in await world.queue.dead_groups(run)] == [
        ("b.test", 3),
        ("c.test", 2),
        ("a.test", 1),
    ]
    assert [it.lane for it in await world.queue.dead_groups(run, limit=1)] == ["b.test"]


@pytest.mark.parametrize("verb", ["revive", "drop"])
async def test_groups_tell_only_of_what_is_still_dead(world: World, verb: str) -> None:
    run, other = await world.run("one"), await world.run("other")
    await world.add(run, "a b c")
    await world.add(other, "a")
    times = {}
    for leased in (await world.claim()).tasks:
        await world.settle(leased, "dead", **failed("http.500"))
        if leased.run == run:
            times[leased.url] = await world.queue.now()
        await world.advance(1)
    where, how = Where(url="a"), {"state": "dead"} if verb == "drop" else {}
    assert await getattr(world.queue, verb)(run, where, **how) == 1
    (group,) = await world.queue.dead_groups(run)
    assert (group.count, group.first_at, group.last_at) == (2, times["b"], times["c"])
    assert group.sample in ("b", "c")
    assert await getattr(world.queue, verb)(run, Where(), **how) == 2
    assert await world.queue.dead_groups(run) == []
    assert [it.count for it in await world.queue.dead_groups(other)] == [1]


async def test_a_run_without_dead_letters_has_no_groups(world: World) -> None:
    assert await world.queue.dead_groups(await one_of_each(world)) != []
    assert await world.queue.dead_groups(await world.run("clean")) == []


async def test_records_come_page_by_page_in_the_order_of_settling(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    expected = []
    for number, leased in enumerate(reversed((await world.claim()).tasks)):
        data = [{"page": number, "n": n} for n in range(3)]
        expected += data
        await world.settle(leased, records=tuple(json.dumps(item).encode() for item in data))
    got, after = [], 0
    while some := await world.queue.records(run, after=after, limit=4):
        assert len(some) <= 4
        got += [json.loads(record.data) for record in some]
        assert all(record.seq > after for record in some)
        after = some[-1].seq
    assert got == expected


async def test_new_records_follow_the_last_one_seen(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    one, two = (await world.claim()).tasks
    await world.settle(one, records=(b'{"n":1}',))
    last = (await world.queue.records(run))[-1].seq
    assert await world.queue.records(run, after=last) == []
    await world.settle(two, records=(b'{"n":2}',))
    assert [json.loads(record.data) for record in await world.queue.records(run, after=last)] == [{"n": 2}]


async def test_records_of_two_runs_do_not_mix(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await world.add(one, "a")
    await world.add(other, "a")
    for leased in (await world.claim()).tasks:
        await world.settle(leased, records=(json.dumps({"run": leased.run}).encode(),))
    for run in (one, other):
        assert [json.loads(record.data) for record in await world.queue.records(run)] == [{"run": run}]


# workers


def mark(id: str, **more: object) -> Mark:
    return Mark(id, f"name of {id}", "host", 42, "1.0", started_at=5, seen_at=0, **more)


async def test_a_worker_registers_updates_and_is_forgotten(world: World) -> None:
    await world.queue.register(mark("w1"))
    await world.queue.register(mark("w2"))
    await world.queue.register(mark("w1", state="draining", doing="a page"))
    known = {worker.id: worker for worker in await world.queue.workers()}
    assert set(known) == {"w1", "w2"}
    assert (known["w1"].state, known["w1"].doing, known["w1"].name) == ("draining", "a page", "name of w1")
    await world.queue.forget_worker("w1")
    await world.queue.forget_worker("w1")
    assert [worker.id for worker in await world.queue.workers()] == ["w2"]


async def test_forgetting_a_worker_takes_nothing_from_it(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.register(mark("w1"))
    leased = await world.one("w1")
    await world.queue.forget_worker("w1")
    assert await world.settle(leased) == "ok"
