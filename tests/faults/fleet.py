"""A fleet on one machine: several supervisors as machines, one queue, one history, and ways to hurt them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wait import HANG

from faults.checker import CheckResult, Limits, check_history, read_history
from faults.recorder import History
from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Task, digest
from shoal.queue.base import Queue

TESTS = Path(__file__).resolve().parent.parent


class Machine:
    """One supervisor and its workers, in a session of their own."""

    def __init__(self, orders: dict[str, Any]) -> None:
        env = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "faults.machine_process", json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            self.kill()
            raise AssertionError("a machine did not start")

    def workers(self) -> dict[str, int]:
        """Names and process ids of the workers that are alive."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                name = _worker_of(pid)
                if name:
                    found[name] = pid
        return found

    def kill(self) -> None:
        """The power cord: supervisor and workers at once."""
        victims = list(self.workers().values()) if self.process.poll() is None else []
        for pid in (self.process.pid, *victims):
            with _gone():
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(HANG)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with _gone():
                    pipe.close()


@contextmanager
def _gone() -> Iterator[None]:
    with suppress(ProcessLookupError, BrokenPipeError):
        yield


def _worker_of(pid: int) -> str:
    """The worker a process is, by the history it has open; empty before it has one."""
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            target = str(handle.readlink())
            if target.endswith(f"-{pid}.jsonl"):
                return Path(target).name.removesuffix(f"-{pid}.jsonl")
    except OSError:
        pass
    return ""


class FaultFleet:
    def __init__(self, folder: Path, url: str, **orders: Any) -> None:
        self.folder = folder
        self.url = url
        self.history = folder / "history"
        self.history.mkdir()
        defaults = {"queue": url, "history": str(self.history), "workers": 2, "concurrency": 4}
        self.orders = {**defaults, "lease": 30.0, "work": 0.02, "bug": "", **orders}
        self.machines: list[Machine] = []
        self.dice = random.Random(11)
        self._log = History(self.history, "hand")
        self.queue: Queue | None = None
        self.run: Run | None = None

    async def open(self, tasks: int, lanes: int = 16) -> None:
        self.queue = await app.open_queue(load({"queue": self.url, "synchronous": "normal"}, env={}))
        self.run = await self.queue.start_run(NewRun(scraper="faults", key="faults", name="faults"))
        paces = {f"lane{n}": UNLIMITED_PACE for n in range(lanes)}
        for first in range(0, tasks, 1000):
            await self.queue.add(
                self.run.id,
                [
                    Task(
                        url=f"task:step/{n}",
                        lane=f"lane{n % lanes}",
                        digest=digest(f"step {n}"),
                        kind="step",
                        meta={"payload": {"n": n}},
                    )
                    for n in range(first, min(first + 1000, tasks))
                ],
                paces,
            )

    def start(self, machines: int) -> None:
        for _ in range(machines):
            place = self.folder / f"machine{len(self.machines)}-{time.monotonic_ns()}"
            place.mkdir()
            self.machines.append(Machine({**self.orders, "notes": str(place)}))

    def kill_worker(self) -> str:
        """kill -9 of a worker that is alive; its name."""
        machine = self.dice.choice(self.machines)
        workers = machine.workers()
        if not workers:
            return ""
        name = self.dice.choice(sorted(workers))
        at = time.monotonic()
        with _gone():
            os.kill(workers[name], signal.SIGKILL)
        self._log.write("kill", at=at, workers=[name], how="child")
        return name

    def kill_machine(self) -> None:
        """kill -9 of a supervisor and all its workers; another machine takes its place."""
        machine = self.machines.pop(self.dice.randrange(len(self.machines)))
        names, at = list(machine.workers()), time.monotonic()
        machine.kill()
        self._log.write("kill", at=at, workers=names, how="machine")

    def stop_worker(self) -> tuple[str, int]:
        machine = self.dice.choice(self.machines)
        workers = machine.workers()
        if not workers:
            return "", 0
        name = self.dice.choice(sorted(workers))
        os.kill(workers[name], signal.SIGSTOP)
        self._log.write("kill", workers=[name], how="stop")
        return name, workers[name]

    async def wait_until_all_work(self, seconds: float = 30) -> None:
        """Until every machine has all its workers, each with work it has begun."""
        until = time.monotonic() + seconds
        while True:
            busy = {event["worker"] for event in read_history(self.history) if event["what"] == "start"}
            if all(len(busy & m.workers().keys()) == self.orders["workers"] for m in self.machines):
                return
            assert time.monotonic() < until, "some workers do not begin"
            await asyncio.sleep(0.1)

    async def stats(self) -> Any:
        assert self.queue is not None and self.run is not None
        return await self.queue.stats(self.run.id)

    async def wait_done(self, count: int, seconds: float) -> None:
        """Until so many have ended."""
        until = time.monotonic() + seconds
        while True:
            try:
                stats = await self.stats()
                if stats.done + stats.dead >= count:
                    return
            except OSError:
                raise
            except Exception as error:  # a server that is down just now
                if type(error).__name__ not in ("QueueUnavailable", "QueueReadOnly", "QueueFull"):
                    raise
            assert time.monotonic() < until, f"the fleet does not get on: {await self.stats()}"
            await asyncio.sleep(0.1)

    async def check(self, *, limits: Limits = Limits()) -> CheckResult:
        """What the checker says once the fleet has ended, the account included."""
        while self.machines:
            self.machines.pop().end()
        assert self.queue is not None and self.run is not None
        stats, counted = await self.stats(), await self.queue.recount(self.run.id)
        added = await self._ids()
        result = check_history(read_history(self.history), added, await self._records(), limits=limits)
        if stats.dead or not stats.is_balanced or (stats.done, stats.records) != (counted.done, counted.records):
            result.violations.append(f"the account: {stats}, counted {counted}")
        return result

    async def _ids(self) -> list[int]:
        assert self.queue is not None and self.run is not None
        ids: list[int] = []
        while True:
            views = await self.queue.list_tasks(self.run.id, after=ids[-1] if ids else 0, limit=1000)
            if not views:
                return ids
            ids += [view.id for view in views]

    async def _records(self) -> list[int]:
        assert self.queue is not None and self.run is not None
        tasks: list[int] = []
        after = 0
        while True:
            records = await self.queue.records(self.run.id, after=after, limit=1000)
            if not records:
                return tasks
            tasks += [record.task for record in records]
            after = records[-1].seq

    async def close(self) -> None:
        while self.machines:
            self.machines.pop().kill()
        if self.queue is not None:
            await self.queue.close()
