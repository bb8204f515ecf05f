"""The commands through RabbitMQ, with real processes: relay, submit, worker, and a broker that is late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from servers import rabbitmq
from servers.network_namespace import network_namespace
from wait import HANG, wait_until

TASKS = """
import shoal

fleet = shoal.Scraper("fleet")


@fleet.task("double")
async def double(task):
    return {"n": 2 * task.payload["n"]}
"""
PRODUCER = """
import asyncio
import os
import shoal


async def main():
    async with shoal.connect(os.environ["SHOAL_QUEUE"]) as client:
        ids = await client.enqueue_many(shoal.Task(type="double", payload={"n": n}) for n in range(50))
        results = await client.wait_for_results(ids, timeout=200)
    print(sorted(result.value["n"] for result in results))


asyncio.run(main())
"""


class Commands:
    """Somebody who runs shoal's commands in a folder, with a queue that RabbitMQ carries."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self.ledger = f"{broker}&ledger=sqlite:///{folder}/ledger.db"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        self.environment["SHOAL_QUEUE"] = f"{broker}&ledger=relay"
        (folder / "fleet.py").write_text(TASKS)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *argv: str) -> subprocess.Popen[str]:
        with (self.folder / f"{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *argv], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextmanager
def commands(folder: Path, broker: str) -> Iterator[Commands]:
    made = Commands(folder, broker)
    try:
        yield made
    finally:
        made.end()


def doubled(output: str) -> bool:
    return json.loads(output) == [2 * n for n in range(50)]


def test_producer_and_worker_know_the_broker_only_and_the_relay_stops_when_told(tmp_path: Path) -> None:
    broker = rabbitmq.shared().url(namespace=f"c{uuid4().hex[:12]}")
    with commands(tmp_path, broker) as user:
        relay = user.start("-m", "shoal", "relay", "--queue", user.ledger)
        worker = user.start("-m", "shoal", "worker", "fleet.py", "--workers", "1")
        out, _ = user.start("-c", PRODUCER).communicate(timeout=HANG)
        assert doubled(out)
        for process in (worker, relay):
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG) == 0
        looking = user.start("-m", "shoal", "status")
        assert looking.wait(HANG) == 1
        said = (tmp_path / f"{len(user.started) - 1}.log").read_text()
        assert "no relay runs behind amqp://" in said and "shoal relay --queue" in said


@pytest.mark.faults  # a broker of its own
def test_everybody_waits_for_a_broker_that_is_late(tmp_path: Path) -> None:
    try:
        server = rabbitmq.Server(management=False)
    except rabbitmq.ServerMissing as missing:
        rabbitmq.refuse(missing)
    try:
        with commands(tmp_path, server.url(namespace="late")) as user:
            worker = user.start(
                "-m", "shoal", "worker", "fleet.py", "--workers", "1", "--relay", "--queue", user.ledger
            )
            wait_until(lambda: "waits for" in (tmp_path / "0.log").read_text())
            server.start()
            out, _ = user.start("-c", PRODUCER).communicate(timeout=HANG)
            assert doubled(out)
            assert worker.poll() is None
    finally:
        server.remove()


REACHES = """
import socket
import sys

for port in sys.argv[1:]:
    try:
        socket.create_connection(("127.0.0.1", int(port)), 5).close()
        print(port)
    except OSError:
        pass
"""


def test_a_worker_that_reaches_nothing_but_the_port_of_the_broker_does_its_work(tmp_path: Path) -> None:
    server = rabbitmq.shared()
    broker = server.url(namespace=f"apart{uuid4().hex[:12]}")
    with commands(tmp_path, broker) as user, network_namespace() as apart, apart.reaching(server.port):
        user.start("-m", "shoal", "relay", "--queue", user.ledger)
        with apart.entered():
            reaching = user.start("-c", REACHES, str(server.port), str(server.management_port))
            user.start("-m", "shoal", "worker", "fleet.py", "--workers", "1")
        assert reaching.communicate(timeout=HANG)[0].split() == [str(server.port)]
        out, _ = user.start("-c", PRODUCER).communicate(timeout=HANG)
        assert doubled(out)
