"""What only a sharded queue does: links in transit, a shard that is away, one that is added."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.harness import QueueHarness, open_sqlite, page, pages
from shoal.config.settings import Settings
from shoal.core.run import NewRun
from shoal.core.task import Claim, LaneChange, OutboxEntry, Outcome, digest
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue, ReapResult
from shoal.queue.document_kinds import SHARD_MAP
from shoal.queue.shards import ShardedQueue, lane_move
from shoal.queue.shards import settle as settle_module
from shoal.queue.shards.lane_move import add_shard
from shoal.queue.shards.quota import read_quota
from shoal.queue.shards.shard_map import NAME, check_is_whole, read_map, shard_of
from shoal.queue.shards.transit import Links, kind_for
from shoal.runs.discovery import Discovery
from shoal.view.advice import recommend_for_queue
from shoal.view.formatting import format_account
from shoal.view.status import gather_status
from shoal.worker.settler import Settler

NAMES = ("one", "two", "three")


class Shards(QueueHarness):
    """A sharded queue whose shards can be taken away."""

    down: set[str]
    queue: ShardedQueue

    async def open_sharded(self, *urls: str) -> ShardedQueue:
        self.down = set()

        async def open_shard(url: str) -> Queue:
            name = url.rpartition("/")[2]
            if name in self.down:
                raise QueueUnavailable(f"{name} is down")
            (self.folder / name).mkdir(exist_ok=True)
            return await open_sqlite(self.folder / name, self.clock)

        queue = await ShardedQueue.open(urls or [f"test://shards/{name}" for name in NAMES], open_shard)
        self.handles.append(queue)
        return queue

    async def take_away(self, index: int) -> None:
        shard = self.queue.shards.shards[index]
        assert shard.queue is not None
        await shard.queue.close()
        shard.queue = None
        self.down.add(shard.name.rpartition("/")[2])

    async def bring_back(self, index: int) -> None:
        self.down.clear()
        self.queue.shards.shards[index].away_since = 0.0


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[Shards]:
    harness = Shards(open_sqlite, tmp_path)
    harness.queue = await harness.open_sharded()
    yield harness
    await harness.close()


def lane_on(index: int, count: int = len(NAMES), number: int = 0) -> str:
    """A lane of that shard, which is the same one if there are more."""
    return [lane for lane in (f"h{n}.test" for n in range(500)) if shard_of(lane, count) == index][number]


async def found_link(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> int:
    """A page on one shard has found a link to another, and whoever settled it died before it was carried over."""

    async def die(*args: object, **named: object) -> int:
        raise QueueUnavailable("dead")

    monkeypatch.setattr(settle_module, "carry_over", die)
    run = await shards.run()
    await shards.add(run, [page("a", lane_on(0))])
    await shards.settle(await shards.one(), found=(page("b", lane_on(1)),))
    monkeypatch.undo()
    return run


async def test_a_link_in_transit_is_open_and_keeps_its_run_from_being_finished(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await found_link(shards, monkeypatch)
    stats = await shards.stats(run)
    assert (stats.in_transit, stats.open, stats.is_over) == (1, 1, False)
    with pytest.raises(UsageError, match="not finished"):
        await shards.queue.set_run(run, "finish")
    assert not (await shards.claim()).tasks


async def test_whoever_reaps_carries_over_what_others_left_and_twice_is_once(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await found_link(shards, monkeypatch)
    source = shards.queue.shards.shards[0]
    assert source.queue is not None
    (entry,) = await source.queue.outbox("shard.1")
    await shards.queue.reap()
    stats = await shards.stats(run)
    assert (stats.seen, stats.ready, stats.in_transit, stats.outbox) == (2, 1, 0, 0)
    from shoal.queue.shards.transit import _deliver

    await _deliver(shards.queue.shards, run, [entry])
    assert (await shards.stats(run)).seen == 2


async def test_a_shard_that_is_away_delays_only_its_hosts_and_is_named(shards: Shards) -> None:
    run = await shards.run()
    here, there = lane_on(1), lane_on(2)
    await shards.add(run, [page("a", here), page("b", there)])
    await shards.take_away(2)
    leased = await shards.one()
    assert leased.lane == here
    assert await shards.settle(leased, found=(page("c", there), page("d", here))) == "ok"
    stats = await shards.queue.stats(run)
    assert stats.away == ("test://shards/three",) and not stats.is_over and stats.in_transit == 1
    assert any("three is away" in finding.words for finding in await shards.queue.diagnose())
    with pytest.raises(QueueUnavailable, match="three is away"):
        await shards.queue.list_tasks(run)
    await shards.bring_back(2)
    await shards.queue.reap()
    stats = await shards.stats(run)
    assert (stats.seen, stats.ready, stats.in_transit, stats.away) == (4, 3, 0, ())


async def test_a_run_is_shown_and_advised_on_while_a_shard_is_away(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, [page(f"{place}{index}", lane_on(index)) for index in range(3) for place in "abcd"])
    claim = await shards.claim(12)
    for result in ("done", "dead", "retry"):
        await shards.settle_all(Claim(0, claim.tasks[:3]), result)
        claim = Claim(0, claim.tasks[3:])
    (about,) = await shards.queue.runs()
    assert (await gather_status(shards.queue, Settings(), about)).dead
    await shards.take_away(2)
    found = await gather_status(shards.queue, Settings(), about)
    assert found.stats.away == ("test://shards/three",) and found.stats.open and found.forecast.at_least
    _, recommendations, figures = await recommend_for_queue(shards.queue, Settings())
    assert "shard_away" in [it.kind for it in recommendations] and "desired_workers" in figures


async def test_a_page_that_was_just_found_on_any_shard_is_known_to_the_forecast(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, [page(f"s{index}", lane_on(index)) for index in range(3)])
    (about,) = await shards.queue.runs()
    discovery = Discovery(shards.queue)
    assert await discovery.last_at(about, await shards.stats(run)) == 0, "no page has led anywhere"
    for index in (0, 2, 1):
        await shards.advance(100.0)
        leased = await shards.one()
        link = msgspec.structs.replace(page(f"found{index}", lane_on(index)), parent=leased.id)
        await shards.settle(leased, found=(link,))
        await shards.queue.reap()
        at = await shards.queue.now()
        assert await discovery.last_at(about, await shards.stats(run)) == at
    await shards.advance(100.0)
    assert await discovery.last_at(about, await shards.stats(run)) == at, "nothing was found since"


async def test_the_account_that_people_are_shown_adds_up_while_links_are_in_transit(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = await shards.stats(await found_link(shards, monkeypatch))
    assert format_account(stats) == "  seen 1 + in transit 1 = done 1 + dead 0 + cancelled 0 + open 1"


async def test_an_outcome_for_a_shard_that_is_away_is_settled_when_it_is_back(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, [page("here", lane_on(1)), page("there", lane_on(2))])
    claim = await shards.claim()
    await shards.take_away(2)
    told: dict[int, str] = {}

    def note(outcomes: Sequence[Outcome], verdicts: Sequence[str]) -> None:
        told.update({outcome.task: verdict for outcome, verdict in zip(outcomes, verdicts, strict=True)})

    settler = Settler(
        shards.queue, clock=time.monotonic, on_settled=note, paces_for=lambda outcomes: None, batch_target=1,
        outage_timeout=60.0,
    )  # fmt: skip
    working = asyncio.create_task(settler.run())
    for leased in claim.tasks:
        settler.put(Outcome(task=leased.id, lease=leased.lease, result="done", records=(b"{}",)))
    here, there = (next(it.id for it in claim.tasks if it.url == url) for url in ("here", "there"))
    while here not in told:
        await asyncio.sleep(0.01)
    assert told == {here: "ok"} and not settler.is_idle and not settler.is_full
    await shards.bring_back(2)
    await settler.flush()
    assert told[there] == "ok" and settler.is_idle
    assert ((await shards.stats(run)).done, (await shards.stats(run)).records) == (2, 2)
    working.cancel()


async def test_links_sent_ahead_are_kept_with_the_outcome_of_a_shard_that_is_away(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, [page("a", lane_on(1))])
    leased = await shards.one()
    await shards.take_away(2)
    assert await shards.settle(leased, "part", found=(page("b", lane_on(2)),)) == "ok"
    await shards.take_away(1)
    assert await shards.settle(leased) == "away"
    for index in (1, 2):
        await shards.bring_back(index)
    assert await shards.settle(leased) == "ok"
    await shards.queue.reap()
    assert (await shards.one()).url == "b"


async def test_a_shard_that_was_away_when_a_run_was_paused_is_told_however_busy_its_workers_are(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, [page("a", lane_on(2))])
    await shards.take_away(2)
    await shards.queue.set_run(run, "pause")
    await shards.bring_back(2)
    shards.queue.shards.looked_at = time.monotonic()  # by a claim, as there always is a moment ago
    await shards.queue.reap()
    assert not (await shards.claim()).tasks


async def test_without_its_home_a_crawl_goes_on_and_nothing_new_is_started(shards: Shards) -> None:
    run = await shards.run()
    lane = lane_on(1)
    await shards.add(run, [page("a", lane)])
    await shards.take_away(0)
    assert [about.id for about in await shards.queue.runs(states=("running",))] == [run]
    leased = await shards.one()
    assert await shards.settle(leased, found=(page("b", lane),)) == "ok"
    assert (await shards.one()).url == "b"
    with pytest.raises(QueueUnavailable):
        await shards.queue.start_run(NewRun(scraper="s", key="k"))


async def test_never_more_than_max_pages_are_handed_out_by_all_shards_together(shards: Shards) -> None:
    run = await shards.run(max_pages=7)
    for index in range(3):
        await shards.add(run, pages(20, prefix=f"s{index}-", lane=lane_on(index)))
    got = []
    while claim := (await shards.claim(4)).tasks:
        got += claim
    assert len(got) == 7
    for leased in got:
        await shards.settle(leased)
    (about,) = await shards.queue.runs()
    assert about.state == "finished" and (await shards.stats(run)).cancelled == 53


async def test_pages_of_a_limit_that_no_shard_has_are_handed_out_while_one_is_away(shards: Shards) -> None:
    run = await shards.run(max_pages=40)
    for index in range(3):
        await shards.add(run, pages(60, prefix=f"s{index}-", lane=lane_on(index)))
    got = list((await shards.claim(3)).tasks)
    while not any(task.lane == lane_on(2) for task in got):
        got += (await shards.claim(3)).tasks
    await shards.take_away(2)
    while claim := (await shards.claim(4)).tasks:
        got += claim
    quota = await read_quota(shards.queue.shards, run)
    assert quota is not None
    kept_there = quota.given[2] - sum(task.lane == lane_on(2) for task in got)
    assert kept_there > 0 and len(got) == 40 - kept_there
    await shards.bring_back(2)
    while claim := (await shards.claim(4)).tasks:
        got += claim
    assert len(got) == 40


async def test_what_was_in_progress_when_its_limit_ended_a_run_counts_when_it_goes_on(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, pages(10, lane=lane_on(1)))
    assert len((await shards.claim(3)).tasks) == 3
    await shards.settle_all(await shards.claim(2))
    await shards.queue.set_max_pages(run, 2)
    await shards.queue.reap()
    assert (await shards.stats(run)).cancelled == 8
    await shards.queue.set_max_pages(run, 6)
    assert len((await shards.claim()).tasks) == 1


async def test_a_limit_that_is_lifted_where_there_is_none_changes_nothing(shards: Shards) -> None:
    run = await shards.run()
    await shards.add(run, pages(5, lane=lane_on(1)))
    await shards.queue.set_max_pages(run, 0)
    await shards.queue.set_max_pages(run, 2)
    assert len((await shards.claim()).tasks) == 2


async def test_limited_runs_of_one_seen_set_keep_their_limits(shards: Shards) -> None:
    for name in ("one", "two"):
        run = await shards.run(name, max_pages=2, seen_set="all")
        await shards.add(run, pages(5, name, lane_on(1)))
        claim = await shards.claim()
        assert [task.run for task in claim.tasks] == [run, run]
        await shards.settle_all(claim)
    assert [(it.name, it.entries) for it in await shards.queue.seen_sets()] == [("all", 10)]


async def test_a_shard_is_added_and_gets_its_lanes_with_all_that_waits_there(shards: Shards) -> None:
    run = await shards.run()
    tasks = [page(f"t{n}", f"h{n % 40}.test") for n in range(200)]
    await shards.add(run, tasks)
    claim = await shards.claim(50)
    await shards.settle_all(claim, records=(b"{}",))
    before = await shards.stats(run)
    report = await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    assert 0 < report.share <= 1 / 4 + 0.05 + 0.1 and report.tasks > 0  # 40 lanes are few
    after = await shards.stats(run)
    assert [getattr(after, name) for name in ("seen", "ready", "done", "cancelled", "records")] == [
        getattr(before, name) for name in ("seen", "ready", "done", "cancelled", "records")
    ]
    assert (await shards.queue.recount(run)).seen == 200
    # What is done stays known, wherever its lane is now.
    assert set(await shards.queue.add(run, tasks)) == {"known"}
    seen = set()
    while leased := (await shards.claim(100)).tasks:
        for task in leased:
            assert task.url not in seen
            seen.add(task.url)
        await shards.queue.settle([Outcome(task=it.id, lease=it.lease, result="done") for it in leased])
    assert len(seen) == 150
    assert (await shards.queue.set_run(run, "finish")).state == "finished"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "'nonsense' is not the URL of a queue"),
        ("", "'' is not the URL of a queue"),
        ("shards:test://shards/one,test://shards/two", "several queues, and not one more"),
        ("test://shards/four,test://shards/five", "several queues, and not one more"),
        ("amqp://user:secret@broker/", "a shard is a Redis"),
        ("test://shards/one", "is one of the shards already"),
        ("test://elsewhere/one", "is a shard already, by this name or another"),
        ("test://elsewhere/two", "is a shard already, by this name or another"),
        ("test://shards/used", "has runs of its own"),
    ],
)
async def test_what_cannot_be_one_more_shard_is_refused_and_changes_nothing(
    shards: Shards, url: str, words: str
) -> None:
    used = await shards.queue.shards.opener("test://shards/used")
    await used.start_run(NewRun(scraper="s", key="k"))
    await used.close()
    before = shards.queue.shards.map
    with pytest.raises(UsageError, match=words):
        await add_shard(shards.queue.shards, url, settle_seconds=0.0)
    await shards.queue.shards.refresh_map()
    assert shards.queue.shards.map == before


@pytest.mark.parametrize("place", [0, 1])
async def test_a_queue_in_use_does_not_become_a_shard_and_stays_what_it_is(tmp_path: Path, place: int) -> None:
    harness = Shards(open_sqlite, tmp_path)
    (tmp_path / NAMES[place]).mkdir()
    used = await open_sqlite(tmp_path / NAMES[place], harness.clock)
    await used.start_run(NewRun(scraper="s", key="k"))
    with pytest.raises(UsageError, match=f"{NAMES[place]} has runs of its own"):
        await harness.open_sharded()
    await check_is_whole(used)
    assert len(await used.runs()) == 1
    await used.close()
    await harness.close()


async def test_one_queue_by_two_names_is_not_two_shards(tmp_path: Path) -> None:
    harness = Shards(open_sqlite, tmp_path)
    with pytest.raises(UsageError, match="test://shards/three and test://elsewhere/three are the same queue"):
        await harness.open_sharded("test://shards/one", "test://elsewhere/three", "test://shards/three")
    made = await harness.open_sharded()  # nothing of that is left
    assert made.shards.map.version == 1
    for shard in made.shards.shards:
        assert [it.name for it in await shard.ask(lambda it: it.documents(SHARD_MAP))] == [NAME]
    await harness.close()


async def test_a_shard_that_was_away_when_the_map_was_made_gets_it_from_whoever_reaps(tmp_path: Path) -> None:
    """Without it that shard would be taken for a queue by itself."""
    harness = Shards(open_sqlite, tmp_path)
    await (await harness.open_sharded()).close()  # all files are there
    for name in NAMES[1:]:
        (tmp_path / name / "queue.db").unlink()
    harness.queue = await harness.open_sharded()
    two = harness.queue.shards.shards[1]
    assert await two.ask(lambda it: it.document(SHARD_MAP, NAME)) is None
    await harness.queue.reap()
    known = await two.ask(lambda it: it.document(SHARD_MAP, NAME))
    assert known is not None and read_map(known.text) == harness.queue.shards.map
    await harness.close()


async def test_many_make_the_same_sharded_queue_at_once(tmp_path: Path) -> None:
    harness = Shards(open_sqlite, tmp_path)

    async def begin(number: int) -> int:
        made = await harness.open_sharded()
        await made.start_run(NewRun(scraper="s", key=f"k{number}", name=f"r{number}"))
        return made.shards.map.version

    assert await asyncio.gather(*map(begin, range(5))) == [1] * 5
    await harness.close()


async def test_a_lane_is_held_where_it_was_before_it_is_anywhere_else(shards: Shards) -> None:
    """Whoever has the old map may add to it there: that waits, and comes after."""
    run = await shards.run()
    lane = next(name for name in (f"h{n}.test" for n in range(500)) if shard_of(name, 4) == 3)
    old = shards.queue.shards.owner(lane)
    await shards.add(run, [page("a", lane)])
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    assert old.queue is not None
    local = await shards.queue.shards.runs.find(old, run)
    await old.queue.add(local, [page("late", lane)])
    assert not (await old.queue.claim("w", 10)).tasks
    assert [task.url for task in (await shards.claim()).tasks] == ["a"]
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    assert (await shards.one()).url == "late"
    view = await shards.queue.find(run, digest("late"))
    assert view is not None and view.state == "leased"


async def test_what_is_found_while_its_lane_is_copied_comes_after_it(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the new shard has been given is dropped where it was, not all that is there by then."""
    run, lane = await shards.run(), lane_on(3, 4)
    await shards.add(run, [page("copied", lane)])
    old = shards.queue.shards.owner(lane).queue
    assert old is not None
    drop, found = old.drop, iter([page("found", lane)])

    async def find_first(*args: Any, **words: Any) -> int:
        await shards.add(run, list(found))
        return await drop(*args, **words)

    monkeypatch.setattr(old, "drop", find_first)
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    stats = await shards.stats(run)
    assert (stats.seen, stats.ready, stats.cancelled) == (2, 2, 0)
    assert {task.url for task in (await shards.claim()).tasks} == {"copied", "found"}


async def test_a_lane_that_a_late_answer_releases_is_at_rest_again_before_it_moves(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lane = await shards.run(), lane_on(3, 4)
    await shards.add(run, [page("a", lane), page("b", lane), page("c", lane)])
    old = shards.queue.shards.owner(lane).queue
    assert old is not None
    set_lane, leased, holds = old.set_lane, [await shards.one()], 0

    async def answer_late(change: LaneChange) -> None:
        nonlocal holds
        holds += 1
        if holds == 2:  # it is at rest, and now released
            await set_lane(LaneChange(lane, park_for=0.0))
            leased.append(await shards.one())
        await set_lane(change)

    async def settle_one() -> ReapResult:
        await shards.settle(leased.pop())
        return ReapResult()

    monkeypatch.setattr(old, "set_lane", answer_late)
    monkeypatch.setattr(old, "reap", settle_one)
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    monkeypatch.undo()
    assert holds >= 2 and not leased, "something of the lane was in progress while it moved"
    stats = await shards.stats(run)
    assert (stats.seen, stats.done, stats.ready, stats.cancelled) == (3, 2, 1, 0)
    assert [task.url for task in (await shards.claim()).tasks] == ["c"]


async def test_a_page_that_does_not_end_is_said_and_adding_a_shard_goes_on_after_it(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_move, "REST_TIMEOUT", 0.0)
    lane = lane_on(3, 4)
    run = await shards.run()
    await shards.add(run, [page("a", lane)])
    leased = await shards.one()
    with pytest.raises(QueueUnavailable, match=f"1 hosts of shard .* still have pages in progress, such as {lane}"):
        await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    await shards.settle(leased, found=(page("b", lane),))
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    assert (await shards.one()).url == "b"


@pytest.mark.parametrize("verb", ["settle", "push", "reap"])
async def test_who_was_stopped_while_a_shard_was_added_sends_there_what_belongs_there(
    shards: Shards, verb: str
) -> None:
    """It looks for a newer map first: nobody comes for what is added to a lane that has moved."""
    lane = lane_on(3, 4)
    old = shard_of(lane, len(NAMES))
    run = await shards.run()
    other = lane_on((old + 1) % len(NAMES) if verb == "reap" else old, 4)
    await shards.add(run, [page("before", lane), page("a", other)])
    stopped = await shards.open_sharded()
    (before, leased) = sorted((await stopped.claim("w1", 10)).tasks, key=lambda task: task.url != "before")
    await shards.settle(before)
    await add_shard(shards.queue.shards, "test://shards/four", settle_seconds=0.0)
    link = page("found", lane)
    if verb == "reap":  # another one that was stopped, too, has left it in the outbox
        entry = OutboxEntry(kind_for(old), "x.1", msgspec.msgpack.encode(Links((link,))))
        await shards.settle(leased, outbox=(entry,))
    stopped.shards.looked_at = 0.0
    if verb == "reap":
        await stopped.reap()
    elif verb == "push":
        await stopped.push(run, [link], "w1")
    else:
        await stopped.settle([Outcome(task=leased.id, lease=leased.lease, result="done", found=(link,))])
    where = shards.queue.shards.owner(lane)
    view = await shards.queue.find(run, link.digest)
    assert view is not None and where.index == 3 and where.queue is not None
    assert await where.queue.ids(await shards.queue.shards.runs.find(where, run), [link.digest]) != [0]


async def test_nobody_works_on_one_shard_as_if_it_were_the_queue(shards: Shards) -> None:
    await check_is_whole(shards.queue)
    for shard in shards.queue.shards.shards:
        assert shard.queue is not None
        with pytest.raises(UsageError, match="one shard of a queue of 3"):
            await check_is_whole(shard.queue)


async def test_what_is_no_new_shard_is_refused_with_the_reason(shards: Shards) -> None:
    with pytest.raises(UsageError, match="already"):
        await add_shard(shards.queue.shards, "test://shards/two", settle_seconds=0.0)
    used = await open_sqlite(shards.folder, shards.clock)
    await used.start_run(NewRun(scraper="s", key="k"))
    await used.close()
    (shards.folder / "used").mkdir()
    (shards.folder / "queue.db").rename(shards.folder / "used" / "queue.db")
    with pytest.raises(UsageError, match="runs of its own"):
        await add_shard(shards.queue.shards, "test://shards/used", settle_seconds=0.0)
