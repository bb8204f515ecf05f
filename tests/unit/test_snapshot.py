"""Snapshot: the fleet at one moment, with the numbers of the store and in few questions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.config.load import Settings, load
from shoal.core.lane import UNLIMITED_PACE, Pace, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, OutboxEntry, Outcome, Task
from shoal.core.url import request_digest
from shoal.queue.base import TaskView
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.identity import SERVER_MODE, begin_seeding
from shoal.sources.start_task import start_tasks
from shoal.view.documents import (
    explanation_document,
    fleet_document,
    host_document,
    status_document,
    task_document,
    watch_document,
    worker_document,
)
from shoal.view.hosts import rank_hosts, require_host
from shoal.view.snapshot import DETAILED_RUNS, MAX_OPEN_RUNS, OLDEST_RUNS, FleetMonitor, take_snapshot
from shoal.view.status import gather_status
from shoal.view.why import describe_origin, explain_task, explain_url

SHARED = {"mode": "distributed"}


class Counting:
    """A queue that counts what it is asked."""

    def __init__(self, queue: SqliteQueue) -> None:
        self._queue = queue
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._queue, name)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"queue": f"sqlite:///{tmp_path}/q.db"}, env={})


async def started(queue: SqliteQueue, name: str, pages: int, host: str = "h.test", **pace: float) -> Run:
    run = await queue.start_run(NewRun("books", f"key of {name}", name, spec=SHARED))
    tasks, _ = start_tasks(f"http://{host}/{name}/{n}" for n in range(pages))
    await queue.add(run.id, tasks, {host: Pace(**pace) if pace else UNLIMITED_PACE})  # type: ignore[arg-type]
    return run


async def work(queue: SqliteQueue, done: int, dead: int = 0) -> None:
    claim = await queue.claim("w-1", done + dead)
    bad = Attempt(at=1, worker="w-1", cause="http.503", message="answered 503", status=503)
    await queue.settle(
        [
            Outcome(task.id, task.lease, "done", records=(b"{}", b"{}"))
            if at < done
            else Outcome(task.id, task.lease, "dead", cause="http.503", attempt=bad)
            for at, task in enumerate(claim.tasks)
        ]
    )


async def registered(queue: SqliteQueue, *ids: str) -> None:
    now = await queue.now()
    for id in ids:
        await queue.register(WorkerStatus(id, id.rpartition("-")[0], "m", 1, "0", now, now, serves=("books",)))


async def test_totals_are_the_accounts_of_all_runs_and_ended_ones_are_listed_after_the_others(
    queue: SqliteQueue, settings: Settings
) -> None:
    old = await started(queue, "old", 4)
    await work(queue, 4)
    await queue.set_run(old.id, "finish")
    one, two = await started(queue, "one", 10), await started(queue, "two", 6, "g.test")
    await work(queue, 5, 2)
    await queue.set_run(two.id, "pause")
    await registered(queue, "w-1")
    seen = await take_snapshot(queue, settings)
    assert [(it.run.name, it.display_state) for it in seen.runs] == [
        ("two", "paused"),
        ("one", "running"),
        ("old", "finished"),
    ]
    first, second = await queue.stats(one.id), await queue.stats(two.id)
    assert seen.totals.seen == 20 and seen.totals.done == first.done + second.done + 4 == 9
    assert seen.totals.records == 18 and seen.unfinished == 2 and not seen.more_runs
    assert seen.unfinished_totals.done == 5
    document = fleet_document(seen)
    assert document["totals"]["open"] == first.open + second.open
    assert [it["done"] for it in document["runs"]] == [second.done, first.done, 4]
    for run in await queue.runs():
        status = status_document(await gather_status(queue, settings, run, rate=0.0))
        (listed,) = [it for it in document["runs"] if it["name"] == run.name]
        shared = status.keys() & listed.keys() - {"workers", "limits", "seconds_left", "pages_per_second", "state"}
        assert {name: status[name] for name in shared} == {name: listed[name] for name in shared}
    assert msgspec.json.encode(document), "it can be sent"


async def test_totals_do_not_fall_when_a_run_ends_and_count_a_revived_one_once(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.view.snapshot.MAX_ENDED_RUNS", 1)
    run, monitor = await started(queue, "one", 4), FleetMonitor(queue, settings)
    await work(queue, 3, 1)

    async def totals() -> tuple[int, int, int]:
        found = (await monitor.snapshot()).totals
        return found.seen, found.done, found.dead

    assert await totals() == (4, 3, 1)
    await queue.set_run(run.id, "finish")
    newer = await started(queue, "newer", 0)
    await queue.set_run(newer.id, "cancel")  # so that the first is not among the newest any more
    assert await totals() == (4, 3, 1)
    assert (await take_snapshot(queue, settings)).totals == (await monitor.snapshot()).totals
    await queue.revive(run.id)
    assert await totals() == (4, 3, 0)


async def test_rates_are_pages_per_second_wherever_they_are_shown(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await started(queue, "one", 100)
    await registered(queue, "w-1")
    monitor, at = FleetMonitor(queue, settings), 1000.0
    monkeypatch.setattr("shoal.view.snapshot.time.monotonic", lambda: at)
    await monitor.snapshot()
    await work(queue, 20, 2)
    at += 4.0
    seen = await monitor.snapshot()
    document = fleet_document(seen)
    assert (document["pages_per_second"], document["failing_per_second"]) == (5.0, 0.5)
    assert [(it["pages_per_second"], it["failing_per_second"]) for it in document["runs"]] == [(5.0, 0.5)]
    assert monitor.rate_of(run.id) == 5.0
    status = await gather_status(queue, settings, run, rate=5.0)
    assert status_document(status)["pages_per_second"] == watch_document(status)["pages_per_second"] == 5.0


async def test_a_rate_that_nobody_knows_yet_is_measured(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await started(queue, "one", 100)
    await registered(queue, "w-1")
    await queue.claim("w-2", 1)

    async def meanwhile(seconds: float) -> None:
        await work(queue, round(10 * seconds))

    monkeypatch.setattr("shoal.view.status.asyncio.sleep", meanwhile)
    assert (await gather_status(queue, settings, run)).rate == 10.0


async def test_a_look_asks_as_much_with_a_thousand_runs_as_with_a_few_dozen(
    queue: SqliteQueue, settings: Settings
) -> None:
    asked = []
    for count in (60, 1_000):
        known = len(await queue.runs(limit=2_000))
        for number in range(known, count):
            await started(queue, f"r{number}", 1, f"h{number % 300}.test")
        counting = Counting(queue)
        seen = await take_snapshot(counting, settings)  # type: ignore[arg-type]
        asked.append(counting.asked)
        assert seen.totals.seen == seen.unfinished == count and len(seen.runs) == min(count, MAX_OPEN_RUNS)
    assert asked[1]["lanes"] == asked[0]["lanes"] == DETAILED_RUNS + 2
    assert asked[1]["list_tasks"] == asked[0]["list_tasks"] == OLDEST_RUNS
    assert sum(asked[1].values()) == sum(asked[0].values()) <= 50
    assert seen.more_runs and len(seen.hosts) == 50


async def test_a_snapshot_source_knows_how_fast_it_goes(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("shoal.view.snapshot.time.monotonic", lambda: clock[0])
    run = await started(queue, "r", 100)
    monitor = FleetMonitor(queue, settings)
    await monitor.snapshot()
    assert monitor.rate_of(run.id) is None
    await work(queue, 40, 8)
    clock[0] += 4.0
    seen = await monitor.snapshot()
    assert (seen.rate, seen.failing, monitor.rate_of(run.id)) == (10.0, 2.0, 10.0)
    clock[0] += 16.0
    assert (await monitor.snapshot()).rate < 1.0
    await work(queue, 100)
    await queue.set_run(run.id, "cancel")
    assert (await monitor.snapshot()).rate == 0.0 and monitor.rate_of(run.id) is None


async def test_parked_hosts_the_oldest_waiting_and_seeding_are_seen(queue: SqliteQueue, settings: Settings) -> None:
    run = await started(queue, "r", 3, "slow.test", spacing=5.0, max_in_flight=1)
    await begin_seeding(queue, "r")
    await queue.set_lane(LaneChange("slow.test", park_for=60.0, reason="403 × 50"))
    seen = await take_snapshot(queue, settings)
    (first,) = await queue.list_tasks(run.id, limit=1)
    assert seen.oldest_at == first.added_at
    assert [lane.name for lane in seen.parked] == ["slow.test"] and seen.runs[0].seeding
    assert seen.runs[0].display_state == "waiting" and "no worker serves it" in seen.runs[0].limits[0][1]
    document = fleet_document(seen)
    assert document["parked"][0]["why_held"].startswith("parked for ") and document["runs"][0]["workers"] == 0


async def test_one_task_has_the_same_story_by_its_id_and_by_its_url(queue: SqliteQueue, settings: Settings) -> None:
    run = await started(queue, "r", 3)
    await work(queue, 0, 1)
    (dead,) = await queue.list_tasks(run.id, state="dead")
    by_id = await explain_task(queue, settings, dead.id)
    by_url = await explain_url(queue, settings, run, dead.url)
    assert by_id is not None and by_id.task == by_url.task == dead
    assert by_id.reason == by_url.reason and "it failed permanently: http.503" in by_id.reason
    document = explanation_document(by_id)
    assert document["url"] == dead.url and document["attempts"][0]["status"] == 503
    assert task_document(dead, "r")["last"]["cause"] == "http.503"


async def test_a_task_that_waits_for_a_full_outbox_says_so(queue: SqliteQueue, settings: Settings) -> None:
    run = await started(queue, "r", 2)
    (task,) = (await queue.claim("w-1", 1)).tasks
    entries = tuple(OutboxEntry("feed", f"{n}", b"") for n in range(10_000))
    await queue.settle([Outcome(task.id, task.lease, "done", outbox=entries)])
    (waiting,) = await queue.list_tasks(run.id, state="ready")
    assert "outbox is full (10,000 waiting)" in (await explain_url(queue, settings, run, waiting.url)).reason
    assert "it is done" in (await explain_url(queue, settings, run, task.url)).reason
    assert (await take_snapshot(queue, settings)).totals.outbox == 10_000


@pytest.mark.parametrize("id", [0, -1, 1, 2**32 + 99, 2**63 - 1, 2**63, 2**80])
async def test_a_number_that_is_no_task_is_nothing(queue: SqliteQueue, settings: Settings, id: int) -> None:
    await started(queue, "r", 1)
    assert await explain_task(queue, settings, id) is None


async def test_a_host_is_found_by_what_people_write_and_the_nearest_is_named(
    queue: SqliteQueue, settings: Settings
) -> None:
    from shoal.errors import UsageError

    await started(queue, "r", 1, "shop.example")
    for word in ("shop.example", "SHOP.example", "http://shop.example/x"):
        assert (await require_host(queue, word)).name == "shop.example"
    for word in ("shopp.example", "shop"):
        with pytest.raises(UsageError) as told:
            await require_host(queue, word)
        assert told.value.hint == "did you mean shop.example?"


async def test_hosts_that_somebody_changed_come_first(queue: SqliteQueue, settings: Settings) -> None:
    for number in range(5):
        await started(queue, f"r{number}", 10 - number, f"h{number}.test")
    await queue.set_lane(LaneChange("h4.test", spacing_override=2.0))
    await queue.set_lane(LaneChange("h3.test", hold_for=60.0))
    now = await queue.now()
    names = [lane.name for lane in await rank_hosts(queue, now, limit=3)]
    assert names == ["h4.test", "h3.test", "h0.test"] or names == ["h3.test", "h4.test", "h0.test"]
    lane = await require_host(queue, "h4.test")
    assert host_document(lane, now)["set_by"] == "a person" and host_document(lane, now)["rule"] == 2.0


async def test_a_worker_is_the_same_in_every_document(queue: SqliteQueue, settings: Settings) -> None:
    run = await started(queue, "r", 3)
    await registered(queue, "w-1", "w-2", "w-10")
    seen = await take_snapshot(queue, settings)
    listed = fleet_document(seen)["workers"]
    assert [it["id"] for it in listed] == ["w-1", "w-2", "w-10"]
    status = await gather_status(queue, settings, run, rate=0.0)
    assert {it["id"] for it in status_document(status)["workers"]} == {"w-1", "w-2", "w-10"}
    keys = worker_document(seen.workers[0], seen.at).keys()
    assert all(it.keys() == keys for it in (*listed, *status_document(status)["workers"]))


async def test_a_run_that_a_server_works_on_needs_one(queue: SqliteQueue, settings: Settings) -> None:
    run = await queue.start_run(NewRun("books", "k", "r", spec={"mode": SERVER_MODE}))
    tasks, _ = start_tasks(["http://h.test/"])
    await queue.add(run.id, tasks)
    await registered(queue, "w-1")
    seen = (await take_snapshot(queue, settings)).runs[0]
    assert seen.display_state == "waiting" and seen.workers == 0 and seen.hint.endswith("shoal serve")
    now = await queue.now()
    await queue.register(WorkerStatus("room-1", "room", "m", 1, "0", now, now, serves=(SERVER_MODE,)))
    seen = (await take_snapshot(queue, settings)).runs[0]
    assert seen.display_state == "running" and seen.workers == 1


async def test_a_url_is_explained_whatever_it_was_asked_for(queue: SqliteQueue, settings: Settings) -> None:
    run = await queue.start_run(NewRun("books", "key", "run"))
    url = "https://a.test/x"
    named = Task(url, "a.test", b"n" * 16, kind="page:detail")
    await queue.add(run.id, [Task("https://a.test/xy", "a.test", b"o" * 16), named])
    made = await explain_url(queue, settings, run, url)
    assert made.task and made.task.kind == "page:detail" and made.others == ()
    await queue.add(run.id, [Task(url, "a.test", request_digest(url))])
    made = await explain_url(queue, settings, run, url)
    assert made.task and made.task.kind == "page"
    assert [(other.kind, other.state) for other in made.others] == [("page:detail", "ready")]
    assert explanation_document(made)["others"] == [
        {"id": made.others[0].id, "kind": "page:detail", "state": "ready", "cause": None}
    ]


async def test_a_url_that_waits_for_the_pace_of_another_run_says_so(queue: SqliteQueue, settings: Settings) -> None:
    slow, fast = {"settings": {"delay": 9.0}}, {"settings": {"delay": 0.5}}
    for name, spec, spacing in (("slow", slow, 9.0), ("fast", fast, 0.5)):
        run = await queue.start_run(NewRun("books", name, name, spec=SHARED | spec))
        tasks, _ = start_tasks(f"http://h.test/{name}/{n}" for n in range(3))
        await queue.add(run.id, tasks, {"h.test": Pace(spacing)})
    made = await explain_url(queue, settings, run, "http://h.test/fast/2")
    assert "h.test at 1 page every 9 s" in made.reason and "run slow asks for that" in made.reason, made.reason


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"url": "https://a.test/"}, "none: it is a start URL"),
        ({"url": "task:thumbnail/7"}, "none: a program enqueued it"),
        ({"url": "", "cause": "discarded"}, "unknown: of a dead letter that was removed only its identity is left"),
        ({"url": "https://a.test/", "parent": 5}, "a page of which nothing is left"),
    ],
)
def test_where_a_task_comes_from_is_said_as_it_is(task: dict[str, Any], words: str) -> None:
    assert describe_origin(TaskView(**({"id": 1, "run": 1, "lane": "", "state": "dead"} | task))) == words
