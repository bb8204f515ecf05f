"""Brokers, connections, workers and relays that are killed: nothing is lost, recorded twice, or two letters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from servers import postgres, rabbitmq, redis
from wait import HANG, until, wait_until

import shoal
from shoal import app
from shoal.client.client import Client
from shoal.config.load import load
from shoal.core.typed_task import payload_of
from shoal.errors import QueueUnavailable
from shoal.queue.base import Queue

from .broker_connections import cut_connection
from .letter_views import copies, deaths, is_copied

pytestmark = pytest.mark.faults

TASKS = int(os.environ.get("SHOAL_FAULT_TASKS", "10000"))
EVENTS = {"broker": 10, "connection": 50, "worker": 50, "relay": 20}
SHARES = {"redis": 1.0, "postgres": 0.2}  # by ledger, of the tasks and of what happens to them
SCALE = float(os.environ.get("SHOAL_FAULT_EVENTS", "1"))  # of the numbers above
HOPELESS = 50  # every so many-th task fails for good
HANDLER = f"""
import asyncio
import shoal

fleet = shoal.Scraper("fleet")


@fleet.task("step", retries=10)
async def step(task):
    await asyncio.sleep(task.payload["seconds"])
    if task.payload["n"] % {HOPELESS} == 0:
        raise shoal.GiveUp("hopeless")
    return {{"n": task.payload["n"]}}
"""


class Fleet:
    """A broker, relays and workers as processes of their own; each can be killed and is started again."""

    def __init__(self, broker: rabbitmq.Server, ledger: str, folder: Path, share: float) -> None:
        self.broker = broker
        self.share = share
        self.tasks = round(TASKS * share)
        self.ledger = ledger
        self.folder = folder
        self.queue = broker.url(ledger="relay")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "fleet.py").write_text(HANDLER)
        self.log = (folder / "output").open("wb")

    def start(self, name: str) -> None:
        argv = [sys.executable, "-m", "shoal"]
        if name.startswith("relay"):
            argv += ["relay", "--queue", self.broker.url(ledger=self.ledger)]
        else:
            argv += [
                "worker",
                "fleet.py",
                "--workers",
                "2",
                "--concurrency",
                "16",
                "--name",
                name,
                "--queue",
                self.queue,
            ]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "fleet.py").write_text(HANDLER)
        self.processes[name] = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def kill(self, name: str, *, only_child: bool = False) -> None:
        """The whole of it, as a machine that fails; or one of its processes, whose supervisor lives on."""
        process = self.processes[name]
        children = psutil.Process(process.pid).children(recursive=True)
        if only_child and children:
            with contextlib.suppress(psutil.NoSuchProcess):
                random.choice(children).kill()
            return
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.start(name)

    def cut_connection(self) -> None:
        wait_until(lambda: cut_connection(self.broker), every=0.1)

    def revive_ended(self) -> None:
        """A worker that gave up, because the broker was away for too long, is started again as systemd would."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.start(name)

    def end(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.log.close()


@contextlib.contextmanager
def ledger_url(kind: str) -> Iterator[str]:
    if kind == "postgres":
        yield postgres.shared().url(f"t{uuid4().hex}")
        return
    with redis.own_server("--appendonly", "yes") as server:
        yield server.url("faults")


@pytest.fixture(params=SHARES)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with ledger_url(request.param) as ledger, rabbitmq.own_server() as broker:
        made = Fleet(broker, ledger, tmp_path, SHARES[request.param])
        try:
            for name in ("relay-a", "relay-b", "worker-a", "worker-b"):
                made.start(name)
            yield made
        finally:
            made.end()


async def enqueue(fleet: Fleet, numbers: range) -> None:
    """Through the broker, again until it is taken; a key makes each the same task however often it is sent."""
    while True:
        try:
            async with shoal.connect(fleet.queue) as client:
                assert isinstance(client, Client)
                await client.enqueue_many(
                    shoal.Task(type="step", key=str(n), payload={"n": n, "seconds": 0.01 + (n % 7) / 100})
                    for n in numbers
                )
                return
        except QueueUnavailable:
            fleet.revive_ended()


async def finished(ledger: Queue, count: int) -> bool:
    runs = await ledger.runs(scraper="task:step")
    stats = await ledger.stats_of([run.id for run in runs])
    return sum(it.done + it.dead for it in stats) >= count


async def act(fleet: Fleet, event: str) -> None:
    if event == "broker":
        await asyncio.to_thread(fleet.broker.kill)
        await asyncio.to_thread(fleet.broker.start)
    elif event == "connection":
        await asyncio.to_thread(fleet.cut_connection)
    elif event == "worker":
        fleet.kill(random.choice(["worker-a", "worker-b"]), only_child=random.random() < 0.5)
    else:
        fleet.kill(random.choice(["relay-a", "relay-b"]))


@pytest.mark.timeout(3600)
async def test_nothing_is_lost_or_recorded_twice_whatever_is_killed(fleet: Fleet) -> None:
    scale, tasks = SCALE * fleet.share, fleet.tasks
    events = [name for name, count in EVENTS.items() for _ in range(max(1, round(count * scale)))]
    random.shuffle(events)
    ledger = await app.open_queue(load({"queue": fleet.ledger}))
    try:
        added = 0
        for number, event in enumerate(events, 1):
            upto = tasks * number // len(events)
            await enqueue(fleet, range(added, upto))
            begun, added = added, upto
            await until(lambda some=(begun + upto) // 2: finished_or_revived(fleet, ledger, some - 200), every=0.05)
            await act(fleet, event)
            fleet.revive_ended()
        await until(lambda: finished_or_revived(fleet, ledger, tasks), 3 * HANG, every=0.2)
        await check(ledger, tasks)
        dead = await deaths(ledger)
        await until(lambda: is_copied(ledger, dead), every=0.2)
        assert await asyncio.to_thread(copies, fleet.broker) == Counter(dead.keys())
    finally:
        await ledger.close()


async def finished_or_revived(fleet: Fleet, ledger: Queue, count: int) -> bool:
    fleet.revive_ended()
    return await finished(ledger, count)


async def check(ledger: Queue, tasks: int) -> None:
    """The account of the ledger, and every record there is."""
    seen: Counter[int] = Counter()
    dead: list[int] = []
    for run in await ledger.runs(scraper="task:step"):
        stats = await ledger.stats(run.id)
        assert stats == await ledger.recount(run.id)
        assert stats.open == 0, stats
        views = await ledger.list_tasks(run.id, state="dead", limit=tasks)
        assert {view.cause for view in views} == {"hopeless"}
        dead += [payload_of(view.meta or {})["n"] for view in views]
        after = 0
        while page := await ledger.records(run.id, after=after):
            seen.update(json.loads(record.data)["n"] for record in page)
            after = page[-1].seq
    hopeless = range(0, tasks, HOPELESS)
    assert sorted(dead) == list(hopeless)
    assert sorted(seen) == sorted(set(range(tasks)).difference(hopeless)), f"{len(seen)} of {tasks} recorded"
    assert set(seen.values()) == {1}
