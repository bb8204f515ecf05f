"""What Redis adds to the contract: forgotten scripts, its keys, finding among many, hints, addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from servers.redis import RedisServer
from wait import FOREVER, HANG

from conformance.harness import QueueHarness, page, pages, urls
from conformance.redis_backend import command, harness_on
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import ExportedTask, LaneChange, digest
from shoal.errors import QueueRefused
from shoal.queue.base import LIMIT_SECONDS, Queue
from shoal.queue.redis import RedisQueue
from shoal.queue.redis.server_url import Address, Login, RedisUrl


@pytest.fixture
async def harness(own: RedisServer, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    async with harness_on(own, tmp_path) as harness:
        yield harness


# scripts


async def test_scripts_that_the_server_forgot_are_sent_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await command(harness.queue, "SCRIPT", "FLUSH")
    claim = await harness.claim()
    await command(harness.queue, "SCRIPT", "FLUSH")
    assert await harness.settle_all(claim, records=(b"{}",)) == ["ok"] * 3
    assert (await harness.stats(run)).records == 3


async def test_all_keys_of_a_namespace_share_one_hash_tag(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", priority=3, meta={"k": 1}), page("b", delay=9.0, ttl=60.0)])
    await harness.settle(await harness.one(), "dead", cause="x", skipped=(("scope", "y"),))
    assert isinstance(harness.queue, RedisQueue)
    prefix = harness.queue._engine.prefix.encode()
    keys = await command(harness.queue, "KEYS", f"*{harness.queue._engine.server_url.namespace}*")
    assert isinstance(keys, list) and len(keys) > 10
    assert all(key.startswith(prefix) for key in keys)


async def test_a_purged_run_leaves_no_key_behind(harness: QueueHarness) -> None:
    assert isinstance(harness.queue, RedisQueue)
    everything = f"*{harness.queue._engine.server_url.namespace}*"
    await harness.queue.reserve("a.test")
    keep = set(await command(harness.queue, "KEYS", everything))  # type: ignore[call-overload]
    run = await harness.run()
    await harness.add(run, [*pages(300), page("late", delay=9.0, ttl=60.0), page("soon", ttl=60.0)])
    for result in ("done", "dead", "retry", "released", "cancelled"):
        await harness.settle_all(await harness.claim(5), result, records=(b"{}",), skipped=(("scope", "y"),))
    await harness.claim(3)
    await harness.lose("w1")
    await harness.claim(3)
    await harness.queue.set_run(run, "cancel")
    await harness.queue.purge(run=run)
    assert await harness.queue.forget_failures() == 5  # they outlive their run
    left = set(await command(harness.queue, "KEYS", everything)) - keep  # type: ignore[call-overload]
    lasting = [key for key in left if await command(harness.queue, "TTL", key) == -1]
    assert lasting == [], "all others go by themselves"


async def test_the_seen_set_grows_in_small_packed_buckets(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5000))
    assert isinstance(harness.queue, RedisQueue)
    prefix = harness.queue._engine.prefix
    buckets = await command(harness.queue, "KEYS", f"{prefix}seen:{run}:*")
    assert isinstance(buckets, list) and 5000 / 32 - 1 <= len(buckets) <= 5000 / 16
    kinds = {await command(harness.queue, "OBJECT", "ENCODING", key) for key in buckets}
    assert kinds <= {b"listpack", b"ziplist"}
    assert await harness.add(run, pages(5000)) == ["known"] * 5000
    assert (await harness.queue.recount(run)).seen == 5000


# finding among many


async def test_one_of_many_waiting_tasks_is_found_by_its_identity(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2000))
    claim = await harness.claim(50)
    await harness.queue.settle([])
    for leased in claim.tasks[::2]:
        await harness.settle(leased, "released")
    for number in (0, 1, 25, 49, 50, 51, 1000, 1999):
        view = await harness.queue.find(run, digest(f"p{number}"))
        assert view is not None
        held = number < 50 and number % 2 == 1
        assert (view.url, view.state) == (f"p{number}", "leased" if held else "ready")


async def test_many_lanes_of_a_cancelled_run_are_left_in_slices(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{n}", f"h{n}.test") for n in range(1200)])
    await harness.queue.set_run(run, "cancel")
    assert [lane.ready for lane in await harness.queue.lanes(limit=5000)] == [0] * 1200
    assert {lane.spacing for lane in await harness.queue.lanes(limit=5000)} == {0.0}
    assert (await harness.stats(run)).cancelled == 1200


async def test_lanes_that_a_page_limit_leaves_behind_are_swept_before_a_revival(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=1)
    await harness.add(run, [page(f"{n}", f"h{n}.test") for n in range(1200)])
    await harness.settle(await harness.one(), "dead", cause="x")
    await harness.advance(LIMIT_SECONDS)
    assert await harness.queue.revive(run) == 1
    assert urls(await harness.claim()) != []
    assert (await harness.stats(run)).claimable == 0
    await harness.queue.reap()
    ready = [lane.ready for lane in await harness.queue.lanes(limit=5000)]
    assert sum(ready) == 0


# limits


@pytest.mark.parametrize("mortal", [2, 250])
async def test_pages_whose_time_is_over_count_before_others_are_handed_out(harness: QueueHarness, mortal: int) -> None:
    run = await harness.run(max_pages=mortal + 1)
    await harness.add(run, pages(mortal, "m", ttl=5.0, priority=9))
    await harness.add(run, pages(5))
    await harness.advance(6)
    claims = [await harness.claim(), await harness.claim()]
    assert sum(len(claim.tasks) for claim in claims) == 1
    assert claims[0].tasks or claims[0].next_in is not None
    assert ((await harness.stats(run)).dead, (await harness.stats(run)).leased) == (mortal, 1)


# clocks


async def test_a_clock_that_steps_back_frees_lanes_without_limits_and_no_others(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a"), page("b"), page("c", "b.test"), page("d", "b.test")])
    await harness.settle(await harness.one())
    await harness.settle(await harness.one())
    await harness.advance(-30)
    await harness.queue.reserve("b.test", Pace(5.0, 1))
    assert urls(await harness.claim()) == ["b"], "the other lane was just asked, by somebody who is slow"
    await harness.advance(5)
    assert urls(await harness.claim()) == ["d"]


# records


async def test_pages_of_records_begin_after_what_was_trimmed(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(30))
    claim = await harness.claim(30)
    await harness.settle_all(claim, records=(b"{}", b"[]"))
    await harness.queue.trim(run, 25)
    assert [it.seq for it in await harness.queue.records(run, limit=3)] == [26, 27, 28]
    assert [it.seq for it in await harness.queue.records(run, after=40, limit=3)] == [41, 42, 43]
    tasks = [leased.id for leased in claim.tasks]
    assert [it.seq for it in await harness.queue.records(run, limit=3, tasks=tasks)] == [26, 27, 28]
    assert len(await harness.queue.records(run, tasks=tasks)) == 35


async def test_numbers_of_a_long_run_are_moved_over_their_gaps(harness: QueueHarness) -> None:
    """Numbers of tasks may leave great gaps, and then cost neither time nor memory."""
    run, there = await harness.run("here"), await harness.run("there")
    await harness.queue.set_run(there, "pause")
    far = [ExportedTask(number, page(f"p{number}"), "ready") for number in (5, 70_000, 40_000_000)]
    await harness.queue.import_run(there, far, paces={"a.test": UNLIMITED_PACE})
    assert [it.number for it in await harness.queue.export_run(there)] == [5, 70_000, 40_000_000]
    assert [view.url for view in await harness.queue.list_tasks(there)] == ["p5", "p70000", "p40000000"]
    assert await harness.queue.recount(there) == await harness.stats(there)
    assert urls(await harness.claim()) == []
    await harness.queue.set_run(there, "resume")
    assert urls(await harness.claim()) == ["p5", "p70000", "p40000000"]
    assert run != there


# hints


async def woken(queue: Queue, seconds: float = FOREVER) -> float:
    """How long a wait took, if it was not for ever."""
    began = time.monotonic()
    async with asyncio.timeout(HANG):
        await queue.wait(seconds)
    return time.monotonic() - began


async def test_a_worker_that_waits_is_woken_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    other = await harness.open()
    waiting = asyncio.create_task(woken(other))
    await asyncio.sleep(0.1)
    await harness.add(run, "a")
    await waiting


async def test_a_worker_is_woken_for_what_it_serves_only(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other", scraper="news")
    handles = [await harness.open() for _ in range(3)]
    for handle, serves in zip(handles, (("books",), ("news",), ("run-2", "x")), strict=True):
        assert not (await handle.claim("w", 1, serves=serves)).tasks
    first, *others = [asyncio.create_task(woken(handle)) for handle in handles]
    await asyncio.sleep(0.05)
    await harness.add(other, "a")
    await asyncio.gather(*others)
    await asyncio.sleep(0.1)  # nothing to wait for: the promise is that nothing happens
    assert not first.done()
    await harness.add(run, "a")
    await first


async def test_who_took_all_it_could_wakes_the_next(harness: QueueHarness) -> None:
    """One hint is for one worker; where there is work for more, they wake one another."""
    run = await harness.run()
    handles = [await harness.open() for _ in range(4)]
    taken: list[int] = []

    async def work(handle: Queue, name: str) -> None:
        await woken(handle)
        taken.extend(task.id for task in (await handle.claim(name, 5)).tasks)

    waits = [asyncio.create_task(work(handle, f"w{n}")) for n, handle in enumerate(handles)]
    await asyncio.sleep(0.1)
    await harness.add(run, pages(20))
    await asyncio.gather(*waits)
    assert len(set(taken)) == 20


async def test_hints_do_not_pile_up(harness: QueueHarness) -> None:
    run = await harness.run()
    for number in range(5):
        await harness.add(run, f"a{number}")
        await harness.settle_all(await harness.claim())
    await woken(harness.queue)  # one is left over
    assert await woken(harness.queue, 0.3) > 0.25


@pytest.mark.parametrize("what", ["resume", "released lane", "a place", "delayed", "revived"])
async def test_whatever_makes_work_wakes(harness: QueueHarness, what: str) -> None:
    run = await harness.run()
    other = await harness.open()
    await harness.add(run, pages(2), pace=Pace(0.0, 1))
    leased = await harness.one()
    if what == "resume":
        await harness.settle(leased)
        await harness.queue.set_run(run, "pause")
    elif what == "released lane":
        await harness.settle(leased, lanes=(LaneChange("a.test", park_for=600.0),))
    elif what != "a place":
        await harness.settle(leased, "dead", cause="x")
        await harness.settle(await harness.one())
    while await woken(other, 0.02) < 0.02:
        pass
    waiting = asyncio.create_task(woken(other))
    await asyncio.sleep(0.05)
    if what == "resume":
        await harness.queue.set_run(run, "resume")
    elif what == "released lane":
        await harness.queue.set_lane(LaneChange("a.test", park_for=0.0))
    elif what == "a place":
        await harness.settle(leased)
    elif what == "delayed":
        await harness.add(run, "late", delay=5.0)
    else:
        assert await harness.queue.revive(run) == 1
    await waiting


async def test_a_wait_whose_connection_is_lost_ends_in_time(harness: QueueHarness, own: RedisServer) -> None:
    waiting = asyncio.create_task(woken(harness.queue, 0.5))
    await asyncio.sleep(0.05)
    own.ask("CLIENT KILL TYPE normal")
    assert await waiting > 0.3
    await woken(harness.queue, 0.05)


# addresses


async def test_without_a_given_clock_the_servers_clock_decides(own: RedisServer) -> None:
    queue = await RedisQueue.open(own.url(uuid4().hex))
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    await queue.add(run.id, [page("a", ttl=3600.0)], None)
    claim = await queue.claim("w", 1)
    assert claim.tasks[0].start_in == 0.0
    assert abs(claim.lease - await queue.now()) < 5_000_000
    await queue.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", RedisUrl((Address("h", 6379),))),
        (
            "redis://u:p%40@h:7/3?namespace=n&shards=1&replicas=1",
            RedisUrl((Address("h", 7),), "", Login("u", "p@"), 3, "n", replicas=1),
        ),
        ("rediss://h/", RedisUrl((Address("h", 6379),), tls=True)),
        ("redis+unix:///tmp/s?db=2", RedisUrl(path="/tmp/s", database=2)),
        (
            "redis+sentinel://u:p@h1,h2:7,[::1]:8/main/2?sentinel_password=q",
            RedisUrl(
                (Address("h1", 26379), Address("h2", 7), Address("::1", 8)),
                "",
                Login("u", "p"),
                2,
                kind="sentinel",
                service="main",
                sentinel_login=Login("", "q"),
            ),
        ),
        (
            "rediss+cluster://h1,h2:7?namespace=n",
            RedisUrl((Address("h1", 6379), Address("h2", 7)), namespace="n", tls=True, kind="cluster"),
        ),
    ],
)
def test_a_url_says_where_and_which_namespace(url: str, expected: RedisUrl) -> None:
    assert RedisUrl.parse(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/x", "redis://h?shards=2", "redis://h?namespace={a}", "redis://h?name=x", "redis://h1,h2/0",
        "redis://h?sentinel_password=x", "redis://h?replicas=some", "redis://h?replicas=99", "redis+sentinel://h1,h2",
        "redis+sentinel://h:x/main", "redis+sentinel://h/main/x", "redis+cluster://h/1",
        "redis+cluster://" + ",".join(["h"] * 33),
    ],
)  # fmt: skip
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(QueueRefused):
        RedisUrl.parse(url)


def test_a_password_is_not_shown() -> None:
    address = RedisUrl.parse("redis+sentinel://u:secret1@h/main?sentinel_password=secret2")
    assert "secret" not in repr(address) + str(address)
