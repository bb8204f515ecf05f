"""What Redis adds to the contract: forgotten scripts, its keys, finding among many, hints, addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from servers.redis import RedisServer

from conformance.on_redis import command, world_on
from conformance.world import World, page, pages, urls
from shoal.core.lane import FREE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Carried, LaneChange, digest
from shoal.errors import QueueRefused
from shoal.queue.base import Queue
from shoal.queue.redis import RedisQueue
from shoal.queue.redis.address import Address


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def world(own: RedisServer, tmp_path: Path) -> AsyncIterator[World]:
    async with world_on(own, tmp_path) as world:
        yield world


# scripts


async def test_scripts_that_the_server_forgot_are_sent_again(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    await command(world.queue, "SCRIPT", "FLUSH")
    claim = await world.claim()
    await command(world.queue, "SCRIPT", "FLUSH")
    assert await world.settle_all(claim, records=(b"{}",)) == ["ok"] * 3
    assert (await world.stats(run)).records == 3


async def test_all_keys_of_a_namespace_share_one_hash_tag(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", priority=3, meta={"k": 1}), page("b", delay=9.0, ttl=60.0)])
    await world.settle(await world.one(), "dead", cause="x", skipped=(("scope", "y"),))
    assert isinstance(world.queue, RedisQueue)
    prefix = world.queue._engine.prefix.encode()
    keys = await command(world.queue, "KEYS", f"*{world.queue._engine.address.namespace}*")
    assert isinstance(keys, list) and len(keys) > 10
    assert all(key.startswith(prefix) for key in keys)


async def test_a_purged_run_leaves_no_key_behind(world: World) -> None:
    assert isinstance(world.queue, RedisQueue)
    everything = f"*{world.queue._engine.address.namespace}*"
    await world.queue.reserve("a.test")
    keep = set(await command(world.queue, "KEYS", everything))  # type: ignore[call-overload]
    run = await world.run()
    await world.add(run, [*pages(300), page("late", delay=9.0, ttl=60.0), page("soon", ttl=60.0)])
    for result in ("done", "dead", "retry", "released", "cancelled"):
        await world.settle_all(await world.claim(5), result, records=(b"{}",), skipped=(("scope", "y"),))
    await world.claim(3)
    await world.lose("w1")
    await world.claim(3)
    await world.queue.set_run(run, "cancel")
    await world.queue.purge(run=run)
    left = set(await command(world.queue, "KEYS", everything)) - keep  # type: ignore[call-overload]
    lasting = [key for key in left if await command(world.queue, "TTL", key) == -1]
    assert lasting == [], "all others go by themselves"


async def test_the_seen_set_grows_in_small_packed_buckets(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5000))
    assert isinstance(world.queue, RedisQueue)
    prefix = world.queue._engine.prefix
    buckets = await command(world.queue, "KEYS", f"{prefix}seen:{run}:*")
    assert isinstance(buckets, list) and 5000 / 32 - 1 <= len(buckets) <= 5000 / 16
    kinds = {await command(world.queue, "OBJECT", "ENCODING", key) for key in buckets}
    assert kinds <= {b"listpack", b"ziplist"}
    assert await world.add(run, pages(5000)) == ["known"] * 5000
    assert (await world.queue.recount(run)).seen == 5000


# finding among many


async def test_one_of_many_waiting_tasks_is_found_by_its_identity(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(2000))
    claim = await world.claim(50)
    await world.queue.settle([])
    for leased in claim.tasks[::2]:
        await world.settle(leased, "released")
    for number in (0, 1, 25, 49, 50, 51, 1000, 1999):
        view = await world.queue.find(run, digest(f"p{number}"))
        assert view is not None
        held = number < 50 and number % 2 == 1
        assert (view.url, view.state) == (f"p{number}", "leased" if held else "ready")


async def test_many_lanes_of_a_cancelled_run_are_left_in_slices(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"{n}", f"h{n}.test") for n in range(1200)])
    await world.queue.set_run(run, "cancel")
    assert [lane.ready for lane in await world.queue.lanes(limit=5000)] == [0] * 1200
    assert {lane.spacing for lane in await world.queue.lanes(limit=5000)} == {0.0}
    assert (await world.stats(run)).cancelled == 1200


async def test_lanes_that_a_page_limit_leaves_behind_are_swept_before_a_revival(world: World) -> None:
    run = await world.run(max_pages=1)
    await world.add(run, [page(f"{n}", f"h{n}.test") for n in range(1200)])
    await world.settle(await world.one(), "dead", cause="x")
    assert await world.queue.revive(run) == 1
    assert urls(await world.claim()) != []
    assert (await world.stats(run)).claimable == 0
    await world.queue.reap()
    ready = [lane.ready for lane in await world.queue.lanes(limit=5000)]
    assert sum(ready) == 0


# limits


@pytest.mark.parametrize("mortal", [2, 250])
async def test_pages_whose_time_is_over_count_before_others_are_handed_out(world: World, mortal: int) -> None:
    run = await world.run(max_pages=mortal + 1)
    await world.add(run, pages(mortal, "m", ttl=5.0, priority=9))
    await world.add(run, pages(5))
    await world.advance(6)
    claims = [await world.claim(), await world.claim()]
    assert sum(len(claim.tasks) for claim in claims) == 1
    assert claims[0].tasks or claims[0].next_in is not None
    assert ((await world.stats(run)).dead, (await world.stats(run)).leased) == (mortal, 1)


# clocks


async def test_a_clock_that_steps_back_frees_lanes_without_limits_and_no_others(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a"), page("b"), page("c", "b.test"), page("d", "b.test")])
    await world.settle(await world.one())
    await world.settle(await world.one())
    await world.advance(-30)
    await world.queue.reserve("b.test", Pace(5.0, 1))
    assert urls(await world.claim()) == ["b"], "the other lane was just asked, by somebody who is slow"
    await world.advance(5)
    assert urls(await world.claim()) == ["d"]


# records


async def test_pages_of_records_begin_after_what_was_trimmed(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(30))
    claim = await world.claim(30)
    await world.settle_all(claim, records=(b"{}", b"[]"))
    await world.queue.trim(run, 25)
    assert [it.seq for it in await world.queue.records(run, limit=3)] == [26, 27, 28]
    assert [it.seq for it in await world.queue.records(run, after=40, limit=3)] == [41, 42, 43]
    tasks = [leased.id for leased in claim.tasks]
    assert [it.seq for it in await world.queue.records(run, limit=3, tasks=tasks)] == [26, 27, 28]
    assert len(await world.queue.records(run, tasks=tasks)) == 35


async def test_numbers_of_a_long_run_are_moved_over_their_gaps(world: World) -> None:
    """Numbers of tasks may leave great gaps, and then cost neither time nor memory."""
    run, there = await world.run("here"), await world.run("there")
    await world.queue.set_run(there, "pause")
    far = [Carried(number, page(f"p{number}"), "ready") for number in (5, 70_000, 40_000_000)]
    await world.queue.carry_in(there, far, paces={"a.test": FREE})
    assert [it.number for it in await world.queue.carry_out(there)] == [5, 70_000, 40_000_000]
    assert [view.url for view in await world.queue.look(there)] == ["p5", "p70000", "p40000000"]
    assert await world.queue.recount(there) == await world.stats(there)
    assert urls(await world.claim()) == []
    await world.queue.set_run(there, "resume")
    assert urls(await world.claim()) == ["p5", "p70000", "p40000000"]
    assert run != there


# hints


async def woken(queue: Queue, seconds: float = 4.0) -> float:
    """How long a wait took."""
    began = time.monotonic()
    await queue.wait(seconds)
    return time.monotonic() - began


async def test_a_worker_that_waits_is_woken_at_once(world: World) -> None:
    run = await world.run()
    other = await world.open()
    waiting = asyncio.create_task(woken(other))
    await asyncio.sleep(0.1)
    await world.add(run, "a")
    assert await waiting < 1.0


async def test_a_worker_is_woken_for_what_it_serves_only(world: World) -> None:
    run, other = await world.run("one"), await world.run("other", scraper="news")
    handles = [await world.open() for _ in range(3)]
    for handle, serves in zip(handles, (("books",), ("news",), ("run-2", "x")), strict=True):
        assert not (await handle.claim("w", 1, serves=serves)).tasks
    waits = [asyncio.create_task(woken(handle, 1.0)) for handle in handles]
    await asyncio.sleep(0.05)
    await world.add(other, "a")
    took = await asyncio.gather(*waits)
    assert took[0] > 0.9 and took[1] < 0.9 and took[2] < 0.9
    await world.add(run, "a")
    assert await woken(handles[0], 1.0) < 0.9


async def test_who_took_all_it_could_wakes_the_next(world: World) -> None:
    """One hint is for one worker; where there is work for more, they wake one another."""
    run = await world.run()
    handles = [await world.open() for _ in range(4)]
    taken: list[int] = []

    async def work(handle: Queue, name: str) -> float:
        took = await woken(handle)
        taken.extend(task.id for task in (await handle.claim(name, 5)).tasks)
        return took

    waits = [asyncio.create_task(work(handle, f"w{n}")) for n, handle in enumerate(handles)]
    await asyncio.sleep(0.1)
    await world.add(run, pages(20))
    assert max(await asyncio.gather(*waits)) < 1.0
    assert len(set(taken)) == 20


async def test_hints_do_not_pile_up(world: World) -> None:
    run = await world.run()
    for number in range(5):
        await world.add(run, f"a{number}")
        await world.settle_all(await world.claim())
    assert await woken(world.queue, 1.0) < 0.5, "one is left over"
    assert await woken(world.queue, 0.3) > 0.25


@pytest.mark.parametrize("what", ["resume", "released lane", "a place", "delayed", "revived"])
async def test_whatever_makes_work_wakes(world: World, what: str) -> None:
    run = await world.run()
    other = await world.open()
    await world.add(run, pages(2), pace=Pace(0.0, 1))
    leased = await world.one()
    if what == "resume":
        await world.settle(leased)
        await world.queue.set_run(run, "pause")
    elif what == "released lane":
        await world.settle(leased, lanes=(LaneChange("a.test", park_for=600.0),))
    elif what != "a place":
        await world.settle(leased, "dead", cause="x")
        await world.settle(await world.one())
    while await woken(other, 0.02) < 0.02:
        pass
    waiting = asyncio.create_task(woken(other))
    await asyncio.sleep(0.05)
    if what == "resume":
        await world.queue.set_run(run, "resume")
    elif what == "released lane":
        await world.queue.set_lane(LaneChange("a.test", park_for=0.0))
    elif what == "a place":
        await world.settle(leased)
    elif what == "delayed":
        await world.add(run, "late", delay=5.0)
    else:
        assert await world.queue.revive(run) == 1
    assert await waiting < 1.0


async def test_a_wait_whose_connection_is_lost_ends_in_time(world: World, own: RedisServer) -> None:
    waiting = asyncio.create_task(woken(world.queue, 0.5))
    await asyncio.sleep(0.05)
    own.ask("CLIENT KILL TYPE normal")
    assert 0.3 < await waiting < 2.0
    assert await woken(world.queue, 0.05) < 1.0


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
        ("redis://h", Address("h")),
        ("redis://u:p%40@h:7/3?namespace=n&shards=1", Address("h", 7, "", "u", "p@", 3, "n")),
        ("rediss://h/", Address("h", tls=True)),
        ("redis+unix:///tmp/s?db=2", Address(path="/tmp/s", database=2)),
    ],
)
def test_an_address_says_where_and_which_namespace(url: str, expected: Address) -> None:
    assert Address.parse(url) == expected


@pytest.mark.parametrize(
    "url", ["http://h", "redis://h/x", "redis://h?shards=2", "redis://h?namespace={a}", "redis://h?name=x"]
)
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(QueueRefused):
        Address.parse(url)


def test_a_password_is_not_shown() -> None:
    address = Address.parse("redis://u:secret@h/0")
    assert "secret" not in repr(address) + str(address)
