"""Moving: a run exported from one queue and imported into another is the same run there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.harness import LANE, QueueHarness, failed, outcome, page, pages
from conformance.model import ModelQueue
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import TASK_BITS, NewRun
from shoal.core.stats import Stats
from shoal.core.task import SHORT_DIGEST, ExportedTask, LeasedTask, RequestOptions, digest
from shoal.errors import UsageError
from shoal.queue.base import Queue, StoredRecord

ASK = RequestOptions(method="POST", headers=(("X-A", "ü"),), body=b"\x00\xff", session="s", again=2)
NUMBER = (1 << TASK_BITS) - 1


async def populated_run(harness: QueueHarness, queue: Queue | None = None) -> int:
    """A paused run in which everything has happened that can happen to a task."""
    queue = queue or harness.queue
    run = (await queue.start_run(NewRun(scraper="books", key="lived", name="lived"))).id
    names = ["done", "rich", "dead", "gone", "retried", "lost", "held"]
    await queue.add(run, [page(name, priority=7 - n) for n, name in enumerate(names)], {LANE: UNLIMITED_PACE})
    claim = {leased.url: leased for leased in (await queue.claim("w1", 6)).tasks}
    assert [leased.url for leased in (await queue.claim("w2", 1)).tasks] == ["held"]
    await harness.advance(1)

    async def settle(leased: LeasedTask, result: str, **more: object) -> None:
        assert await queue.settle([outcome(leased, result, **more)], {"b.test": Pace(0.5, 3)}) == ["ok"]

    await settle(claim["done"], "done", records=(b'{"n":1}', b'{"n":2}'), redirect_digest=digest("target"))
    child = page("child", "b.test", parent=claim["rich"].id, depth=1, kind="item")
    more = {"records": (b'{"n":3}',), "found": (child,), "skipped": (("scope", "x"), ("robots", "y"))}
    await settle(claim["rich"], "done", **more)
    await settle(claim["dead"], "dead", **failed("http.404", size=50), evidence={"title": "ü", "n": [1]})
    await settle(claim["gone"], "cancelled", cause="robots")
    await settle(claim["retried"], "retry", **failed("timeout.total", seconds=1.5), after=100.0)
    await queue.reap({"w1": [claim["lost"].id]})
    await queue.add(run, [page("asked", request_options=ASK, meta={"line": 3}, priority=-5, ack="auto")])
    await queue.add(run, [page("later", delay=40.0), page("mortal", ttl=90.0), page("plain")])
    await harness.advance(2)
    await queue.set_run(run, "pause")
    return run


async def target(harness: QueueHarness, key: str = "there") -> int:
    run = await harness.run(key)
    await harness.queue.set_run(run, "pause")
    return run


async def all_of(queue: Queue, run: int, limit: int = 500) -> list[ExportedTask]:
    found: list[ExportedTask] = []
    while some := await queue.export_run(run, after=found[-1].number if found else 0, limit=limit):
        assert len(some) <= limit
        found += some
    return found


async def by_url(harness: QueueHarness, run: int) -> dict[str, ExportedTask]:
    return {it.task.url: it for it in await all_of(harness.queue, run)}


async def move(queue: Queue, run: int, there: Queue, to: int, *, chunk: int = 3, times: int = 1) -> None:
    """What `shoal move` does, in small steps, each so many times."""
    counts = await queue.stats(run)
    paces = {it.name: Pace(it.requested, it.max_in_flight) for it in await queue.lanes(run=run)}
    after = 0
    while some := await queue.export_run(run, after=after, limit=chunk):
        for _ in range(times):
            await there.import_run(to, some, paces=paces)
        after = some[-1].number
    after = 0
    while records := await queue.records(run, after=after, limit=2):
        for _ in range(times):
            await there.import_run(to, [], [replace(it, task=it.task & NUMBER) for it in records])
        after = records[-1].seq
    for _ in range(times):
        await there.import_run(to, [], counts=counts)


def comparable(carried: ExportedTask) -> ExportedTask:
    """Some queues keep only the beginning of a digest, and durations are floats."""
    task = carried.task
    ttl = None if task.ttl is None else round(task.ttl, 3)
    task = replace(task, digest=task.digest[:SHORT_DIGEST], delay=round(task.delay, 3), ttl=ttl)
    aliases = tuple(sorted(it[:SHORT_DIGEST] for it in carried.aliases))
    return replace(carried, task=task, aliases=aliases)


# carrying out


async def test_everything_the_run_has_seen_is_exported_by_number(harness: QueueHarness) -> None:
    run = await populated_run(harness)
    out = await all_of(harness.queue, run)
    ended = {"done": "done", "rich": "done", "dead": "dead", "gone": "cancelled"}
    waiting = ["retried", "lost", "held", "child", "asked", "later", "mortal", "plain"]
    assert {it.task.url: it.state for it in out} == ended | dict.fromkeys(waiting, "ready")
    numbers = [it.number for it in out]
    assert numbers == sorted(set(numbers))
    ids = await harness.queue.ids(run, [digest(it.task.url) for it in out])
    assert numbers == [id & NUMBER for id in ids]
    for it in out:
        assert it.task.digest in (digest(it.task.url), digest(it.task.url)[:SHORT_DIGEST])


async def test_page_by_page_is_the_same_as_at_once(harness: QueueHarness) -> None:
    run = await populated_run(harness)
    assert await all_of(harness.queue, run, limit=2) == await all_of(harness.queue, run)


async def test_what_waits_carries_what_is_left_of_its_time(harness: QueueHarness) -> None:
    run = await populated_run(harness)
    out = await by_url(harness, run)
    assert out["later"].task.delay == pytest.approx(38.0)
    assert out["retried"].task.delay == pytest.approx(98.0)
    assert out["mortal"].task.ttl == pytest.approx(88.0)
    assert (out["plain"].task.delay, out["plain"].task.ttl) == (0.0, None)
    await harness.advance(50)
    out = await by_url(harness, run)
    assert out["later"].task.delay == 0.0
    assert out["mortal"].task.ttl == pytest.approx(38.0)


async def test_what_a_task_is_and_what_happened_to_it_is_moved_along(harness: QueueHarness) -> None:
    run = await populated_run(harness)
    out = await by_url(harness, run)
    assert (out["asked"].task.request_options, out["asked"].task.meta) == (ASK, {"line": 3})
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
    assert [it[:SHORT_DIGEST] for it in out["done"].aliases] == [digest("target")[:SHORT_DIGEST]]
    records = {it.seq: it.task & NUMBER for it in await harness.queue.records(run)}
    assert (out["done"].records, out["rich"].records, out["gone"].records) == (2, 1, 0)
    assert records[out["done"].first_record] == records[out["done"].first_record + 1] == out["done"].number
    assert records[out["rich"].first_record] == out["rich"].number


async def test_only_a_run_at_rest_is_exported(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    with pytest.raises(UsageError):
        await harness.queue.export_run(run)
    await harness.queue.set_run(run, "pause")
    assert len(await harness.queue.export_run(run)) == 1


async def test_an_ended_run_is_exported_whole(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.settle_all(await harness.claim(2))
    await harness.queue.set_run(run, "cancel")
    for sweeps in range(4):
        out = await all_of(harness.queue, run)
        assert len(out) == 5 and [it.state for it in out].count("done") == 2, sweeps
        assert {it.state for it in out} - {"done"} <= {"cancelled", "seen"}
        assert {it.task.digest[:SHORT_DIGEST] for it in out} == {digest(f"p{n}")[:SHORT_DIGEST] for n in range(5)}
        await harness.queue.reap()


async def test_a_run_exports_nothing_of_another(harness: QueueHarness) -> None:
    run, other = await populated_run(harness), await target(harness)
    await harness.add(other, "mine")
    assert set(await by_url(harness, other)) == {"mine"}
    assert "mine" not in await by_url(harness, run)


# carrying in


@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_imported_is_what_was_exported(harness: QueueHarness, times: int) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there, times=times)
    ours, theirs = await all_of(harness.queue, run), await all_of(harness.queue, there)
    assert [comparable(it) for it in theirs] == [comparable(it) for it in ours]
    kept = [(it.seq, it.task & NUMBER, it.data) for it in await harness.queue.records(run)]
    assert [(it.seq, it.task & NUMBER, it.data) for it in await harness.queue.records(there)] == kept
    assert {it.task >> TASK_BITS for it in await harness.queue.records(there)} == {there}


@pytest.mark.parametrize("times", [1, 2])
async def test_the_account_is_moved_along_and_adds_up(harness: QueueHarness, times: int) -> None:
    run, there = await populated_run(harness), await target(harness)
    before = await harness.stats(run)
    await move(harness.queue, run, harness.queue, there, times=times)
    after = await harness.stats(there)
    assert after == replace(before, ready=before.ready + before.leased, leased=0)
    assert await harness.queue.recount(there) == after
    assert await harness.queue.orphans(there) == []
    assert (await harness.stats(run)) == before


async def test_a_run_moves_from_any_queue_to_any_other(harness: QueueHarness) -> None:
    model = ModelQueue(harness.clock)
    run = await populated_run(harness, model)
    there = await target(harness)
    await move(model, run, harness.queue, there)
    ours, theirs = await all_of(model, run), await all_of(harness.queue, there)
    assert [comparable(it) for it in theirs] == [comparable(it) for it in ours]
    back = (await model.start_run(NewRun(scraper="books", key="back", name="back"))).id
    await model.set_run(back, "pause")
    await move(harness.queue, there, model, back)
    assert [comparable(it) for it in await all_of(model, back)] == [comparable(it) for it in ours]
    assert await model.stats(back) == await harness.queue.stats(there)


async def test_moved_work_goes_on_to_its_end(harness: QueueHarness) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    await harness.queue.set_run(run, "cancel")
    await harness.queue.set_run(there, "resume")
    await harness.advance(60)
    worked = []
    for _ in range(80):
        claim = await harness.claim(3)
        leased = sum(lane.in_flight for lane in await harness.queue.lanes(run=there))
        assert leased == (await harness.stats(there)).leased == len(claim.tasks)
        worked += [task.url for task in claim.tasks]
        await harness.settle_all(claim, records=(b'{"n":9}',))
        await harness.advance(1)
    assert sorted(worked) == sorted(["retried", "lost", "held", "child", "asked", "later", "plain", "mortal"])
    stats = await harness.stats(there)
    assert (stats.done, stats.dead, stats.cancelled, stats.open, stats.records) == (10, 1, 1, 0, 11)
    assert await harness.queue.recount(there) == stats
    assert (await harness.queue.set_run(there, "finish")).state == "finished"


async def test_a_moved_task_is_handed_out_as_it_was(harness: QueueHarness) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    await harness.queue.set_run(there, "resume")
    first = [(await harness.claim(10)).tasks for _ in range(3)]
    assert [("lost", 1)] in [[(task.url, task.lost) for task in batch] for batch in first], "it comes alone, as before"
    await harness.advance(99)
    tasks = {task.url: task for batch in first for task in batch}
    tasks |= {task.url: task for _ in range(4) for task in (await harness.claim(10)).tasks}
    assert (tasks["asked"].request_options, tasks["asked"].meta, tasks["asked"].ack) == (ASK, {"line": 3}, "auto")
    assert (tasks["retried"].attempts, tasks["retried"].failures) == (1, {"timeout.total": 1})
    (parent,) = await harness.queue.ids(there, [digest("rich")])
    assert (tasks["child"].parent, tasks["child"].depth) == (parent, 1)
    assert tasks["child"].id >> TASK_BITS == there


async def test_a_moved_dead_letter_can_be_revived(harness: QueueHarness) -> None:
    there = await target(harness)
    dead = ExportedTask(
        7, page("a", request_options=ASK, meta={"n": 1}, ttl=-5.0, priority=200), "dead",
        attempts=3, cause="expired",
        added_at=await harness.queue.now() - 60_000_000, finished_at=await harness.queue.now(),
    )  # fmt: skip
    await harness.queue.import_run(there, [dead], paces={LANE: UNLIMITED_PACE})
    assert [(it.lane, it.cause, it.count) for it in await harness.queue.dead_groups(there)] == [(LANE, "expired", 1)]
    assert await harness.queue.revive(there) == 1
    await harness.queue.set_run(there, "resume")
    leased = await harness.one()
    assert (leased.request_options, leased.meta, leased.attempts, leased.priority) == (ASK, {"n": 1}, 0, 200)


async def test_what_was_moved_is_known(harness: QueueHarness) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    names = "done rich dead gone retried lost held asked later mortal plain target"
    assert set(await harness.add(there, names)) == {"known"}
    assert await harness.add(there, "child", lane="b.test") == ["known"]


async def test_new_tasks_come_after_what_was_moved(harness: QueueHarness) -> None:
    harness.need_one_order()
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    last = (await all_of(harness.queue, there))[-1].number
    assert await harness.add(there, "new") == ["added"]
    (new,) = await harness.queue.ids(there, [digest("new")])
    assert new & NUMBER > last


async def test_an_identity_alone_is_enough_to_be_known(harness: QueueHarness) -> None:
    there = await target(harness)
    bare = [ExportedTask(n, replace(page(f"p{n}"), url="", lane=""), "seen") for n in (3, 9)]
    await harness.queue.import_run(there, bare)
    stats = await harness.stats(there)
    assert (stats.seen, stats.cancelled, stats.open) == (2, 2, 0)
    assert await harness.queue.recount(there) == stats
    assert await harness.add(there, "p3 p4 p9") == ["known", "added", "known"]
    assert await harness.state_of(there, "p9") == "cancelled"
    assert [(it.number, it.state) for it in await all_of(harness.queue, there)][:2] == [
        (3, "seen"), (9, "seen"),
    ]  # fmt: skip


async def test_the_beginning_of_a_digest_is_enough_to_be_known(harness: QueueHarness) -> None:
    there = await target(harness)
    short = [replace(page(f"p{n}"), digest=digest(f"p{n}")[:SHORT_DIGEST]) for n in range(4)]
    await harness.queue.import_run(
        there,
        [
            ExportedTask(1, short[0], "done", aliases=(digest("target")[:SHORT_DIGEST],)),
            ExportedTask(2, short[1], "ready"),
            ExportedTask(3, replace(short[2], url="", lane=""), "seen"),
            ExportedTask(4, short[3], "dead", cause="x"),
        ],
        paces={LANE: UNLIMITED_PACE},
    )
    assert await harness.add(there, "p0 p1 p2 p3 target") == ["known"] * 5
    wanted = [digest(url) for url in ("p3", "p0", "target", "other")]
    assert [id & NUMBER for id in await harness.queue.ids(there, wanted)] == [4, 1, 1, 0]
    assert [await harness.state_of(there, f"p{n}") for n in range(4)] == ["done", "ready", "cancelled", "dead"]
    await harness.queue.set_run(there, "resume")
    leased = await harness.one()
    assert await harness.settle(leased, redirect_digest=digest("p0"), records=(b"{}",), found=(page("p2"),)) == "ok"
    stats = await harness.stats(there)
    assert (stats.seen, stats.done, stats.records) == (4, 2, 0), "p0 had been seen as another task"
    assert await harness.queue.recount(there) == stats


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("trimmed", [1, 3])
async def test_new_records_come_after_those_moved_and_those_trimmed(
    harness: QueueHarness, trimmed: int, times: int
) -> None:
    run, there = await populated_run(harness), await target(harness)
    await harness.queue.trim(run, (await harness.queue.records(run))[trimmed - 1].seq)
    await move(harness.queue, run, harness.queue, there, times=times)
    stats = await harness.stats(there)
    assert (stats.records, stats.trimmed) == (3, trimmed)
    assert await harness.queue.recount(there) == stats
    assert len(await harness.queue.records(there)) == 3 - trimmed
    await harness.queue.set_run(there, "resume")
    await harness.settle(await harness.one(serves=["run-1"]), records=(b'{"n":4}',))
    assert (await harness.queue.records(there))[-1].seq > 3
    assert (await harness.stats(there)).records == 4


CAME_WITH_RECORDS = {
    "records": {"tasks": [], "records": [StoredRecord(9, 1, b"{}")]},
    "an account": {"tasks": [], "counts": Stats(trimmed=9)},
}


@pytest.mark.parametrize("known_from", CAME_WITH_RECORDS)
async def test_no_seq_of_the_other_queue_is_given_again(harness: QueueHarness, known_from: str) -> None:
    there = await target(harness)
    await harness.queue.import_run(there, **CAME_WITH_RECORDS[known_from])
    await harness.add(there, "new")
    await harness.queue.set_run(there, "resume")
    await harness.settle(await harness.one(), records=(b'{"n":1}',))
    assert (await harness.queue.records(there))[-1].seq > 9


async def test_lanes_know_what_was_imported(harness: QueueHarness) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    before = {lane.name: (lane.requested, lane.ready) for lane in await harness.queue.lanes(run=run)}
    after = {lane.name: (lane.requested, lane.ready) for lane in await harness.queue.lanes(run=there)}
    asked, ready = before[LANE]
    assert after == before | {LANE: (asked, ready + 1)}, "what was held there waits here"


async def test_records_of_moved_tasks_are_found_by_task(harness: QueueHarness) -> None:
    run, there = await populated_run(harness), await target(harness)
    await move(harness.queue, run, harness.queue, there)
    (rich,) = await harness.queue.ids(there, [digest("rich")])
    assert [it.data for it in await harness.queue.records(there, tasks=[rich])] == [b'{"n":3}']


async def test_only_a_paused_run_takes_over(harness: QueueHarness) -> None:
    run = await harness.run()
    carried, record = ExportedTask(1, page("a"), "done"), StoredRecord(1, 1, b"{}")
    for action in ("resume", "cancel"):
        await harness.queue.set_run(run, action)
        with pytest.raises(UsageError):
            await harness.queue.import_run(run, [carried], [record], counts=Stats(retries=3))
        stats = await harness.stats(run)
        assert (stats.seen, stats.records, stats.retries) == (0, 0, 0)


async def test_importing_a_second_time_does_not_undo_what_happened_since(harness: QueueHarness) -> None:
    there = await target(harness)
    carried = [ExportedTask(n, page(f"p{n}"), "ready") for n in (1, 2)]
    await harness.queue.import_run(there, carried, paces={LANE: UNLIMITED_PACE})
    await harness.queue.set_run(there, "resume")
    await harness.settle(await harness.one(), records=(b"{}",))
    await harness.queue.set_run(there, "pause")
    await harness.queue.import_run(there, carried, paces={LANE: UNLIMITED_PACE})
    stats = await harness.stats(there)
    assert (stats.seen, stats.done, stats.ready, stats.records) == (2, 1, 1, 1)
    assert await harness.queue.recount(there) == stats


async def test_a_thousand_tasks_move_in_a_few_steps(harness: QueueHarness) -> None:
    run, there = await harness.run(), await target(harness)
    await harness.add(run, pages(1000))
    await harness.settle_all(await harness.claim(300), records=(b'{"n":1}',))
    await harness.queue.set_run(run, "pause")
    await move(harness.queue, run, harness.queue, there, chunk=400)
    stats = await harness.stats(there)
    assert (stats.seen, stats.done, stats.ready, stats.records) == (1000, 300, 700, 300)
    assert await harness.queue.recount(there) == stats
