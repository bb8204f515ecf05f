"""A fleet on every backend, hurt in every way we can; one checker reads what all processes wrote down."""

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
from servers.ports import free_port

from .checker import Limits
from .fleet import FaultFleet
from .proxy import Proxy

TASKS = int(os.environ.get("SHOAL_FAULT_TASKS", "10000"))
FAULTS = int(os.environ.get("SHOAL_FAULT_COUNT", "50"))


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
        self.port = free_port()
        self._server = redis.RedisServer(
            "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "everysec"
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
        except postgres.ServerMissing as missing:
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


StartFleet = Callable[..., Awaitable[FaultFleet]]


@pytest.fixture
async def fleet_on(tmp_path: Path) -> AsyncIterator[StartFleet]:
    made: list[FaultFleet] = []

    async def make(url: str, tasks: int = TASKS, machines: int = 2, **orders: Any) -> FaultFleet:
        fleet = FaultFleet(tmp_path, url, **orders)
        made.append(fleet)
        await fleet.open(tasks)
        fleet.start(machines)
        return fleet

    yield make
    for fleet in made:
        await fleet.close()


async def check_clean(fleet: FaultFleet, **limits: float) -> str:
    result = await fleet.check(limits=Limits(**limits))
    print(result.summary())
    assert not result.violations, result.violations
    return result.summary()


async def inject_faults(fleet: FaultFleet, inject: Callable[[], object], count: int, every: float, tasks: int) -> None:
    """Strike again and again, spread over the work; the last while there is still some."""
    for number in range(count):
        await fleet.wait_done(min(tasks - 1, number * tasks // (count + 1)), 600)
        inject()
        await asyncio.sleep(every)


async def test_workers_killed_fifty_times_lose_and_duplicate_nothing(url: str, fleet_on: StartFleet) -> None:
    fleet = await fleet_on(url)
    await inject_faults(fleet, fleet.kill_worker, FAULTS, 0.05, TASKS)
    await fleet.wait_done(TASKS, 600)
    await check_clean(fleet)


async def test_machines_killed_whole_lose_nothing_and_their_tasks_run_again_after_the_lease(
    url: str, fleet_on: StartFleet
) -> None:
    """With the usual lease of 30 s."""
    tasks = TASKS // 5
    fleet = await fleet_on(url, tasks, 3, work=0.3)
    for _ in range(2):
        await fleet.wait_until_all_work()
        fleet.kill_machine()
    assert (await fleet.stats()).open, "all done before the machines were killed: make the work longer"
    await fleet.wait_done(tasks, 300)
    assert "machine:" in await check_clean(fleet, machine=35.0)


async def test_workers_stopped_past_their_lease_settle_nothing(url: str, fleet_on: StartFleet) -> None:
    lease = 2.0
    fleet = await fleet_on(url, TASKS, 2, workers=3, lease=lease, work=0.1)
    stopped = 0
    while stopped < FAULTS:
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
    await fleet.wait_done(TASKS, 600)
    await check_clean(fleet)


async def test_a_server_that_crashes_ten_times_loses_nothing(server: Server, fleet_on: StartFleet) -> None:
    fleet = await fleet_on(server.url, TASKS, 2)
    await inject_faults(fleet, server.crash, 10, 0.5, TASKS)
    await fleet.wait_done(TASKS, 600)
    result = await fleet.check()
    print(result.summary())
    # Workers may have to give up their leases while the server is away: more may run again than was killed.
    unexpected = [words for words in result.violations if "extra executions" not in words]
    assert not unexpected, unexpected


async def test_sessions_that_are_cut_lose_nothing(server: Server, fleet_on: StartFleet) -> None:
    fleet = await fleet_on(server.url, TASKS, 2)
    await inject_faults(fleet, server.cut, FAULTS, 0.05, TASKS)
    await fleet.wait_done(TASKS, 600)
    await check_clean(fleet)


async def test_answers_that_get_lost_duplicate_nothing(server: Server, fleet_on: StartFleet) -> None:
    direct = server.url
    port = int(direct.split("127.0.0.1:")[1].partition("/")[0])
    proxy = Proxy("127.0.0.1", port)
    proxy.start()
    try:
        fleet = await fleet_on(server.at(proxy.port), TASKS, 2)
        proxy.loss_rate = 0.02
        await inject_faults(fleet, proxy.cut_all, 10, 0.05, TASKS)
        await fleet.wait_done(TASKS, 900)
        proxy.loss_rate = 0.0
        await check_clean(fleet)
        print(f"{proxy.lost} answers lost, {proxy.cut} connections cut")
        assert proxy.lost > 20
    finally:
        proxy.stop()


@pytest.mark.parametrize("bug", ["unfenced", "forgetful", "doubling"])
async def test_the_checker_notices_planted_bugs(tmp_path: Path, fleet_on: StartFleet, bug: str) -> None:
    """The same fleet with a queue that is broken on purpose must be found out."""
    lease = 1.5
    fleet = await fleet_on(f"sqlite:///{tmp_path}/queue.db", 4000, 1, workers=3, lease=lease, work=0.1, bug=bug)
    for attempt in range(12):  # now and then others have its work at the moment when it comes back
        name, pid = fleet.stop_worker()
        await asyncio.sleep(lease + 0.3 + 0.25 * (attempt % 6))
        if name:
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
    await fleet.wait_done(4000, 240)
    result = await fleet.check()
    print(result.violations)
    words = {"unfenced": ("stale accepted", "ended under"), "forgetful": ("lost",), "doubling": ("duplicated",)}[bug]
    assert any(violations.startswith(words) or any(w in violations for w in words) for violations in result.violations)
