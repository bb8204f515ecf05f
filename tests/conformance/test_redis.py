"""What Redis adds to the contract: forgotten scripts, restarts, lost replies, servers that will not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from conformance.world import World, outcome, page, pages, urls
from servers.redis import RedisServer
from shoal.core.lane import FREE
from shoal.core.run import NewRun
from shoal.core.task import Task, digest
from shoal.errors import QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.base import Queue
from shoal.queue.redis import RedisQueue
from shoal.queue.redis import engine as engine_module
from shoal.queue.redis.address import Address


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    """A server of these tests alone, which they may set as they like; every change is on its disk at once."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def world(own: RedisServer, tmp_path: Path) -> AsyncIterator[World]:
    namespace = uuid4().hex

    async def opener(folder: Path, clock: object) -> Queue:
        return await RedisQueue.open(own.url(namespace), clock=clock)  # type: ignore[arg-type]

    world = World(opener, tmp_path)
    world.queue = await world.open()
    yield world
    await world.close()


async def command(queue: Queue, *words: object) -> object:
    assert isinstance(queue, RedisQueue)
    return await queue._engine._plain(*words)


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
    left = set(await command(world.queue, "KEYS", everything))  # type: ignore[call-overload]
    assert {key.rpartition(b":")[2] for key in left - keep} == set()


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


# restarts and lost replies


async def test_what_was_acknowledged_survives_a_killed_server(world: World, own: RedisServer) -> None:
    run = await world.run()
    await world.add(run, pages(20))
    claim = await world.claim(10)
    await world.queue.settle([])
    await world.settle_all(claim, records=(b"{}",))
    held = await world.one()
    before = await world.stats(run)
    own.kill()
    own.start()
    assert await world.stats(run) == before, "the same handle goes on"
    assert await world.settle(held) == "ok"
    assert await world.queue.recount(run) == await world.stats(run)


async def test_a_verb_waits_for_a_server_that_is_restarted(world: World, own: RedisServer) -> None:
    run = await world.run()
    own.kill()
    adding = asyncio.create_task(world.add(run, "a"))
    await asyncio.sleep(0.1)
    assert not adding.done()
    own.start()
    assert await adding == ["added"]


async def test_a_server_that_stays_away_is_said_to_be_unreachable(
    world: World, own: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "PATIENCE", 0.2)
    own.kill()
    try:
        with pytest.raises(QueueUnavailable, match="cannot be reached"):
            await world.claim()
        with pytest.raises(QueueUnavailable, match="cannot be reached"):
            await RedisQueue.open(own.url("x"))
    finally:
        own.start()


@asynccontextmanager
async def cutting(own: RedisServer, replies: set[int], path: str) -> AsyncIterator[None]:
    """A way to the server that breaks off instead of bringing the named replies."""
    seen = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        theirs, ours = await asyncio.open_unix_connection(own.socket)
        try:
            while words := await reader.read(1 << 20):
                ours.write(words)
                reply = await theirs.read(1 << 20)
                seen += 1
                if seen in replies:
                    break
                writer.write(reply)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (ours, writer):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    server = await asyncio.start_unix_server(handle, path)
    try:
        yield
    finally:
        server.close()


@pytest.mark.parametrize("lost", range(4, 16))
async def test_a_lost_reply_is_asked_for_again_and_nothing_counts_twice(
    own: RedisServer, tmp_path: Path, lost: int
) -> None:
    path, namespace = str(tmp_path / "cut"), uuid4().hex
    async with cutting(own, {lost, lost + 2}, path):
        queue = await RedisQueue.open(f"redis+unix://{path}?namespace={namespace}")
        run = await queue.start_run(NewRun(scraper="s", key="k"))
        tasks = [Task(url=f"u{n}", lane="a.test", digest=digest(f"u{n}")) for n in range(10)]
        await queue.add(run.id, tasks, {"a.test": FREE})
        claim = await queue.claim("w", 6)
        assert len(claim.tasks) == 6
        results = ["done", "done", "dead", "retry", "released", "cancelled"]
        outcomes = [
            outcome(leased, result, cause="x", records=(b"{}",) if result == "done" else ())
            for leased, result in zip(claim.tasks, results, strict=True)
        ]
        verdicts = await queue.settle(outcomes)
        assert set(verdicts) <= {"ok", "already"} and len(set(verdicts)) == 1
        stats = await queue.stats(run.id)
        assert (stats.done, stats.dead, stats.cancelled, stats.leased) == (2, 1, 1, 0)
        assert (stats.seen, stats.ready, stats.records, stats.retries, stats.stale) == (10, 6, 2, 1, 0)
        await queue.close()


# servers that will not do


async def test_a_server_that_evicts_is_refused_with_the_fix(own: RedisServer, world: World) -> None:
    await command(world.queue, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(QueueRefused, match="allkeys-lru") as caught:
            await RedisQueue.open(own.url("x"))
        assert "noeviction" in caught.value.hint
    finally:
        await command(world.queue, "CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_full_server_says_so_and_loses_nothing(own: RedisServer, world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    held = await world.one()
    before = await world.stats(run)
    await command(world.queue, "CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(QueueFull, match="full"):
            await world.add(run, pages(100, "more"))
    finally:
        await command(world.queue, "CONFIG", "SET", "maxmemory", "0")
    assert await world.stats(run) == before
    assert await world.settle(held) == "ok"
    assert await world.queue.recount(run) == await world.stats(run)


async def test_a_replica_is_read_only(own: RedisServer, world: World) -> None:
    run = await world.run()
    await command(world.queue, "REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises((QueueReadOnly, QueueUnavailable)):
            await world.add(run, "a")
    finally:
        await command(world.queue, "REPLICAOF", "NO", "ONE")


async def test_promises_say_what_the_log_of_the_server_keeps(own: RedisServer, world: World) -> None:
    assert "everything acknowledged" in world.queue.promises.durable
    await command(world.queue, "CONFIG", "SET", "appendonly", "no")
    try:
        queue = await RedisQueue.open(own.url("x"))
        assert "snapshot" in queue.promises.durable
        assert not queue.is_logged
        await queue.close()
    finally:
        await command(world.queue, "CONFIG", "SET", "appendonly", "yes")


async def test_a_namespace_of_a_newer_shoal_is_refused(own: RedisServer, world: World) -> None:
    await command(world.queue, "HSET", "{newer}:meta", "version", 99)
    with pytest.raises(QueueRefused, match="newer shoal"):
        await RedisQueue.open(own.url("newer"))


async def test_a_wrong_password_is_refused(own: RedisServer) -> None:
    with pytest.raises(QueueRefused, match="does not let us in"):
        await RedisQueue.open(f"redis+unix://me:wrong@here{own.socket}?namespace=x")


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
