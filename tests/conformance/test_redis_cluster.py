"""A queue in a Redis Cluster and behind Sentinels: how its node is found, followed and refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from servers.ports import free_port
from servers.redis import RedisServer
from servers.redis_nodes import PASSWORD, SENTINEL_PASSWORD, SERVICE, Cluster, SentinelGroup, cluster, sentinel_group
from wait import until

from conformance.harness import outcome, pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.errors import QueueRefused, QueueUnavailable
from shoal.queue.redis import RedisQueue, sentinel
from shoal.queue.redis import engine as engine_module
from shoal.queue.redis.cluster import redirect, slot_of
from shoal.queue.redis.server_url import Address


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    with sentinel_group() as made:
        yield made


@pytest.fixture
async def queue(nodes: Cluster) -> AsyncIterator[RedisQueue]:
    queue = await RedisQueue.open(nodes.url(uuid4().hex))
    yield queue
    await queue.close()


async def filled(queue: RedisQueue, count: int) -> int:
    run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
    await queue.add(run, pages(count), {"a.test": UNLIMITED_PACE})
    return run


def slot(queue: RedisQueue) -> int:
    return slot_of(queue._engine.server_url.namespace)


class SlotMove:
    """Keys of a slot go from node to node one by one, as `redis-cli --cluster reshard` has them go."""

    def __init__(self, nodes: Cluster, slot: int) -> None:
        self.slot, self.nodes = slot, nodes
        self.source = nodes.owner(slot)
        self.target = next(node for node in nodes.primaries if node is not self.source)
        source, target = (node.ask("CLUSTER", "MYID").decode() for node in (self.source, self.target))
        self.target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source)
        self.source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
        self._target_id = target

    def step(self) -> int:
        """Move some keys; how many are left."""
        for key in self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 5):
            assert self.source.ask("MIGRATE", "127.0.0.1", self.target.port, key.decode(), 0, 5000) == b"OK"
        return int(self.source.ask("CLUSTER", "COUNTKEYSINSLOT", self.slot))

    def finish(self) -> None:
        while self.step():
            pass
        for node in (self.target, self.source, *self.nodes.primaries):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self._target_id)


async def test_all_keys_of_a_queue_are_in_one_slot(nodes: Cluster, queue: RedisQueue) -> None:
    run = await filled(queue, 50)
    claim = await queue.claim("w", 20)
    await queue.settle([outcome(task, records=(b"{}",)) for task in claim.tasks])
    await queue.save_document("kind", "name", "text")
    names = nodes.owner(slot(queue)).ask("KEYS", f"*{queue._engine.server_url.namespace}*")
    assert len(names) > 10 and (await queue.stats(run)).done == 20
    assert nodes.owner(slot(queue)).ask("CLUSTER", "COUNTKEYSINSLOT", slot(queue)) == len(names)


async def test_a_slot_that_moves_stops_the_queue_for_a_moment_and_nothing_is_half_done(
    nodes: Cluster, queue: RedisQueue
) -> None:
    run = await filled(queue, 200)
    held = await queue.claim("w", 50)
    move = SlotMove(nodes, slot(queue))
    left = move.step()
    settling = asyncio.create_task(queue.settle([outcome(task, records=(b"{}",)) for task in held.tasks]))
    claiming = asyncio.create_task(queue.claim("w", 50))
    while left:  # the calls meet every state of the move: some keys here, some there
        await asyncio.sleep(0.02)
        left = move.step()
        assert not settling.done() and not claiming.done()
    move.finish()
    assert set(await settling) == {"ok"}
    claim = await claiming
    assert len(claim.tasks) == 50 and set(await queue.settle([outcome(task) for task in claim.tasks])) == {"ok"}
    stats = await queue.stats(run)
    assert (stats.done, stats.ready, stats.records) == (100, 100, 50)
    assert await queue.recount(run) == stats
    other = await RedisQueue.open(queue_url(nodes, queue))
    assert (await other.stats(run)).done == 100
    await other.close()


def queue_url(nodes: Cluster, queue: RedisQueue) -> str:
    return nodes.url(queue._engine.server_url.namespace)


async def test_a_single_key_in_a_slot_that_moves_is_asked_for_where_it_is(nodes: Cluster, queue: RedisQueue) -> None:
    await queue._engine.read("SET", "x", "1")
    move = SlotMove(nodes, slot(queue))
    while move.step():
        pass
    assert await queue._engine.read("GET", "x") == b"1"  # ASK
    move.finish()
    assert await queue._engine.read("GET", "x") == b"1"  # MOVED


async def test_a_cluster_is_found_by_any_node_that_answers(nodes: Cluster) -> None:
    name = uuid4().hex
    dead = f"127.0.0.1:{free_port()}"
    for node in nodes.primaries:
        queue = await RedisQueue.open(f"redis+cluster://{dead},127.0.0.1:{node.port}?namespace={name}")
        assert await queue.now() > 0
        await queue.close()


async def test_what_is_no_cluster_is_refused(own: RedisServer) -> None:
    own.ask("CONFIG SET port 0")
    port = free_port()
    own.ask(f"CONFIG SET port {port}")
    with pytest.raises(QueueRefused, match="not a Redis Cluster"):
        await RedisQueue.open(f"redis+cluster://127.0.0.1:{port}")
    with pytest.raises(QueueRefused, match="is not a sentinel"):
        await RedisQueue.open(f"redis+sentinel://127.0.0.1:{port}/{SERVICE}")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("MOVED 3999 127.0.0.1:6381", ("MOVED", Address("127.0.0.1", 6381))),
        ("ASK 3999 ::1:6381", ("ASK", Address("::1", 6381))),
        ("MOVED 3999 :6381", ("MOVED", Address("", 6381))),
        ("MOVED 3999", None),
        ("ERR MOVED 3999 127.0.0.1:6381", None),
    ],
)
def test_where_a_node_sends_us(text: str, meant: tuple[str, Address] | None) -> None:
    assert redirect(Exception(text)) == meant


# Sentinel


async def test_sentinels_are_asked_in_turn_and_the_ones_that_are_silent_or_gone_are_passed_over(
    group: SentinelGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel, "QUICK_TIMEOUT", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        others = f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]}"
        url = group.url("n").replace("@", f"@{others},")
        queue = await RedisQueue.open(url)
        assert queue._engine.server_url.nodes[0] != queue._engine._primary._sentinels[0]  # type: ignore[attr-defined]
        await queue.close()


@pytest.mark.parametrize(
    ("old", "new", "words", "hint"),
    [
        (PASSWORD, "wrong", "refuses the login", "user and password"),
        (SENTINEL_PASSWORD, "wrong", "the sentinel at .* refuses the login", "sentinel_password"),
        (f"sentinel_password={SENTINEL_PASSWORD}&", "", "the sentinel at .* refuses the login", "sentinel_password"),
    ],
)
async def test_passwords_of_servers_and_sentinels_are_two(
    group: SentinelGroup, old: str, new: str, words: str, hint: str
) -> None:
    with pytest.raises(QueueRefused, match=words) as caught:
        await RedisQueue.open(group.url("n").replace(old, new))
    assert hint in caught.value.hint and "of-se" not in str(caught.value)


async def test_a_service_that_no_sentinel_knows_is_said(group: SentinelGroup) -> None:
    with pytest.raises(QueueRefused, match="know no server called other"):
        await RedisQueue.open(group.url("n").replace(SERVICE, "other"))


async def test_a_change_that_no_replica_has_is_not_acknowledged(
    group: SentinelGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await RedisQueue.open(group.url("n", replicas=1))
    run = await filled(queue, 10)
    monkeypatch.setattr(engine_module, "TIMEOUT", 0.1)
    monkeypatch.setattr(engine_module, "CONFIRM_MS", 50)
    group.detach()
    try:
        with pytest.raises(QueueUnavailable, match="did not reach 1 replicas"):
            await queue.claim("w", 5)
        assert (await queue.stats(run)).seen == 10  # what changes nothing waits for nobody
    finally:
        (replica,) = group.replicas
        replica.ask("REPLICAOF", "127.0.0.1", group.primary.port)
    await until(replica.follows)
    monkeypatch.undo()
    assert len((await queue.claim("w", 5)).tasks) == 5
    await queue.close()
