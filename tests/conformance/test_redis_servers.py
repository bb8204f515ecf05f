"""Which servers will do, what is said of the others, and what a checkup finds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from servers.lossy_proxy import lossy_proxy
from servers.ports import free_port
from servers.redis import RedisServer
from wait import until

from conformance.harness import QueueHarness, page, pages
from conformance.redis_backend import harness_on
from shoal.core.run import NewRun
from shoal.errors import QueueRefused
from shoal.queue.base import Finding
from shoal.queue.redis import RedisQueue, diagnostics, server
from shoal.queue.redis.server_url import RedisUrl


@pytest.fixture
async def harness(own: RedisServer, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    async with harness_on(own, tmp_path) as harness:
        yield harness


@asynccontextmanager
async def setting(own: RedisServer, **words: str) -> AsyncIterator[None]:
    """The server is set otherwise for a while."""
    before = {}
    for name, value in words.items():
        name = name.replace("_", "-")
        before[name] = own.ask(f"CONFIG GET {name}").splitlines()[-1]
        assert own.ask(f"CONFIG SET {name} {value}") == "+OK"
    try:
        yield
    finally:
        for name, value in before.items():
            own.ask(f"CONFIG SET {name} {value}")


async def found(own: RedisServer) -> dict[str, Finding]:
    queue = await RedisQueue.open(own.url("x"))
    findings = {finding.what: finding for finding in await queue.diagnose()}
    await queue.close()
    return findings


# refused


async def test_a_server_that_evicts_is_refused_with_the_fix(own: RedisServer) -> None:
    async with setting(own, maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        with pytest.raises(QueueRefused, match="allkeys-lru") as caught:
            await RedisQueue.open(own.url("x"))
        assert "noeviction" in caught.value.hint


async def test_a_policy_that_is_never_needed_is_only_a_warning(own: RedisServer) -> None:
    async with setting(own, maxmemory_policy="allkeys-lru"):
        finding = (await found(own))["eviction"]
    assert finding.level == "warning" and "noeviction" in finding.fix


async def test_a_server_that_begins_to_evict_is_not_used_again(own: RedisServer, harness: QueueHarness) -> None:
    run = await harness.run()
    async with setting(own, maxmemory="1gb", maxmemory_policy="volatile-ttl"):
        own.ask("CLIENT KILL TYPE normal")
        with pytest.raises(QueueRefused, match="volatile-ttl"):
            await harness.add(run, "a")
    assert await harness.add(run, "a") == ["added"]


@pytest.mark.parametrize("version", ["6.0.16", "5.0.99"])
async def test_an_old_server_is_refused(own: RedisServer, tmp_path: Path, version: str) -> None:
    def older(number: int, reply: bytes) -> bytes:
        return re.sub(rb"(?<=redis_version:)[\d.]+", lambda found: version.encode()[: len(found[0])], reply)

    path = str(tmp_path / "way")
    async with lossy_proxy(path, own.socket, older):
        with pytest.raises(QueueRefused, match=r"needs Redis 6\.2 or newer"):
            await RedisQueue.open(f"redis+unix://{path}?namespace=x")


async def test_a_namespace_of_a_newer_shoal_is_refused(own: RedisServer) -> None:
    own.ask("HSET {newer}:meta version 99")
    with pytest.raises(QueueRefused, match="newer shoal"):
        await RedisQueue.open(own.url("newer"))


async def test_a_namespace_that_a_newer_shoal_takes_over_is_left_alone(own: RedisServer) -> None:
    queue = await RedisQueue.open(own.url("upgraded"))
    try:
        run = (await queue.start_run(NewRun(scraper="books", key="k"))).id
        await queue.add(run, pages(1))
        own.ask(f"HSET {{upgraded}}:meta version {server.LAYOUT + 1}")
        with pytest.raises(QueueRefused, match=f"newer shoal .layout {server.LAYOUT + 1}, this one knows"):
            await queue.claim("w", 1)
        own.ask(f"HSET {{upgraded}}:meta version {server.LAYOUT}")
        assert len((await queue.claim("w", 1)).tasks) == 1
    finally:
        await queue.close()


async def test_a_wrong_password_is_refused(own: RedisServer) -> None:
    with pytest.raises(QueueRefused, match="refuses the login"):
        await RedisQueue.open(f"redis+unix://me:wrong@here{own.socket}?namespace=x")


async def test_a_server_without_a_log_is_used_and_says_so(own: RedisServer) -> None:
    async with setting(own, appendonly="no"):
        queue = await RedisQueue.open(own.url("x"))
        assert "snapshot" in queue.promises.durable
        finding = {finding.what: finding for finding in await queue.diagnose()}["persistence"]
        assert finding.level == "warning" and "appendonly yes" in finding.fix
        await queue.close()


@pytest.mark.parametrize(
    ("sync", "promise", "level"),
    [
        ("always", "everything acknowledged", "ok"),
        ("everysec", "all but the last second", "note"),
        ("no", "half minute", "warning"),
    ],
)
async def test_promises_and_checkup_say_what_the_log_keeps(
    own: RedisServer, sync: str, promise: str, level: str
) -> None:
    async with setting(own, appendfsync=sync):
        queue = await RedisQueue.open(own.url("x"))
        assert promise in queue.promises.durable
        assert {finding.what: finding.level for finding in await queue.diagnose()}["sync"] == level
        await queue.close()


# checkup


async def test_a_checkup_looks_at_everything_that_matters(own: RedisServer) -> None:
    findings = await found(own)
    assert {what: finding.level for what, finding in findings.items()} == {
        "version": "ok", "latency": "ok", "clock": "ok", "eviction": "ok", "memory": "note",
        "persistence": "ok", "sync": "ok", "connections": "ok",
    }  # fmt: skip
    assert "7." in findings["version"].words or "8." in findings["version"].words


async def test_a_memory_that_is_nearly_full_is_a_warning(own: RedisServer) -> None:
    used = int(server.parse(own.ask("INFO memory").encode())["used_memory"])
    async with setting(own, maxmemory=str(int(used * 1.15))):
        finding = (await found(own))["memory"]
    assert finding.level == "warning" and "--retention" in finding.fix


async def test_connections_that_are_nearly_all_used_are_a_warning(own: RedisServer) -> None:
    with_room = own.ask("CONFIG GET maxclients").splitlines()[-1]
    queues = [await RedisQueue.open(own.url("x")) for _ in range(5)]
    async with setting(own, maxclients="6"):
        finding = {finding.what: finding for finding in await queues[0].diagnose()}["connections"]
    for queue in queues:
        await queue.close()
    assert finding.level == "warning" and "maxclients" in finding.fix
    assert own.ask("CONFIG GET maxclients").splitlines()[-1] == with_room


@pytest.mark.parametrize(
    ("about", "what", "level"),
    [
        ({"redis_version": "6.0.9"}, "version", "wrong"),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, "version", "ok"),
        ({"maxmemory": "9", "maxmemory_policy": "allkeys-lfu"}, "eviction", "wrong"),
        ({"used_memory": "500", "total_system_memory": "1000"}, "memory", "warning"),
        ({"used_memory": "300", "total_system_memory": "1000"}, "memory", "note"),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, "persistence", "wrong"),
        ({"role": "slave"}, "role", "wrong"),
        ({"cluster_enabled": "1"}, "cluster", "note"),
        ({"connected_clients": "9000", "maxclients": "10000"}, "connections", "warning"),
    ],
)
def test_what_a_server_says_of_itself_is_judged(about: dict[str, str], what: str, level: str) -> None:
    judged = [
        diagnostics._version({"redis_version": "7.0.0", **about}), diagnostics._eviction(about),
        diagnostics._memory(about), *diagnostics._log(about, ""), *diagnostics._role(about, RedisUrl()),
        diagnostics._clients(about, 0),
    ]  # fmt: skip
    assert {finding.what: finding.level for finding in judged}[what] == level


@pytest.mark.parametrize(
    ("url", "replicas", "least", "level"),
    [
        (RedisUrl(), 0, 0, ""),
        (RedisUrl(), 1, 0, "note"),
        (RedisUrl(replicas=1), 1, 0, "ok"),
        (RedisUrl(replicas=2), 1, 1, "wrong"),
        (RedisUrl(kind="sentinel"), 0, 0, "warning"),
        (RedisUrl(kind="cluster", replicas=1), 1, 1, "ok"),
    ],
)
def test_what_a_fail_over_would_lose_is_said(url: RedisUrl, replicas: int, least: int, level: str) -> None:
    found = list(diagnostics._replicas({"connected_slaves": str(replicas)}, url, least))
    assert [finding.level for finding in found] == ([level] if level else [])


@pytest.mark.parametrize(("took", "apart", "levels"), [(0.001, 0.1, ("ok", "ok")), (0.1, -9.0, ("warning", "warning"))])
def test_a_slow_answer_and_another_time_are_warnings(took: float, apart: float, levels: tuple) -> None:
    assert (diagnostics._latency(took).level, diagnostics._clocks(apart).level) == levels


# a cluster


def cluster_port() -> int:
    """Nodes speak to each other at a port that is 10,000 higher, which outgoing connections must not have."""
    while (port := free_port()) > 22_000:
        pass
    return port


@pytest.fixture
def nodes() -> Iterator[list[tuple[int, RedisServer]]]:
    made = [
        (port, RedisServer("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"))
        for port in (cluster_port(), cluster_port())
    ]
    for _, node in made:
        node.start()
    yield made
    for _, node in made:
        node.stop()


async def test_a_namespace_lives_on_the_node_of_a_cluster_that_keeps_it(nodes: list[tuple[int, RedisServer]]) -> None:
    (_, one), (other_port, other) = nodes
    one.ask("CLUSTER ADDSLOTSRANGE 0 8191")
    other.ask("CLUSTER ADDSLOTSRANGE 8192 16383")
    one.ask(f"CLUSTER MEET 127.0.0.1 {other_port}")
    await until(lambda: all("cluster_state:ok" in node.ask("CLUSTER INFO") for _, node in nodes))
    slot = int(one.ask("CLUSTER KEYSLOT {shoal}:meta").removeprefix(":"))
    (right, _), (wrong, _) = nodes if slot < 8192 else reversed(nodes)
    with pytest.raises(QueueRefused, match="kept on another") as caught:
        await RedisQueue.open(f"redis://127.0.0.1:{wrong}")
    assert caught.value.hint.endswith(f"127.0.0.1:{right}")
    with pytest.raises(QueueRefused, match="no databases"):
        await RedisQueue.open(f"redis://127.0.0.1:{right}/3")
    queue = await RedisQueue.open(f"redis://127.0.0.1:{right}")
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    assert await queue.add(run.id, [page("a"), page("b", delay=0.01, ttl=60.0)]) == ["added"] * 2
    assert len((await queue.claim("w", 1)).tasks) == 1
    assert {finding.what for finding in await queue.diagnose()} >= {"cluster"}
    await queue.close()
