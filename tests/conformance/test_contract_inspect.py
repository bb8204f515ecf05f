"""list_tasks, find, dead_groups, records, workers: what people see."""

from __future__ import annotations

import json

import pytest

from conformance.harness import QueueHarness, failed, page, pages
from shoal.core.lane import WorkerStatus
from shoal.core.task import digest
from shoal.queue.base import TaskFilter


async def shown(harness: QueueHarness, run: int, **how: object) -> list[str]:
    return [view.url for view in await harness.queue.list_tasks(run, **how)]


async def one_of_each(harness: QueueHarness) -> int:
    """A run with a task in every state; each task is named for its state."""
    run = await harness.run()
    for result in ("done", "dead", "cancelled"):
        await harness.add(run, result)
        await harness.settle(await harness.one(), result, cause="" if result == "done" else "some.cause")
    await harness.add(run, "leased")
    await harness.one("holder", lease=30.0)
    await harness.add(run, "ready")
    await harness.add(run, "delayed", delay=60.0)
    return run


async def test_every_state_can_be_listed(harness: QueueHarness) -> None:
    run = await one_of_each(harness)
    for state in ("done", "dead", "cancelled", "leased", "delayed"):
        assert await shown(harness, run, state=state) == [state]
    assert "ready" in await shown(harness, run, state="ready")
    assert await shown(harness, run) == ["done", "dead", "cancelled", "leased", "ready", "delayed"]


async def test_a_task_is_found_by_its_identity_in_every_state(harness: QueueHarness) -> None:
    run = await one_of_each(harness)
    for state in ("done", "dead", "cancelled", "leased", "ready", "delayed"):
        view = await harness.queue.find(run, digest(state))
        assert view is not None
        assert (view.url, view.state, view.run) == (state, state, run)
    assert await harness.queue.find(run, digest("never")) is None


async def test_a_task_of_another_run_is_not_found(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, "a")
    assert await harness.queue.find(other, digest("a")) is None
    assert await shown(harness, other) == []


async def test_a_leased_task_tells_who_holds_it_until_when(harness: QueueHarness) -> None:
    run = await one_of_each(harness)
    (view,) = await harness.queue.list_tasks(run, state="leased")
    assert (view.worker, view.leased_until) == ("holder", await harness.queue.now() + 30_000_000)
    assert view.lease > 0


async def test_a_delayed_task_tells_when_it_is_due(harness: QueueHarness) -> None:
    run = await one_of_each(harness)
    (view,) = await harness.queue.list_tasks(run, state="delayed")
    assert view.due_at == await harness.queue.now() + 60_000_000


async def test_a_finished_task_tells_when_and_how_many_records(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", priority=4, depth=2, kind="image")
    added = await harness.queue.now()
    await harness.advance(5)
    await harness.settle(await harness.one(), records=(b"{}", b"{}"))
    (view,) = await harness.queue.list_tasks(run, state="done")
    assert (view.records, view.added_at, view.finished_at) == (2, added, added + 5_000_000)
    assert (view.priority, view.depth, view.kind) == (4, 2, "image")


async def test_history_tells_every_attempt(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "retry", **failed("http.503", status=503))
    await harness.settle(await harness.one(), "retry", **failed("timeout.total"))
    await harness.settle(await harness.one(), "done")
    view = await harness.queue.find(run, digest("a"))
    assert view is not None
    told = [(attempt.cause, attempt.status) for attempt in view.history]
    assert told[:2] == [("http.503", 503), ("timeout.total", 0)]


async def test_pages_of_a_listing_follow_each_other(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(25))
    for leased in (await harness.claim(10)).tasks:
        await harness.settle(leased, ["done", "dead"][leased.id % 2], cause="x")
    seen, after = list[int](), 0
    while views := await harness.queue.list_tasks(run, after=after, limit=7):
        assert len(views) <= 7
        seen += [view.id for view in views]
        after = views[-1].id
    assert len(seen) == 25
    assert seen == sorted(set(seen))


async def test_a_listing_ends_where_it_is_told_to(harness: QueueHarness) -> None:
    run = await one_of_each(harness)
    ids = [view.id for view in await harness.queue.list_tasks(run)]
    names = await shown(harness, run)
    for first in range(len(ids)):
        for last in range(first, len(ids)):
            inside = await shown(harness, run, after=ids[first], upto=ids[last])
            assert inside == names[first + 1 : last + 1]
    assert await shown(harness, run, upto=ids[0]) == names[:1]
    assert await shown(harness, run, after=ids[2], upto=ids[1]) == []
    assert await shown(harness, run, state="ready", upto=ids[3]) == []
    assert await shown(harness, run, state="dead", upto=ids[3]) == ["dead"]
    assert await shown(harness, run, upto=ids[-1] + 1_000_000) == names


async def test_windows_that_follow_each_other_find_everything_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{'xy'[n % 5 == 0]}{n}") for n in range(30)])
    for leased in (await harness.claim(12)).tasks:
        await harness.settle(leased, ["done", "dead", "cancelled"][leased.id % 3], cause="x")
    first, last = ((await harness.queue.list_tasks(run))[0].id - 1, (await harness.queue.list_tasks(run))[-1].id)
    found: list[str] = []
    for after in range(first, last, 7):
        found += await shown(harness, run, where=TaskFilter(url="y*"), after=after, upto=after + 7)
    assert found == [f"y{n}" for n in range(0, 30, 5)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (TaskFilter(), ["a1", "a2", "b1", "b2"]),
        (TaskFilter(lane="b.test"), ["b1", "b2"]),
        (TaskFilter(lane="b"), []),
        (TaskFilter(cause="http.500"), ["a1"]),
        (TaskFilter(cause="http.5*"), ["a1", "b1"]),
        (TaskFilter(cause="http"), []),
        (TaskFilter(cause="http.5?0"), []),
        (TaskFilter(url="a1"), ["a1"]),
        (TaskFilter(url="*2"), ["a2", "b2"]),
        (TaskFilter(url="*"), ["a1", "a2", "b1", "b2"]),
        (TaskFilter(url="A1"), []),
        (TaskFilter(url="[ab]1"), []),
        (TaskFilter(lane="b.test", cause="http.*"), ["b1", "b2"]),
        (TaskFilter(lane="a.test", url="*1", cause="timeout*"), []),
    ],
)
async def test_filters_choose_dead_letters(harness: QueueHarness, where: TaskFilter, expected: list[str]) -> None:
    run = await harness.run()
    causes = {"a1": "http.500", "a2": "timeout.total", "b1": "http.502", "b2": "http.404"}
    await harness.add(run, [page(url, f"{url[0]}.test") for url in causes])
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, "dead", cause=causes[leased.url])
    assert sorted(await shown(harness, run, state="dead", where=where)) == expected
    assert await harness.queue.revive(run, where) == len(expected)
    assert (await harness.stats(run)).dead == 4 - len(expected)


async def test_a_filter_by_ids_chooses_exactly_those(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    ids = [view.id for view in await harness.queue.list_tasks(run)]
    assert await shown(harness, run, where=TaskFilter(ids=(ids[3], ids[1], 12345))) == ["p1", "p3"]


@pytest.mark.parametrize("url", ["http://a.test/?q=[1]", "http://a.test/100%_x", "http://a.test/a'b\"c"])
async def test_only_the_star_is_special_in_a_filter(harness: QueueHarness, url: str) -> None:
    run = await harness.run()
    await harness.add(run, [page(url), page("http://a.test/other")])
    assert await shown(harness, run, where=TaskFilter(url=url)) == [url]
    assert await shown(harness, run, where=TaskFilter(url=url[:-2] + "*")) == [url]


async def test_dead_letters_are_grouped_by_lane_and_cause(harness: QueueHarness) -> None:
    run = await harness.run()
    tasks = [page("a1", "a.test"), page("a2", "a.test"), page("a3", "a.test"), page("b1", "b.test")]
    await harness.add(run, tasks)
    start = await harness.queue.now()
    for leased in (await harness.claim()).tasks:
        cause = "http.404" if leased.url == "a3" else "http.500"
        await harness.settle(leased, "dead", **failed(cause))
        await harness.advance(1)
    groups = {(group.lane, group.cause): group for group in await harness.queue.dead_groups(run)}
    assert {key: group.count for key, group in groups.items()} == {
        ("a.test", "http.500"): 2,
        ("a.test", "http.404"): 1,
        ("b.test", "http.500"): 1,
    }
    biggest = groups["a.test", "http.500"]
    assert biggest.sample in ("a1", "a2")
    assert biggest.message == "it was http.500"
    assert start <= biggest.first_at < biggest.last_at <= start + 4_000_000
    assert len(await harness.queue.dead_groups(run, limit=2)) == 2


async def test_the_largest_group_of_dead_letters_comes_first(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a1", "a.test"), *pages(3, "b", "b.test"), *pages(2, "c", "c.test")])
    await harness.settle_all(await harness.claim(), "dead", **failed("http.500"))
    assert [(it.lane, it.count) for it in await harness.queue.dead_groups(run)] == [
        ("b.test", 3),
        ("c.test", 2),
        ("a.test", 1),
    ]
    assert [it.lane for it in await harness.queue.dead_groups(run, limit=1)] == ["b.test"]


@pytest.mark.parametrize("verb", ["revive", "drop"])
async def test_groups_tell_only_of_what_is_still_dead(harness: QueueHarness, verb: str) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, "a b c")
    await harness.add(other, "a")
    times = {}
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, "dead", **failed("http.500"))
        if leased.run == run:
            times[leased.url] = await harness.queue.now()
        await harness.advance(1)
    where, how = TaskFilter(url="a"), {"state": "dead"} if verb == "drop" else {}
    assert await getattr(harness.queue, verb)(run, where, **how) == 1
    (group,) = await harness.queue.dead_groups(run)
    assert (group.count, group.first_at, group.last_at) == (2, times["b"], times["c"])
    assert group.sample in ("b", "c")
    assert await getattr(harness.queue, verb)(run, TaskFilter(), **how) == 2
    assert await harness.queue.dead_groups(run) == []
    assert [it.count for it in await harness.queue.dead_groups(other)] == [1]


async def test_a_run_without_dead_letters_has_no_groups(harness: QueueHarness) -> None:
    assert await harness.queue.dead_groups(await one_of_each(harness)) != []
    assert await harness.queue.dead_groups(await harness.run("clean")) == []


async def test_records_come_page_by_page_in_the_order_of_settling(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    expected = []
    for number, leased in enumerate(reversed((await harness.claim()).tasks)):
        data = [{"page": number, "n": n} for n in range(3)]
        expected += data
        await harness.settle(leased, records=tuple(json.dumps(item).encode() for item in data))
    got, after = [], 0
    while some := await harness.queue.records(run, after=after, limit=4):
        assert len(some) <= 4
        got += [json.loads(record.data) for record in some]
        assert all(record.seq > after for record in some)
        after = some[-1].seq
    assert got == expected


async def test_new_records_follow_the_last_one_seen(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    one, two = (await harness.claim()).tasks
    await harness.settle(one, records=(b'{"n":1}',))
    last = (await harness.queue.records(run))[-1].seq
    assert await harness.queue.records(run, after=last) == []
    await harness.settle(two, records=(b'{"n":2}',))
    assert [json.loads(record.data) for record in await harness.queue.records(run, after=last)] == [{"n": 2}]


async def test_records_of_two_runs_do_not_mix(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await harness.add(one, "a")
    await harness.add(other, "a")
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, records=(json.dumps({"run": leased.run}).encode(),))
    for run in (one, other):
        assert [json.loads(record.data) for record in await harness.queue.records(run)] == [{"run": run}]


# workers


def worker_status(id: str, **more: object) -> WorkerStatus:
    return WorkerStatus(id, f"name of {id}", "host", 42, "1.0", started_at=5, seen_at=0, **more)


async def test_a_worker_registers_updates_and_is_forgotten(harness: QueueHarness) -> None:
    await harness.queue.register(worker_status("w1"))
    await harness.queue.register(worker_status("w2"))
    await harness.queue.register(worker_status("w1", state="draining", activity="a page"))
    known = {worker.id: worker for worker in await harness.queue.workers()}
    assert set(known) == {"w1", "w2"}
    assert (known["w1"].state, known["w1"].activity, known["w1"].name) == ("draining", "a page", "name of w1")
    await harness.queue.forget_worker("w1")
    await harness.queue.forget_worker("w1")
    assert [worker.id for worker in await harness.queue.workers()] == ["w2"]


async def test_forgetting_a_worker_takes_nothing_from_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.register(worker_status("w1"))
    leased = await harness.one("w1")
    await harness.queue.forget_worker("w1")
    assert await harness.settle(leased) == "ok"


async def test_of_a_leased_task_it_is_said_when_its_ttl_runs_out(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("short", ttl=60.0), page("for ever")])
    claim = await harness.claim(2)
    told = {view.url: view for view in await harness.queue.list_tasks(run, state="leased")}
    assert told["short"].expires_at == told["short"].added_at + 60_000_000
    assert told["for ever"].expires_at == 0
    assert all(task.expires_at == told[task.url].expires_at for task in claim.tasks)
