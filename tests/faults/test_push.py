"""Tasks that are pushed by a balancer to real workers, of which one is slow, one freezes and one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import redis
from servers.ports import free_port
from wait import HANG, until

import shoal
from shoal.client.balanced_worker import BalancedWorker

from .conftest import children, clean_environment

TOKEN = "a-token-that-only-the-tests-know"
FROZEN_SECONDS = 30.0
TASKS = """
import asyncio, os, shoal

tasks = shoal.Scraper("tasks")

@tasks.task("wait")
async def wait(task):
    await asyncio.sleep(float(os.environ["SECONDS"]))
    with open("done", "a") as file:
        file.write(f"{task.payload['number']} {os.environ['WHO']}\\n")
    return os.environ["WHO"]
"""


@contextmanager
def fleet(folder: Path, queue: str, seconds: dict[str, float]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Workers with a port each, by name."""
    (folder / "tasks.py").write_text(TASKS)
    made = {}
    for name, took in seconds.items():
        port = free_port()
        command = [sys.executable, "-m", "shoal", "worker", "tasks.py", "--queue", queue, "--workers", "1"]
        command += [
            "--concurrency",
            "2",
            "--name",
            name,
            "--accept",
            f"127.0.0.1:{port}",
            "--lease",
            "10",
            "--heartbeat",
            "3",
        ]
        variables = {"SECONDS": str(took), "WHO": name, "SHOAL_ACCEPT_TOKEN": TOKEN}
        made[name] = subprocess.Popen(command, cwd=folder, env=clean_environment() | variables, text=True)
    try:
        yield made
    finally:
        for process in made.values():
            process.terminate()
        for process in made.values():
            process.wait(HANG)


def everybody(process: subprocess.Popen[str]) -> list[int]:
    return [process.pid, *children(process.pid)]


def done_lines(folder: Path) -> Counter[str]:
    return Counter((folder / "done").read_text().split("\n")[:-1])


async def submit_paced(pushing: shoal.LoadBalancer, numbers: range) -> list[int]:
    """Only as fast as somebody has room, so that it is the balancer that decides who gets what."""
    ids = []
    for number in numbers:

        async def has_room() -> bool:
            return (await pushing.get_worker()).load.has_room

        await until(has_room)
        ids.append(await pushing.submit(shoal.Task(type="wait", payload={"number": number})))
    return ids


async def all_healthy(pushing: shoal.LoadBalancer, places: int) -> None:
    async def ready() -> bool:
        await pushing.check_workers()
        return sum(worker.load.places for worker in pushing.workers if worker.is_healthy) == places

    await until(ready, every=0.2)


async def test_slow_worker_gets_half_as_much_and_a_killed_ones_tasks_are_done_by_others(tmp_path: Path) -> None:
    queue = redis.url("push-split")
    seconds = {"a": 0.4, "b": 0.4, "c": 0.4, "slow": 0.8}
    with fleet(tmp_path, queue, seconds) as workers:
        async with shoal.LoadBalancer(queue, token=TOKEN, health_check_interval=1) as pushing:
            await all_healthy(pushing, 8)
            ids = await submit_paced(pushing, range(280))
            async with shoal.connect(queue) as client:
                results = await client.wait_for_results(ids, timeout=HANG)
                got = Counter(result.value for result in results)
                ideal = {"a": 80, "b": 80, "c": 80, "slow": 40}
                print("split", dict(got))
                assert max(got[name] / ideal[name] for name in ideal) <= 1.15, got
                more = await submit_paced(pushing, range(280, 300))
                for pid in everybody(workers["a"]):
                    os.kill(pid, signal.SIGKILL)
                more += await submit_paced(pushing, range(300, 340))
                later = await client.wait_for_results(more, timeout=HANG)
    assert all(result.ok for result in later)
    lines = done_lines(tmp_path)
    assert len({line.split()[0] for line in lines}) == 340
    assert max(Counter(line.split()[0] for line in lines.elements()).values()) == 1


async def test_worker_that_is_frozen_loses_nothing_and_gets_nothing_meanwhile(tmp_path: Path) -> None:
    queue = redis.url("push-freeze")
    with fleet(tmp_path, queue, {"a": 0.4, "b": 0.4, "c": 0.4, "d": 0.4}) as workers:
        async with shoal.LoadBalancer(queue, token=TOKEN, health_check_interval=1) as pushing:
            await all_healthy(pushing, 8)
            ids = await submit_paced(pushing, range(40))
            frozen = everybody(workers["b"])
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            ends = asyncio.get_running_loop().time() + FROZEN_SECONDS
            victim = next(worker for worker in pushing.workers if worker.name.startswith("b-"))
            number, meanwhile = 40, list[int]()
            while asyncio.get_running_loop().time() < ends:
                was_known = not victim.is_healthy
                made = await submit_paced(pushing, range(number, number + 1))
                number += 1
                ids += made
                meanwhile += made if was_known else []
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            await until(lambda: _is_back(victim, pushing))
            ids += await submit_paced(pushing, range(number, number + 40))
            async with shoal.connect(queue) as client:
                results = {result.id: result for result in await client.wait_for_results(ids, timeout=HANG)}
    assert all(result.ok for result in results.values())
    assert len(meanwhile) > 20
    assert "b" not in {results[id].value for id in meanwhile}
    assert "b" in {results[id].value for id in ids[-40:]}
    assert {line.split()[0] for line in done_lines(tmp_path)} == {str(one) for one in range(number + 40)}


def _is_back(victim: BalancedWorker, pushing: shoal.LoadBalancer) -> bool:
    return next((worker.is_healthy for worker in pushing.workers if worker.name == victim.name), False)
