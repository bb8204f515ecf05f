"""A fleet on every backend, hurt in every way we can; one judge reads what all processes wrote down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from servers import postgres, redis

from .fleet import Fleet
from .history import Limits
from .proxy import Proxy

TASKS = int(os.environ.get("SHOAL_FAULT_TASKS", "10000"))
BLOWS = int(os.environ.get("SHOAL_FAULT_BLOWS", "50"))


class Server(Protocol):
    """What the fleet's queue lives on."""

    url: str

    def crash(self) -> None:
        """kill -9 and start again."""
        ...

    def cut(self) -> None:
        """End sessions at the server."""
        ...

    def at(self, port: int) -> str:
        """Its address by way of another port of this machine."""
        ...


class Redis:
    def __init__(self) -> None:
        self.port = postgres.free_port()
        self._server = redis.RedisServer(
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        )
        self._server.start()
        self.url = self.at(self.port)

    def at(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0?namespace=faults"

    def crash(self) -> None:
        self._server.kill()
        self._server.start()

    def cut(self) -> None:
        command = ["redis-cli", "-p", str(self.port), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]
        subprocess.run(command, check=True, capture_output=True)

    def remove(self) -> None:
        self._server.stop()


class Postgres:
    def __init__(self) -> None:
        try:
            self._server = postgres.Server(durable=True)
        except postgres.Missing as missing:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(missing))
        self.port = self._server.port
        self.url = self.at(self.port)

    def at(self, port: int) -> str:
        return self._server.tcp_url("faults", port)

    def crash(self) -> None:
        self._server.stop(signal.SIGQUIT)
        self._server.start()

    def cut(self) -> None:
        words = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", postgres.USER, "-d", "postgres"]
        command = [postgres.program("psql"), *place, "-qc", words]
        subprocess.run(command, check=True, capture_output=True)

    def remove(self) -> None:
        self._server.remove()


@pytest.fixture
def redis_server() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.remove()


@pytest.fixture
def postgres_server() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db"
    return str(request.getfixturevalue(f"{request.param}_server").url)


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(f"{request.param}_server")  # type: ignore[no-any-return]


MakeFleet = Callable[..., Awaitable[Fleet]]


@pytest.fixture
async def fleet_on(tmp_path: Path) -> AsyncIterator[MakeFleet]:
    made: list[Fleet] = []

    async def make(url: str, tasks: int = TASKS, machines: int = 2, **orders: Any) -> Fleet:
        fleet = Fleet(tmp_path, url, **orders)
        made.append(fleet)
        await fleet.open(tasks)
        fleet.start(machines)
        return fleet

    yield make
    for fleet in made:
        await fleet.close()


async def judged_clean(fleet: Fleet, **limits: float) -> str:
    judgement = await fleet.judged(limits=Limits(**limits))
    print(judgement.summary())
    assert not judgement.wrong, judgement.wrong
    return judgement.summary()


async def blows(fleet: Fleet, strike: Callable[[], object], count: int, every: float, tasks: int) -> None:
    """Strike again and again, spread over the work; the last while there is still some."""
    for number in range(count):
        await fleet.done(min(tasks - 1, number * tasks // (count + 1)), 600)
        strike()
        await asyncio.sleep(every)


async def test_workers_killed_fifty_times_lose_and_double_nothing(url: str, fleet_on: MakeFleet) -> None:
    fleet = await fleet_on(url)
    await blows(fleet, fleet.kill_worker, BLOWS, 0.05, TASKS)
    await fleet.done(TASKS, 600)
    await judged_clean(fleet)


async def test_machines_killed_whole_lose_nothing_and_their_tasks_run_again_after_the_lease(
    url: str, fleet_on: MakeFleet
) -> None:
    """With the usual lease of 30 s."""
    tasks = TASKS // 5
    fleet = await fleet_on(url, tasks, 3, work=0.3)
    for _ in range(2):
        await fleet.everybody_works()
        fleet.kill_machine()
    assert (await fleet.stats()).open, "all done before the machines were killed: make the work longer"
    await fleet.done(tasks, 300)
    assert "machine:" in await judged_clean(fleet, machine=35.0)


async def test_workers_stopped_past_their_lease_settle_nothing(url: str, fleet_on: MakeFleet) -> None:
    lease = 2.0
    fleet = await fleet_on(url, TASKS, 2, workers=3, lease=lease, work=0.1)
    stopped = 0
    while stopped < BLOWS:
        victims = dict(fleet.stop_worker() for _ in range(4))
        victims.pop("", None)
        stopped += len(victims)
        await asyncio.sleep(lease + 1.5)
        for pid in victims.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
        stats = await fleet.stats()
        assert stats.open, f"all done after {stopped} stops: make the work longer"
    await fleet.done(TASKS, 600)
    await judged_clean(fleet)


async def test_a_server_that_crashes_ten_times_loses_nothing(server: Server, fleet_on: MakeFleet) -> None:
    fleet = await fleet_on(server.url, TASKS, 2)
    await blows(fleet, server.crash, 10, 0.5, TASKS)
    await fleet.done(TASKS, 600)
    judgement = await fleet.judged()
    print(judgement.summary())
    # Workers may have to give up their leases while the server is away: more may run again than was killed.
    unexpected = [words for words in judgement.wrong if "extra executions" not in words]
    assert not unexpected, unexpected


async def test_sessions_that_are_cut_lose_nothing(server: Server, fleet_on: MakeFleet) -> None:
    fleet = await fleet_on(server.url, TASKS, 2)
    await blows(fleet, server.cut, BLOWS, 0.05, TASKS)
    await fleet.done(TASKS, 600)
    await judged_clean(fleet)


async def test_answers_that_get_lost_double_nothing(server: Server, fleet_on: MakeFleet) -> None:
    direct = server.url
    port = int(direct.split("127.0.0.1:")[1].partition("/")[0])
    proxy = Proxy("127.0.0.1", port)
    proxy.start()
    try:
        fleet = await fleet_on(server.at(proxy.port), TASKS, 2)
        proxy.loses = 0.02
        await blows(fleet, proxy.cut_all, 10, 0.05, TASKS)
        await fleet.done(TASKS, 900)
        proxy.loses = 0.0
        await judged_clean(fleet)
        print(f"{proxy.lost} answers lost, {proxy.cut} connections cut")
        assert proxy.lost > 20
    finally:
        proxy.stop()


@pytest.mark.parametrize("bug", ["unfenced", "forgetful", "doubling"])
async def test_the_judge_notices_planted_bugs(tmp_path: Path, fleet_on: MakeFleet, bug: str) -> None:
    """The same fleet with a queue that is broken on purpose must be found out."""
    lease = 1.5
    fleet = await fleet_on(
        f"sqlite:///{tmp_path}/queue.db", 1500, 1, workers=3, lease=lease, work=0.1, bug=bug
    )
    for blow in range(6):  # now and then others have its work at the moment when it comes back
        name, pid = fleet.stop_worker()
        await asyncio.sleep(lease + 0.3 + 0.25 * blow)
        if name:
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
    await fleet.done(1500, 120)
    judgement = await fleet.judged()
    print(judgement.wrong)
    words = {"unfenced": ("stale accepted", "ended under"), "forgetful": ("lost",), "doubling": ("doubled",)}[
        bug
    ]
    assert any(wrong.startswith(words) or any(w in wrong for w in words) for wrong in judgement.wrong)
