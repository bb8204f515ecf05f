"""record_keys: of records with one key, a run keeps the first."""

from __future__ import annotations

import json

from conformance.harness import QueueHarness, failed, outcome
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.task import LeasedTask, Outcome, digest


def keyed(leased: LeasedTask, *keys: str, **more: object) -> Outcome:
    records = tuple(json.dumps({"of": leased.url, "key": key}).encode() for key in keys)
    return outcome(leased, records=records, record_keys=tuple(digest(key) if key else b"" for key in keys), **more)


async def kept(harness: QueueHarness, run: int) -> list[tuple[str, str]]:
    found = [json.loads(record.data) for record in await harness.queue.records(run)]
    return [(record["of"], record["key"]) for record in found]


async def claimed(harness: QueueHarness, urls: str) -> tuple[int, dict[str, LeasedTask]]:
    run = await harness.run()
    await harness.add(run, urls, pace=UNLIMITED_PACE)
    return run, {leased.url: leased for leased in (await harness.claim()).tasks}


async def test_of_two_records_with_one_key_the_first_is_kept(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a b")
    assert await harness.queue.settle([keyed(held["a"], "x", "y")]) == ["ok"]
    assert await harness.queue.settle([keyed(held["b"], "y", "z")]) == ["ok"]
    assert await kept(harness, run) == [("a", "x"), ("a", "y"), ("b", "z")]
    stats = await harness.stats(run)
    assert (stats.done, stats.records, stats.seen) == (2, 3, 2), "a key is not a task"
    assert (await harness.queue.recount(run)).records == 3


async def test_in_one_settle_the_first_is_kept_too(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a b")
    assert await harness.queue.settle([keyed(held["a"], "x"), keyed(held["b"], "x")]) == ["ok", "ok"]
    assert await kept(harness, run) == [("a", "x")]


async def test_a_record_without_a_key_is_always_kept(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a b")
    for leased in held.values():
        await harness.queue.settle([keyed(leased, "", "x", "")])
    assert await kept(harness, run) == [("a", ""), ("a", "x"), ("a", ""), ("b", ""), ("b", "")]


async def test_the_records_of_a_task_are_found_though_some_of_them_were_dropped(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a b c")
    await harness.queue.settle([keyed(held["a"], "x")])
    await harness.queue.settle([keyed(held["b"], "x", "y")])
    await harness.queue.settle([keyed(held["c"], "y")])
    counts = {task.url: task.records for task in await harness.queue.list_tasks(run, state="done")}
    assert counts == {"a": 1, "b": 1, "c": 0}


async def test_a_key_in_another_run_is_another_key(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    for run in (one, other):
        await harness.add(run, "a", pace=UNLIMITED_PACE)
    for leased in (await harness.claim()).tasks:
        await harness.queue.settle([keyed(leased, "x")])
    assert len(await kept(harness, one)) == len(await kept(harness, other)) == 1


async def test_a_page_that_is_dropped_leaves_the_keys_to_the_other(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "target a")
    await harness.queue.settle([keyed(held["a"], "x", redirect_digest=digest("target"))])
    await harness.queue.settle([keyed(held["target"], "x")])
    assert await kept(harness, run) == [("target", "x")]


async def test_keys_of_a_late_answer_do_not_count(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=UNLIMITED_PACE)
    late = await harness.one(lease=5.0)
    await harness.advance(6)
    await harness.queue.reap()
    await harness.add(run, "b", pace=UNLIMITED_PACE)
    held = {}
    for _ in range(2):  # one that has lost a worker comes alone
        held |= {leased.url: leased for leased in (await harness.claim()).tasks}
    assert await harness.queue.settle([keyed(late, "x")]) == ["stale"]
    await harness.queue.settle([keyed(held["b"], "x")])
    assert await kept(harness, run) == [("b", "x")]


async def test_keys_of_an_attempt_that_failed_do_not_count(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a b")
    lost = keyed(held["a"], "x")
    await harness.queue.settle([outcome(held["a"], "dead", **failed("http.500"), record_keys=lost.record_keys)])
    await harness.queue.settle([keyed(held["b"], "x")])
    assert await kept(harness, run) == [("b", "x")]


async def test_a_repeated_settle_keeps_its_own_records(harness: QueueHarness) -> None:
    run, held = await claimed(harness, "a")
    word = keyed(held["a"], "x")
    assert await harness.queue.settle([word]) == ["ok"]
    assert await harness.queue.settle([word]) == ["already"]
    assert await kept(harness, run) == [("a", "x")]
