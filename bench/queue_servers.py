"""Queues of every kind with private servers, and a fleet of real workers whose CPU and theirs is counted.

For benchmarks that measure what a page costs whom: the worker, the server of its queue, the relay.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
import psutil
import remote_queue
from memory import peak_of

sys.path.insert(0, str(harness.ROOT / "tests"))

from queues import rabbitmq_server, redis_server
from servers import postgres

KINDS = ("sqlite", "redis", "postgres", "http", "rabbitmq")
WAIT = 120.0  # seconds for workers to come up
Start = Callable[..., subprocess.Popen[bytes]]


@dataclass(frozen=True)
class QueueServer:
    """A queue that workers can be given, and the processes that serve it."""

    kind: str
    url: str
    pids: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()  # where workers connect

    def cpu(self) -> float:
        """CPU seconds of its processes so far."""
        return sum(harness.tree(pid)[1] for pid in self.pids)


def _listener(port: int) -> int:
    """The process that listens there; its own word, as the programs that start servers are others."""
    found = {
        one.pid
        for one in psutil.net_connections("tcp")
        if one.laddr.port == port and one.status == "LISTEN" and one.pid
    }
    return int(min(found))


def _port(url: str) -> int:
    return int(url.split("//", 1)[1].split("/", 1)[0].rpartition(":")[2])


@contextlib.contextmanager
def queue_server(kind: str, folder: Path) -> Iterator[QueueServer]:
    """A fresh queue of this kind; durable where it can be."""
    name = f"q{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            yield QueueServer(kind, f"sqlite:///{folder}/{name}.db")
        elif kind == "redis":
            url = stack.enter_context(redis_server(folder))
            yield QueueServer(kind, url, (_listener(_port(url)),), (_port(url),))
        elif kind == "postgres":
            server = postgres.Server(durable=True)
            stack.callback(server.remove)
            yield QueueServer(kind, server.tcp_url(name), (_listener(server.port),), (server.port,))
        elif kind == "http":
            nowhere = harness.Site(("http://127.0.0.1:1/",))
            url, pid = stack.enter_context(remote_queue.server(nowhere, f"sqlite:///{folder}/{name}.db", folder))
            yield QueueServer(kind, url, (pid,), (_port(url),))
        elif kind == "rabbitmq":
            broker = stack.enter_context(rabbitmq_server(folder))
            redis = stack.enter_context(redis_server(folder))
            url = f"{broker.removesuffix('/')}?namespace={name}&ledger={redis}"
            start = _starter(folder / name, {"SHOAL_QUEUE": url}, stack)
            relay = start("relay")
            pids = (_listener(_port(broker)), _listener(_port(redis)), relay.pid)
            yield QueueServer(kind, url, pids, (_port(broker), _port(redis)))
        else:
            raise SystemExit(f"no such kind of queue: {kind}")


def _starter(place: Path, env: dict[str, str], stack: contextlib.ExitStack) -> Start:
    """Starts `shoal …` in a folder of its own, and ends it with the stack."""
    place.mkdir(parents=True)

    def start(*argv: str) -> subprocess.Popen[bytes]:
        log = (place / "log.txt").open("ab")
        process = subprocess.Popen(
            [str(harness.SHOAL), *argv], cwd=place, env=os.environ | env, stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_stop, process)
        return process

    return start


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    harness.kill_group(process.pid)
    process.wait()


@dataclass(frozen=True)
class FleetCost:
    """What one crawl by a fleet cost, from the moment it was submitted; start-up is not in it."""

    pages: int
    seconds: float  # from the first request to the last
    worker_cpu: float
    server_cpu: float
    worker_memory: int  # bytes, at most, of a worker process
    supervisor_memory: int
    connections: int  # to the server, at most, of all workers together
    bytes: int  # that the site sent

    @property
    def rate(self) -> float:
        return self.pages / self.seconds


def _connections(pids: Sequence[int], ports: tuple[int, ...]) -> int:
    """Open connections of a fleet to its queue's server."""
    found = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    found += sum(
                        bool(one.raddr) and one.raddr.port in ports and one.status == "ESTABLISHED"
                        for one in process.net_connections("tcp")
                    )
    return found


@dataclass(frozen=True)
class Fleet:
    """Running workers, each a supervisor with its processes."""

    pids: tuple[int, ...]
    folder: Path
    env: dict[str, str]

    def submit(self, *flags: str) -> None:
        """A run of the whole site."""
        give = [str(harness.SHOAL), "submit", str(harness.SCRAPER), "--fresh", *flags]
        subprocess.run(give, cwd=self.folder, env=os.environ | self.env, check=True, capture_output=True)

    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(harness.tree(pid)[1] for pid in self.pids)


@contextlib.contextmanager
def start_fleet(
    server: QueueServer,
    site: harness.Site,
    folder: Path,
    *,
    workers: int = 1,
    processes: int = 1,
    concurrency: int = 32,
) -> Iterator[Fleet]:
    """So many real workers, once all of them are up."""
    env = remote_queue.environment(site, server.url) | {"SHOAL_LOG_LEVEL": "warning"}
    with contextlib.ExitStack() as stack:
        pids = []
        for number in range(workers):
            start = _starter(folder / f"w{number}-{time.monotonic_ns()}", env, stack)
            words = ("--workers", str(processes), "--concurrency", str(concurrency), "--health", "0")
            pids.append(start("worker", str(harness.SCRAPER), *words).pid)
        _wait_for_workers(env, folder, workers * processes)
        yield Fleet(tuple(pids), folder, env)


def crawl(
    server: QueueServer,
    site: harness.Site,
    folder: Path,
    pages: int,
    *,
    workers: int = 1,
    processes: int = 1,
    concurrency: int = 32,
    flags: tuple[str, ...] = ("--delay", "0", "--in-flight", "0"),
    timeout: float = 1800.0,
) -> FleetCost:
    """Crawl the site with so many real workers, each a supervisor with its processes."""
    site.ask("/__reset")
    with start_fleet(server, site, folder, workers=workers, processes=processes, concurrency=concurrency) as fleet:
        before, served = fleet.cpu(), server.cpu()
        fleet.submit(*flags)
        connections, until = 0, time.monotonic() + timeout
        while site.ask("/__count")["pages"] < pages:
            connections = max(connections, _connections(fleet.pids, server.ports) if server.ports else 0)
            if time.monotonic() > until:
                raise SystemExit(f"the crawl does not get on: {site.ask('/__count')}")
            time.sleep(0.25)
        time.sleep(0.5)  # for the last outcomes to be settled
        count = site.ask("/__count")
        spent = fleet.cpu() - before
        children = [child.pid for pid in fleet.pids for child in psutil.Process(pid).children(recursive=True)]
        return FleetCost(
            pages,
            count["last_at"] - count["first_at"],
            spent,
            server.cpu() - served,
            max(map(peak_of, children)),
            max(map(peak_of, fleet.pids)),
            connections,
            int(count["bytes"]),
        )


def _wait_for_workers(env: dict[str, str], folder: Path, count: int) -> None:
    argv, until = [str(harness.SHOAL), "workers", "--json"], time.monotonic() + WAIT
    while True:
        said = subprocess.run(argv, cwd=folder, env=os.environ | env, capture_output=True, text=True).stdout
        if said.count('"id"') >= count:
            return
        if time.monotonic() > until:
            raise SystemExit(f"workers did not come up: {said}")
        time.sleep(0.3)
