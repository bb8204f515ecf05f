"""Moving house: a run carried from one queue to another is the same run there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.model import ModelQueue
from conformance.world import LANE, World, failed, outcome, page, pages
from shoal.core.lane import FREE, Pace
from shoal.core.run import TASK_BITS, NewRun
from shoal.core.stats import Stats
from shoal.core.task import SHORT_DIGEST, Ask, Carried, Leased, digest
from shoal.errors import Usage
from shoal.queue.base import Queue, StoredRecord

ASK = Ask(method="POST", headers=(("X-A", "ü"),), body=b"\x00\xff", session="s")
NUMBER = (1 << TASK_BITS) - 1


async def lived(world: World, queue: Queue | None = None) -> int:
    """A paused run in which everything has happened that can happen to a task."""
    queue = queue or world.queue
    run = (await queue.start_run(NewRun(scraper="books", key="lived", name="lived"))).id
    names = ["done", "rich", "dead", "gone", "retried", "lost", "held"]
    await queue.add(run, [page(name, priority=7 - n) for n, name in enumerate(names)], {LANE: FREE})
    claim = {leased.url: leased for leased in (await queue.claim("w1", 6)).tasks}
    assert [leased.url for leased in (await queue.claim("w2", 1)).tasks] == ["held"]
    await world.advance(1)

    async def settle(leased: Leased, result: str, **more: object) -> None:
        assert await queue.settle([outcome(leased, result, **more)], {"b.test": Pace(0.5, 3)}) == ["ok"]

    await settle(claim["done"], "done", records=(b'{"n":1}', b'{"n":2}'), same_as=digest("target"))
    child = page("child", "b.test", parent=claim["rich"].id, depth=1, kind="item")
    more = {"records": (b'{"n":3}',), "found": (child,), "skipped": (("scope", "x"), ("robots", "y"))}
    await settle(claim["rich"], "done", **more)
    await settle(claim["dead"], "dead", **failed("http.404", size=50), evidence={"title": "ü", "n": [1]})
    await settle(claim["gone"], "cancelled", cause="robots")
    await settle(claim["retried"], "retry", **failed("timeout.total", seconds=1.5), after=100.0)
    await queue.reap({"w1": [claim["lost"].id]})
    await queue.add(run, [page("asked", ask=ASK, meta={"line": 3}, priority=-5)])
    await queue.add(run, [page("later", delay=40.0), page("mortal", ttl=90.0), page("plain")])
    await world.advance(2)
    await queue.set_run(run, "pause")
    return run


async def target(world: World, key: str = "there") -> int:
    run = await world.run(key)
    await world.queue.set_run(run, "pause")
    return run


async def all_of(queue: Queue, run: int, limit: int = 500) -> list[Carried]:
    found: list[Carried] = []
    while some := await queue.carry_out(run, after=found[-1].number if found else 0, limit=limit):
        assert len(some) <= limit
        found += some
    return found


async def by_url(world: World, run: int) -> dict[str, Carried]:
    return {it.task.url: it for it in await all_of(world.queue, run)}


async def move(queue: Queue, run: int, there: Queue, to: int, *, chunk: int = 3, times: int = 1) -> None:
    """What `shoal move` does, in small steps, each so many times."""
    counts = await queue.stats(run)
    paces = {it.name: Pace(it.asked, it.max_in_flight) for it in await queue.lanes(run=run)}
    after = 0
    while some := await queue.carry_out(run, after=after, limit=chunk):
        for _ in range(times):
            await there.carry_in(to, some, paces=paces)
        after = some[-1].number
    after = 0
    while records := await queue.records(run, after=after, limit=2):
        for _ in range(times):
            await there.carry_in(to, [], [replace(it, task=it.task & NUMBER) for it in records])
        after = records[-1].seq
    for _ in range(times):
        await there.carry_in(to, [], counts=counts)


def comparable(carried: Carried) -> Carried:
    """Some queues keep only the beginning of a digest, and durations are floats."""
    task = carried.task
    ttl = None if task.ttl is None else round(task.ttl, 3)
    task = replace(task, digest=task.digest[:SHORT_DIGEST], delay=round(task.delay, 3), ttl=ttl)
    also = tuple(sorted(it[:SHORT_DIGEST] for it in carried.also))
    return replace(carried, task=task, also=also)


# carrying out


async def test_everything_the_run_has_seen_is_carried_out_by_number(world: World) -> None:
    run = await lived(world)
    out = await all_of(world.queue, run)
    ended = {"done": "done", "rich": "done", "dead": "dead", "gone": "cancelled"}
    waiting = ["retried", "lost", "held", "child", "asked", "later", "mortal", "plain"]
    assert {it.task.url: it.state for it in out} == ended | dict.fromkeys(waiting, "ready")
    numbers = [it.number for it in out]
    assert numbers == sorted(set(numbers))
    ids = await world.queue.ids(run, [digest(it.task.url) for it in out])
    assert numbers == [id & NUMBER for id in ids]
    for it in out:
        assert it.task.digest in (digest(it.task.url), digest(it.task.url)[:SHORT_DIGEST])


async def test_page_by_page_is_the_same_as_at_once(world: World) -> None:
    run = await lived(world)
    assert await all_of(world.queue, run, limit=2) == await all_of(world.queue, run)


async def test_what_waits_carries_what_is_left_of_its_time(world: World) -> None:
    run = await lived(world)
    out = await by_url(world, run)
    assert out["later"].task.delay == pytest.approx(38.0)
    assert out["retried"].task.delay == pytest.approx(98.0)
    assert out["mortal"].task.ttl == pytest.approx(88.0)
    assert (out["plain"].task.delay, out["plain"].task.ttl) == (0.0, None)
    await world.advance(50)
    out = await by_url(world, run)
    assert out["later"].task.delay == 0.0
    assert out["mortal"].task.ttl == pytest.approx(38.0)


async def test_what_a_task_is_and_what_happened_to_it_is_carried_along(world: World) -> None:
    run = await lived(world)
    out = await by_url(world, run)
    assert (out["asked"].task.ask, out["asked"].task.meta) == (ASK, {"line": 3})
    assert (out["asked"].task.priority, out["asked"].task.lane, out["asked"].task.kind) == (-5, LANE, "page")
    child = out["child"].task
    assert (child.parent, child.depth, child.kind, child.lane) == (out["rich"].number, 1, "item", "b.test")
    dead = out["dead"]
    assert (dead.cause, dead.attempts, dead.evidence) == ("http.404", 1, {"title": "ü", "n": [1]})
    assert [it.cause for it in dead.history] == ["http.404"] and dead.finished_at > dead.added_at > 0
    retried = out["retried"]
    assert (retried.attempts, [it.seconds for it in retried.history]) == (1, [1.5])
    assert (out["lost"].lost, out["plain"].lost, out["held"].attempts) == (1, 0, 0)
    assert out["gone"].cause == "robots"
    assert [it[:SHORT_DIGEST] for it in out["done"].also] == [digest("target")[:SHORT_DIGEST]]
    records = {it.seq: it.task & NUMBER for it in await world.queue.records(run)}
    assert (out["done"].records, out["rich"].records, out["gone"].records) == (2, 1, 0)
    assert records[out["done"].first_record] == records[out["done"].first_record + 1] == out["done"].number
    assert records[out["rich"].first_record] == out["rich"].number


async def test_only_a_run_at_rest_is_carried_out(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    with pytest.raises(Usage):
        await world.queue.carry_out(run)
    await world.queue.set_run(run, "pause")
    assert len(await world.queue.carry_out(run)) == 1


async def test_an_ended_run_is_carried_out_whole(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    await world.settle_all(await world.claim(2))
    await world.queue.set_run(run, "cancel")
    for sweeps in range(4):
        out = await all_of(world.queue, run)
        assert len(out) == 5 and [it.state for it in out].count("done") == 2, sweeps
        assert {it.state for it in out} - {"done"} <= {"cancelled", "seen"}
        assert {it.task.digest[:SHORT_DIGEST] for it in out} == {
            digest(f"p{n}")[:SHORT_DIGEST] for n in range(5)
        }
        await world.queue.reap()


async def test_a_run_carries_out_nothing_of_another(world: World) -> None:
    run, other = await lived(world), await target(world)
    await world.add(other, "mine")
    assert set(await by_url(world, other)) == {"mine"}
    assert "mine" not in await by_url(world, run)


# carrying in


@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_carried_in_is_what_was_carried_out(world: World, times: int) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there, times=times)
    ours, theirs = await all_of(world.queue, run), await all_of(world.queue, there)
    assert [comparable(it) for it in theirs] == [comparable(it) for it in ours]
    kept = [(it.seq, it.task & NUMBER, it.data) for it in await world.queue.records(run)]
    assert [(it.seq, it.task & NUMBER, it.data) for it in await world.queue.records(there)] == kept
    assert {it.task >> TASK_BITS for it in await world.queue.records(there)} == {there}


@pytest.mark.parametrize("times", [1, 2])
async def test_the_account_is_carried_along_and_adds_up(world: World, times: int) -> None:
    run, there = await lived(world), await target(world)
    before = await world.stats(run)
    await move(world.queue, run, world.queue, there, times=times)
    after = await world.stats(there)
    assert after == replace(before, ready=before.ready + before.leased, leased=0)
    assert await world.queue.recount(there) == after
    assert await world.queue.strays(there) == []
    assert (await world.stats(run)) == before


async def test_a_run_moves_from_any_queue_to_any_other(world: World) -> None:
    model = ModelQueue(world.clock)
    run = await lived(world, model)
    there = await target(world)
    await move(model, run, world.queue, there)
    ours, theirs = await all_of(model, run), await all_of(world.queue, there)
    assert [comparable(it) for it in theirs] == [comparable(it) for it in ours]
    back = (await model.start_run(NewRun(scraper="books", key="back", name="back"))).id
    await model.set_run(back, "pause")
    await move(world.queue, there, model, back)
    assert [comparable(it) for it in await all_of(model, back)] == [comparable(it) for it in ours]
    assert await model.stats(back) == await world.queue.stats(there)


async def test_carried_work_goes_on_to_its_end(world: World) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there)
    await world.queue.set_run(run, "cancel")
    await world.queue.set_run(there, "resume")
    await world.advance(60)
    worked = []
    for _ in range(80):
        claim = await world.claim(3)
        leased = sum(lane.in_flight for lane in await world.queue.lanes(run=there))
        assert leased == (await world.stats(there)).leased == len(claim.tasks)
        worked += [task.url for task in claim.tasks]
        await world.settle_all(claim, records=(b'{"n":9}',))
        await world.advance(1)
    assert sorted(worked) == sorted(["retried", "lost", "held", "child", "asked", "later", "plain", "mortal"])
    stats = await world.stats(there)
    assert (stats.done, stats.dead, stats.cancelled, stats.open, stats.records) == (10, 1, 1, 0, 11)
    assert await world.queue.recount(there) == stats
    assert (await world.queue.set_run(there, "finish")).state == "finished"


async def test_a_carried_task_is_handed_out_as_it_was(world: World) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there)
    await world.queue.set_run(there, "resume")
    first = await world.claim(10)
    assert [(task.url, task.lost) for task in first.tasks] == [("lost", 1)], "it comes alone, as before"
    await world.advance(99)
    tasks = {task.url: task for _ in range(4) for task in (await world.claim(10)).tasks}
    assert (tasks["asked"].ask, tasks["asked"].meta) == (ASK, {"line": 3})
    assert (tasks["retried"].attempts, tasks["retried"].failures) == (1, {"timeout.total": 1})
    (parent,) = await world.queue.ids(there, [digest("rich")])
    assert (tasks["child"].parent, tasks["child"].depth) == (parent, 1)
    assert tasks["child"].id >> TASK_BITS == there


async def test_a_carried_dead_letter_can_be_revived(world: World) -> None:
    there = await target(world)
    dead = Carried(
        7, page("a", ask=ASK, meta={"n": 1}, ttl=-5.0, priority=200), "dead", attempts=3, cause="expired",
        added_at=await world.queue.now() - 60_000_000, finished_at=await world.queue.now(),
    )  # fmt: skip
    await world.queue.carry_in(there, [dead], paces={LANE: FREE})
    assert [(it.lane, it.cause, it.count) for it in await world.queue.dead_groups(there)] == [
        (LANE, "expired", 1)
    ]
    assert await world.queue.revive(there) == 1
    await world.queue.set_run(there, "resume")
    leased = await world.one()
    assert (leased.ask, leased.meta, leased.attempts, leased.priority) == (ASK, {"n": 1}, 0, 200)


async def test_what_was_carried_is_known_and_new_tasks_come_after_it(world: World) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there)
    last = (await all_of(world.queue, there))[-1].number
    names = "done rich dead gone retried lost held child asked later mortal plain target"
    assert set(await world.add(there, names)) == {"known"}
    assert await world.add(there, "new") == ["added"]
    (new,) = await world.queue.ids(there, [digest("new")])
    assert new & NUMBER > last


async def test_an_identity_alone_is_enough_to_be_known(world: World) -> None:
    there = await target(world)
    bare = [Carried(n, replace(page(f"p{n}"), url="", lane=""), "seen") for n in (3, 9)]
    await world.queue.carry_in(there, bare)
    stats = await world.stats(there)
    assert (stats.seen, stats.cancelled, stats.open) == (2, 2, 0)
    assert await world.queue.recount(there) == stats
    assert await world.add(there, "p3 p4 p9") == ["known", "added", "known"]
    assert await world.state_of(there, "p9") == "cancelled"
    assert [(it.number, it.state) for it in await all_of(world.queue, there)][:2] == [
        (3, "seen"), (9, "seen"),
    ]  # fmt: skip


async def test_the_beginning_of_a_digest_is_enough_to_be_known(world: World) -> None:
    there = await target(world)
    short = [replace(page(f"p{n}"), digest=digest(f"p{n}")[:SHORT_DIGEST]) for n in range(4)]
    await world.queue.carry_in(
        there,
        [
            Carried(1, short[0], "done", also=(digest("target")[:SHORT_DIGEST],)),
            Carried(2, short[1], "ready"),
            Carried(3, replace(short[2], url="", lane=""), "seen"),
            Carried(4, short[3], "dead", cause="x"),
        ],
        paces={LANE: FREE},
    )
    assert await world.add(there, "p0 p1 p2 p3 target") == ["known"] * 5
    wanted = [digest(url) for url in ("p3", "p0", "target", "other")]
    assert [id & NUMBER for id in await world.queue.ids(there, wanted)] == [4, 1, 1, 0]
    assert [await world.state_of(there, f"p{n}") for n in range(4)] == ["done", "ready", "cancelled", "dead"]
    await world.queue.set_run(there, "resume")
    leased = await world.one()
    assert await world.settle(leased, same_as=digest("p0"), records=(b"{}",), found=(page("p2"),)) == "ok"
    stats = await world.stats(there)
    assert (stats.seen, stats.done, stats.records) == (4, 2, 0), "p0 had been seen as another task"
    assert await world.queue.recount(there) == stats


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("trimmed", [1, 3])
async def test_new_records_come_after_those_carried_and_those_trimmed(
    world: World, trimmed: int, times: int
) -> None:
    run, there = await lived(world), await target(world)
    await world.queue.trim(run, (await world.queue.records(run))[trimmed - 1].seq)
    await move(world.queue, run, world.queue, there, times=times)
    stats = await world.stats(there)
    assert (stats.records, stats.trimmed) == (3, trimmed)
    assert await world.queue.recount(there) == stats
    assert len(await world.queue.records(there)) == 3 - trimmed
    await world.queue.set_run(there, "resume")
    await world.settle(await world.one(serves=["run-1"]), records=(b'{"n":4}',))
    assert (await world.queue.records(there))[-1].seq > 3
    assert (await world.stats(there)).records == 4


CAME_WITH_RECORDS = {
    "records": {"tasks": [], "records": [StoredRecord(9, 1, b"{}")]},
    "an account": {"tasks": [], "counts": Stats(trimmed=9)},
}


@pytest.mark.parametrize("known_from", CAME_WITH_RECORDS)
async def test_no_seq_of_the_other_queue_is_given_again(world: World, known_from: str) -> None:
    there = await target(world)
    await world.queue.carry_in(there, **CAME_WITH_RECORDS[known_from])
    await world.add(there, "new")
    await world.queue.set_run(there, "resume")
    await world.settle(await world.one(), records=(b'{"n":1}',))
    assert (await world.queue.records(there))[-1].seq > 9


async def test_lanes_know_what_was_carried_in(world: World) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there)
    before = {lane.name: (lane.asked, lane.ready) for lane in await world.queue.lanes(run=run)}
    after = {lane.name: (lane.asked, lane.ready) for lane in await world.queue.lanes(run=there)}
    asked, ready = before[LANE]
    assert after == before | {LANE: (asked, ready + 1)}, "what was held there waits here"


async def test_records_of_carried_tasks_are_found_by_task(world: World) -> None:
    run, there = await lived(world), await target(world)
    await move(world.queue, run, world.queue, there)
    (rich,) = await world.queue.ids(there, [digest("rich")])
    assert [it.data for it in await world.queue.records(there, tasks=[rich])] == [b'{"n":3}']


async def test_only_a_paused_run_takes_over(world: World) -> None:
    run = await world.run()
    carried, record = Carried(1, page("a"), "done"), StoredRecord(1, 1, b"{}")
    for action in ("resume", "cancel"):
        await world.queue.set_run(run, action)
        with pytest.raises(Usage):
            await world.queue.carry_in(run, [carried], [record], counts=Stats(retries=3))
        stats = await world.stats(run)
        assert (stats.seen, stats.records, stats.retries) == (0, 0, 0)


async def test_carrying_in_a_second_time_does_not_undo_what_happened_since(world: World) -> None:
    there = await target(world)
    carried = [Carried(n, page(f"p{n}"), "ready") for n in (1, 2)]
    await world.queue.carry_in(there, carried, paces={LANE: FREE})
    await world.queue.set_run(there, "resume")
    await world.settle(await world.one(), records=(b"{}",))
    await world.queue.set_run(there, "pause")
    await world.queue.carry_in(there, carried, paces={LANE: FREE})
    stats = await world.stats(there)
    assert (stats.seen, stats.done, stats.ready, stats.records) == (2, 1, 1, 1)
    assert await world.queue.recount(there) == stats


async def test_a_thousand_tasks_move_in_a_few_steps(world: World) -> None:
    run, there = await world.run(), await target(world)
    await world.add(run, pages(1000))
    await world.settle_all(await world.claim(300), records=(b'{"n":1}',))
    await world.queue.set_run(run, "pause")
    await move(world.queue, run, world.queue, there, chunk=400)
    stats = await world.stats(there)
    assert (stats.seen, stats.done, stats.ready, stats.records) == (1000, 300, 700, 300)
    assert await world.queue.recount(there) == stats
