"""Snapshot: the fleet at one moment, with the numbers of the store and in few questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.config import Settings, load
from shoal.control.runs import HERE, seeding_began
from shoal.core.lane import FREE, Mark, Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, Outcome
from shoal.extract.links import start_tasks
from shoal.queue.sqlite import SqliteQueue
from shoal.view.documents import (
    answer_document,
    fleet_document,
    host_document,
    status_document,
    task_document,
    worker_document,
)
from shoal.view.hosts import host_named, ranked
from shoal.view.snapshot import CLOSE_RUNS, OLD_RUNS, OPEN_RUNS, Lookout, look
from shoal.view.status import gather
from shoal.view.why import explain, explain_id

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
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    yield opened
    await opened.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"queue": f"sqlite:///{tmp_path}/q.db"}, env={})


async def started(queue: SqliteQueue, name: str, pages: int, host: str = "h.test", **pace: float) -> Run:
    run = await queue.start_run(NewRun("books", f"key of {name}", name, spec=SHARED))
    tasks, _ = start_tasks(f"http://{host}/{name}/{n}" for n in range(pages))
    await queue.add(run.id, tasks, {host: Pace(**pace) if pace else FREE})  # type: ignore[arg-type]
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
        await queue.register(Mark(id, id.rpartition("-")[0], "m", 1, "0", now, now, serves=("books",)))


async def test_totals_are_the_accounts_of_the_unfinished_and_ended_ones_are_listed_after_them(
    queue: SqliteQueue, settings: Settings
) -> None:
    old = await started(queue, "old", 4)
    await work(queue, 4)
    await queue.set_run(old.id, "finish")
    one, two = await started(queue, "one", 10), await started(queue, "two", 6, "g.test")
    await work(queue, 5, 2)
    await queue.set_run(two.id, "pause")
    await registered(queue, "w-1")
    seen = await look(queue, settings)
    assert [(it.run.name, it.standing) for it in seen.runs] == [
        ("two", "paused"),
        ("one", "running"),
        ("old", "finished"),
    ]
    first, second = await queue.stats(one.id), await queue.stats(two.id)
    assert seen.totals.seen == 16 and seen.totals.done == first.done + second.done == 5
    assert seen.totals.records == 10 and seen.unfinished == 2 and not seen.more_runs
    document = fleet_document(seen)
    assert document["totals"]["open"] == first.open + second.open
    assert [it["done"] for it in document["runs"]] == [second.done, first.done, 4]
    for run in await queue.runs():
        status = status_document(await gather(queue, settings, run, rate=0.0))
        (listed,) = [it for it in document["runs"] if it["name"] == run.name]
        shared = status.keys() & listed.keys() - {
            "workers",
            "limits",
            "seconds_left",
            "pages_per_second",
            "state",
        }
        assert {name: status[name] for name in shared} == {name: listed[name] for name in shared}
    assert msgspec.json.encode(document), "it can be sent"


async def test_a_look_asks_as_much_with_a_thousand_runs_as_with_a_few_dozen(
    queue: SqliteQueue, settings: Settings
) -> None:
    asked = []
    for count in (60, 1_000):
        known = len(await queue.runs(limit=2_000))
        for number in range(known, count):
            await started(queue, f"r{number}", 1, f"h{number % 300}.test")
        counting = Counting(queue)
        seen = await look(counting, settings)  # type: ignore[arg-type]
        asked.append(counting.asked)
        assert seen.totals.seen == seen.unfinished == count and len(seen.runs) == min(count, OPEN_RUNS)
    assert asked[1]["lanes"] == asked[0]["lanes"] == CLOSE_RUNS + 2
    assert asked[1]["look"] == asked[0]["look"] == OLD_RUNS
    assert sum(asked[1].values()) == sum(asked[0].values()) < 50
    assert seen.more_runs and len(seen.hosts) == 50


async def test_a_lookout_knows_how_fast_it_goes(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("shoal.view.snapshot.time.monotonic", lambda: clock[0])
    run = await started(queue, "r", 100)
    lookout = Lookout(queue, settings)
    await lookout.look()
    assert lookout.rate_of(run.id) is None
    await work(queue, 20, 4)
    clock[0] += 2.0
    seen = await lookout.look()
    assert (seen.rate, seen.failing, lookout.rate_of(run.id)) == (10.0, 2.0, 10.0)
    clock[0] += 20.0
    assert (await lookout.look()).rate < 1.0
    await work(queue, 100)
    await queue.set_run(run.id, "cancel")
    assert (await lookout.look()).rate == 0.0 and lookout.rate_of(run.id) is None


async def test_parked_hosts_the_oldest_waiting_and_seeding_are_seen(
    queue: SqliteQueue, settings: Settings
) -> None:
    run = await started(queue, "r", 3, "slow.test", spacing=5.0, max_in_flight=1)
    await seeding_began(queue, "r")
    await queue.set_lane(LaneChange("slow.test", park_for=60.0, reason="403 × 50"))
    seen = await look(queue, settings)
    (first,) = await queue.look(run.id, limit=1)
    assert seen.oldest_at == first.added_at
    assert [lane.name for lane in seen.parked] == ["slow.test"] and seen.runs[0].seeding
    assert seen.runs[0].standing == "waiting" and "nobody works on it" in seen.runs[0].limits[0][1]
    document = fleet_document(seen)
    assert document["parked"][0]["why_held"].startswith("parked for ") and document["runs"][0]["workers"] == 0


async def test_one_task_has_the_same_story_by_its_id_and_by_its_address(
    queue: SqliteQueue, settings: Settings
) -> None:
    run = await started(queue, "r", 3)
    await work(queue, 0, 1)
    (dead,) = await queue.look(run.id, state="dead")
    by_id = await explain_id(queue, settings, dead.id)
    by_url = await explain(queue, settings, run, dead.url)
    assert by_id is not None and by_id.task == by_url.task == dead
    assert by_id.reason == by_url.reason and "it failed for good: http.503" in by_id.reason
    document = answer_document(by_id)
    assert document["url"] == dead.url and document["attempts"][0]["status"] == 503
    assert task_document(dead, "r")["last"]["cause"] == "http.503"


@pytest.mark.parametrize("id", [0, -1, 1, 2**32 + 99, 2**63 - 1, 2**63, 2**80])
async def test_a_number_that_is_no_task_is_nothing(queue: SqliteQueue, settings: Settings, id: int) -> None:
    await started(queue, "r", 1)
    assert await explain_id(queue, settings, id) is None


async def test_a_host_is_found_by_what_people_write_and_the_nearest_is_named(
    queue: SqliteQueue, settings: Settings
) -> None:
    from shoal.errors import Usage

    await started(queue, "r", 1, "shop.example")
    for word in ("shop.example", "SHOP.example", "http://shop.example/x"):
        assert (await host_named(queue, word)).name == "shop.example"
    for word in ("shopp.example", "shop"):
        with pytest.raises(Usage) as told:
            await host_named(queue, word)
        assert told.value.hint == "did you mean shop.example?"


async def test_hosts_that_somebody_changed_come_first(queue: SqliteQueue, settings: Settings) -> None:
    for number in range(5):
        await started(queue, f"r{number}", 10 - number, f"h{number}.test")
    await queue.set_lane(LaneChange("h4.test", rule=2.0))
    await queue.set_lane(LaneChange("h3.test", hold_for=60.0))
    now = await queue.now()
    names = [lane.name for lane in await ranked(queue, now, limit=3)]
    assert names == ["h4.test", "h3.test", "h0.test"] or names == ["h3.test", "h4.test", "h0.test"]
    lane = await host_named(queue, "h4.test")
    assert host_document(lane, now)["set_by"] == "a person" and host_document(lane, now)["rule"] == 2.0


async def test_a_worker_is_the_same_in_every_document(queue: SqliteQueue, settings: Settings) -> None:
    run = await started(queue, "r", 3)
    await registered(queue, "w-1", "w-2", "w-10")
    seen = await look(queue, settings)
    listed = fleet_document(seen)["workers"]
    assert [it["id"] for it in listed] == ["w-1", "w-2", "w-10"]
    status = await gather(queue, settings, run, rate=0.0)
    assert {it["id"] for it in status_document(status)["workers"]} == {"w-1", "w-2", "w-10"}
    keys = worker_document(seen.workers[0], seen.at).keys()
    assert all(it.keys() == keys for it in (*listed, *status_document(status)["workers"]))


async def test_a_run_that_a_control_room_works_on_needs_one(queue: SqliteQueue, settings: Settings) -> None:
    run = await queue.start_run(NewRun("books", "k", "r", spec={"mode": HERE}))
    tasks, _ = start_tasks(["http://h.test/"])
    await queue.add(run.id, tasks)
    await registered(queue, "w-1")
    seen = (await look(queue, settings)).runs[0]
    assert seen.standing == "waiting" and seen.workers == 0 and seen.hint.endswith("shoal serve")
    now = await queue.now()
    await queue.register(Mark("room-1", "room", "m", 1, "0", now, now, serves=(HERE,)))
    seen = (await look(queue, settings)).runs[0]
    assert seen.standing == "running" and seen.workers == 1
