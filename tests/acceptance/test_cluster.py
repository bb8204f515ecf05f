"""A cluster file starts a cluster: a coordinator that sees to the queue, workers that work on it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit
from servers.ports import free_port
from small_site import page
from wait import HANG, wait_until

from shoal.cli.main import main
from shoal.core.stats import Stats
from shoal.core.task import Outcome
from shoal.queue.base import Queue
from shoal.store.results.base import open_results

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet("redis", tmp_path) as made:
        made.site.pages["/"] = page("home")
        made.user.environment.pop("SHOAL_QUEUE")
        made.user.environment.pop("SHOAL_WORKERS")
        yield made


@pytest.fixture
def sqlite_fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet("sqlite", tmp_path) as made:
        made.user.environment.pop("SHOAL_QUEUE")
        yield made


class Cluster:
    """A cluster file, and what was started with it."""

    def __init__(self, fleet: LocalFleet, **more: Any) -> None:
        self.fleet = fleet
        self.port = free_port()
        address, _, name = fleet.queue.partition("?namespace=")
        shape: dict[str, Any] = {
            "coordinator": {"host": "127.0.0.1", "port": self.port},
            "queue": {"max_retries": 2, "retry_delay": 1},
            "workers": {"count": 2, "per_machine": 1},
            "scrapers": [fleet.scraper()],
            "settings": {"lease": "2s", "heartbeat": "0.5s"},
        }
        shape |= {"redis": {"url": address}} if name else {}
        shape["queue"] |= {"name": name} if name else {"url": address}
        (fleet.user.folder / "cluster.yaml").write_text(yaml.safe_dump(shape | more))

    def start(self, role: str, *words: str) -> subprocess.Popen[str]:
        return self.fleet.user.start("cluster", "start", "cluster.yaml", "--role", role, *words)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=HANG) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


def test_a_cluster_works_as_its_file_says(fleet: LocalFleet) -> None:
    cluster = Cluster(fleet)
    coordinator, worker = cluster.start("coordinator"), cluster.start("worker")
    wait_until(lambda: cluster.get("/ready")[0] == 200)
    assert json.loads(cluster.get("/health")[1])["role"] == "coordinator"
    run = fleet.submit(["/"])
    fleet.finished(run)
    assert fleet.records(run) == [fleet.site.url("/")]
    wait_until(lambda: len(fleet.workers()) == 1)  # as many processes as per_machine says
    wait_until(lambda: 'shoal_workers{state="idle"} 1\n' in cluster.get("/metrics")[1])
    assert 'shoal_tasks{state="ready"} 0\n' in cluster.get("/metrics")[1]
    assert (stop_process(worker).code, stop_process(coordinator).code) == (0, 0)


def test_the_delay_before_a_second_try_is_that_of_the_file(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/"] = page("broken", status=500)
    cluster = Cluster(sqlite_fleet, queue={"url": sqlite_fleet.queue, "max_retries": 2, "retry_delay": "1h"})
    run = sqlite_fleet.submit(["/"])
    worker = cluster.start("worker")
    wait_until(lambda: sqlite_fleet.stats(run).delayed)
    assert stop_process(worker).code == 0

    async def left(queue: Queue) -> float:
        (task,) = await queue.list_tasks(run.id)
        return (task.due_at - await queue.now()) / 1e6

    assert 3500 < sqlite_fleet.ask(left) <= 3600 * 1.25


def test_a_coordinator_gives_back_what_a_dead_machine_held_and_finishes_what_is_empty(fleet: LocalFleet) -> None:
    cluster = Cluster(fleet)
    held = fleet.submit(["/"])

    async def take_and_die(queue: Queue) -> None:
        assert (await queue.claim("gone", 1, lease=0.5)).tasks

    async def work(queue: Queue) -> None:
        claim = await queue.claim("here", 1)
        await queue.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])

    fleet.ask(take_and_die)
    coordinator = cluster.start("coordinator")
    wait_until(lambda: fleet.stats(held).ready == 1)
    fleet.ask(work)
    fleet.finished(held)
    done = stop_process(coordinator)
    assert done.code == 0 and "coordinator" in done.err and "Stopped." in done.err


def test_a_coordinator_fires_schedules_and_carries_records_to_the_store(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/"] = page("home")
    cluster = Cluster(sqlite_fleet, storage={"type": "sqlite", "url": "sqlite:///results.db"})
    queue = {"SHOAL_QUEUE": sqlite_fleet.queue}
    assert sqlite_fleet.user.shoal("schedule", "add", "plain.py", "every 1s", **queue).code == 0
    coordinator = cluster.start("coordinator")
    wait_until(lambda: sqlite_fleet.ask(lambda queue: queue.runs()))
    assert sqlite_fleet.user.shoal("schedule", "pause", "plain", **queue).code == 0
    worker = cluster.start("worker")
    wait_until(lambda: not sqlite_fleet.ask(lambda queue: queue.runs(states=("running",))))
    assert (stop_process(worker).code, stop_process(coordinator).code) == (0, 0)

    async def stored() -> int:
        store = await open_results(f"sqlite:///{sqlite_fleet.user.folder}/results.db")
        try:
            return sum([1 async for _ in store.aggregate("plain")])
        finally:
            await store.close()

    async def account(queue: Queue) -> list[Stats]:
        return [await queue.stats(run.id) for run in await queue.runs()]

    counted = sqlite_fleet.ask(account)
    assert all(stats.records == stats.trimmed == 1 for stats in counted)
    assert asyncio.run(stored()) == len(counted)


def test_a_coordinator_waits_for_a_queue_that_is_not_up_yet_and_says_so_to_probes(sqlite_fleet: LocalFleet) -> None:
    cluster = Cluster(sqlite_fleet)
    (sqlite_fleet.user.folder / "cluster.yaml").write_text(
        f"coordinator: {{port: {cluster.port}}}\nredis: {{url: 'redis://127.0.0.1:{free_port()}/0'}}\n"
    )
    coordinator = cluster.start("coordinator")
    wait_until(lambda: cluster.get("/health")[0] == 200)
    assert cluster.get("/ready")[0] == 503
    assert stop_process(coordinator).code == 0


def test_roles_can_be_started_from_python(fleet: LocalFleet) -> None:
    Cluster(fleet)
    script = (
        "import shoal\n"
        "config = shoal.load_config('cluster.yaml')\n"
        "assert config.count == 2\n"
        "raise SystemExit(shoal.start_cluster(config, role='worker'))\n"
    )
    run = fleet.submit(["/"])
    worker = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=fleet.user.folder,
        env=fleet.user.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        fleet.finished(run)
    finally:
        os.kill(worker.pid, signal.SIGTERM)
        assert wait_for_exit(worker).code == 0


def test_a_coordinator_is_a_server(sqlite_fleet: LocalFleet) -> None:
    cluster = Cluster(sqlite_fleet)
    coordinator = cluster.start("coordinator")
    wait_until(lambda: cluster.get("/ready")[0] == 200)
    assert json.loads(cluster.get("/stats")[1])["workers"]["total"] == 0
    assert stop_process(coordinator).code == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_place_that_others_can_reach_needs_a_token(sqlite_fleet: LocalFleet, host: str) -> None:
    cluster = Cluster(sqlite_fleet, coordinator={"host": host, "port": free_port()})
    done = wait_for_exit(cluster.start("coordinator"))
    assert done.code == 2 and "no token would be required" in done.err
    assert "shoal token add" in done.err and "SHOAL_TOKEN" in done.err
    assert "--queue" in done.err  # or it would be made for another queue
    assert "needs a token" in sqlite_fleet.user.shoal("cluster", "check", "cluster.yaml").out
    assert sqlite_fleet.user.shoal("token", "add", "me", SHOAL_QUEUE=sqlite_fleet.queue).code == 0
    coordinator = cluster.start("coordinator")
    wait_until(lambda: coordinator.poll() is not None or _answers(cluster))
    assert stop_process(coordinator).code == 0


def _answers(cluster: Cluster) -> bool:
    port = yaml.safe_load((cluster.fleet.user.folder / "cluster.yaml").read_text())["coordinator"]["port"]
    cluster.port = port
    return cluster.get("/health")[0] == 200 and cluster.get("/stats")[0] == 401


def test_two_coordinators_cannot_have_the_same_place(sqlite_fleet: LocalFleet) -> None:
    cluster = Cluster(sqlite_fleet)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.port))
        taken.listen()
        done = wait_for_exit(cluster.start("coordinator"))
    assert done.code == 2 and f"Cannot listen on 127.0.0.1:{cluster.port}" in done.err


# Looking at a file


@pytest.fixture
def here(sqlite_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    monkeypatch.chdir(sqlite_fleet.user.folder)
    return sqlite_fleet


def test_a_file_can_be_checked_without_starting_anything(here: LocalFleet, capsys: pytest.CaptureFixture[str]) -> None:
    Cluster(here, storage={"type": "postgresql", "url": "postgresql://me:secret@store.example/results"})
    assert main(["cluster", "check", "cluster.yaml"]) == 0
    out = capsys.readouterr().out
    assert "cluster.yaml is valid." in out
    for words in ("2 on 2 machines", "scrapers     plain", "1 s, doubled each time", "store.example"):
        assert words in out
    assert "secret" not in out
    assert main(["cluster", "check", "cluster.yaml", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["workers"] == {"count": 2, "per_machine": 1, "machines": 2} and "secret" not in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: {cuont: 3}", "cluster.yaml: workers.cuont: unknown key"),
        ("scrapers: [none.py]", "none.py"),
        ("settings: {lease: 1s}", "too slow for a lease"),
    ],
)
def test_a_wrong_file_is_refused(here: LocalFleet, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    Path("cluster.yaml").write_text(text)
    for command in (("check", "cluster.yaml"), ("start", "cluster.yaml", "--role", "worker")):
        assert main(["cluster", *command]) == 2
        assert words in capsys.readouterr().err


def test_the_example_is_in_order(here: LocalFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", str(EXAMPLE)]) == 0
    assert "scrapers     books" in capsys.readouterr().out
