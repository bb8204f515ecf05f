"""The Redis queue alone: batches claimed and settled, by one and by many; memory per URL; a long backlog."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Attempt, LeasedTask, Outcome, Task, digest
from shoal.queue.redis import RedisQueue

ADD = 1000
RECORD = json.dumps({"url": "http://host/page", "title": "A page of middling length", "text": "x" * 100}).encode()


@contextmanager
def server(folder: Path, *options: str) -> Iterator[str]:
    """A private server with its log on, as the docs advise; the address of its socket."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("redis-server or valkey-server is needed: install one")
    place = folder / f"redis-{time.monotonic_ns()}"
    place.mkdir()
    path = str(place / "socket")
    argv = [program, "--port", "0", "--unixsocket", path, "--dir", str(place), "--save", "", *options]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            while not answers(path):
                time.sleep(0.01)
            yield f"redis+unix://{path}"
        finally:
            process.kill()


def answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            knock.connect(path)
        except OSError:
            return False
        return True


def tasks(first: int, count: int, hosts: int) -> list[Task]:
    """URLs of about 60 characters."""
    made = []
    for n in range(first, first + count):
        lane = f"h{n % hosts}.example"
        url = f"http://{lane}/catalogue/category/page-{n:09d}.html"
        made.append(Task(url=url.ljust(60, "x"), lane=lane, digest=digest(url)))
    return made


def done(task: LeasedTask) -> Outcome:
    attempt = Attempt(at=0, worker="bench", status=200, seconds=0.1, size=30_000)
    return Outcome(task=task.id, lease=task.lease, result="done", attempt=attempt, records=(RECORD,))


@dataclass
class Bench:
    queue: RedisQueue
    run: int
    hosts: int
    added: int = 0

    @classmethod
    async def open(cls, url: str, hosts: int) -> Bench:
        queue = await RedisQueue.open(url)
        run = await queue.start_run(NewRun(scraper="bench", key="bench", name="bench"))
        return cls(queue, run.id, hosts)

    async def add(self, count: int, *, batch: int = ADD) -> float:
        spent = 0.0
        paces = {f"h{n}.example": UNLIMITED_PACE for n in range(self.hosts)}
        for at in range(0, count, batch):
            some = tasks(self.added, min(batch, count - at), self.hosts)
            start = time.perf_counter()
            answers = await self.queue.add(self.run, some, paces)
            spent += time.perf_counter() - start
            assert answers.count("added") == len(some)
            self.added += len(some)
            paces = paces if self.added < self.hosts else {}
        return spent

    async def turn(self, limit: int) -> tuple[float, float, int]:
        start = time.perf_counter()
        claim = await self.queue.claim("bench", limit)
        claimed = time.perf_counter()
        outcomes = [done(task) for task in claim.tasks]
        settling = time.perf_counter()
        verdicts = await self.queue.settle(outcomes) if outcomes else []
        assert set(verdicts) <= {"ok"}, set(verdicts)
        return claimed - start, time.perf_counter() - settling, len(outcomes)

    async def memory(self) -> int:
        text = await self.queue._engine.plain("INFO", "memory")
        return int(text.decode().split("used_memory:")[1].split()[0])


async def throughput(folder: Path, hosts: int, count: int, batch: int, aof: str) -> dict[str, float]:
    """Every task added, claimed and settled with a record, in batches."""
    with server(folder, "--appendonly", aof) as url:
        bench = await Bench.open(url, hosts)
        adding = await bench.add(count, batch=batch)
        claiming = settling = 0.0
        handled = 0
        start = time.perf_counter()
        while handled < count:
            claimed, settled, number = await bench.turn(batch)
            assert number, "the queue handed out nothing although work was waiting"
            claiming, settling, handled = claiming + claimed, settling + settled, handled + number
        elapsed = time.perf_counter() - start
        stats = await bench.queue.stats(bench.run)
        await bench.queue.close()
    assert stats.done == stats.records == count, stats
    return {
        "hosts": hosts,
        "per_second": count / elapsed,
        "whole": count / (elapsed + adding),
        "add": adding / count,
        "claim": claiming / count,
        "settle": settling / count,
    }


async def client(url: str, batch: int) -> None:
    """One of many: takes batches until there is nothing left."""
    queue = await RedisQueue.open(url)
    run = (await queue.runs(name="bench"))[0].id
    bench = Bench(queue, run, 1)
    while (await bench.turn(batch))[2]:
        pass
    await queue.close()


async def together(folder: Path, clients: int, hosts: int, count: int, batch: int, aof: str) -> dict[str, float]:
    """The same work shared by processes."""
    with server(folder, "--appendonly", aof) as url:
        bench = await Bench.open(url, hosts)
        await bench.add(count)
        argv = [sys.executable, __file__, "--client", url, "--batch", str(batch)]
        processes = [await asyncio.create_subprocess_exec(*argv) for _ in range(clients)]
        while (stats := await bench.queue.stats(bench.run)).done == 0:
            await asyncio.sleep(0.01)
        first, start = stats.done, time.perf_counter()
        while (stats := await bench.queue.stats(bench.run)).open:
            await asyncio.sleep(0.02)
        elapsed = time.perf_counter() - start
        assert {await process.wait() for process in processes} == {0}
        await bench.queue.close()
    assert stats.done == stats.records == count and stats.stale == 0, stats
    return {"clients": clients, "per_second": (count - first) / elapsed}


async def backlog(folder: Path, waiting: int, hosts: int, turns: int) -> dict[str, float]:
    """Memory of so many queued URLs, and claims of 20 while they wait."""
    with server(folder, "--appendonly", "no") as url:
        bench = await Bench.open(url, hosts)
        empty = await bench.memory()
        filling = await bench.add(waiting)
        memory = (await bench.memory() - empty) / waiting
        waits = []
        for _ in range(turns):
            claimed, _, number = await bench.turn(20)
            waits.append(claimed)
            await bench.add(number)
        await bench.queue.close()
    return {
        "waiting": waiting,
        "bytes": memory,
        "p50": harness.quantile(waits, 0.5),
        "p99": harness.quantile(waits, 0.99),
        "fill_rate": waiting / filling,
    }


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


async def everything(args: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], str]:
    result: dict[str, Any] = {"machine": harness.machine(), "arguments": vars(args)}
    rows: list[list[str]] = []

    def note(what: str, figure: str, target: str) -> None:
        rows.append([what, figure, target])
        print(f"  {what}: {figure} (target {target or '-'})", flush=True)

    for hosts, batch in ((1, 100), (100, 100), (100, 1)):
        count = args.tasks if batch > 1 else args.tasks // 10
        runs = [await throughput(folder, hosts, count, batch, args.aof) for _ in range(args.repeats)]
        result[f"throughput_{hosts}_{batch}"] = runs
        target = "≥ 28,000 /s" if batch == 100 else ""
        what = f"batches of {batch} claimed and settled with a record, {hosts} host(s)"
        note(what, f"{harness.spread([run['per_second'] for run in runs], ',.0f')} /s", target)
        note("… adding included", f"{harness.spread([run['whole'] for run in runs], ',.0f')} /s", "")
    many = [await together(folder, args.clients, 100, args.tasks * 2, 100, args.aof) for _ in range(args.repeats)]
    result["together"] = many
    what = f"batches of 100 by {args.clients} processes at once, 100 hosts"
    note(what, f"{harness.spread([run['per_second'] for run in many], ',.0f')} /s", "")
    small = await backlog(folder, 10_000, args.hosts, args.turns)
    large = await backlog(folder, args.backlog, args.hosts, args.turns)
    result["backlog"] = [small, large]
    for one in (small, large):
        target = f"≤ {ms(2 * small['p99'])}" if one is large else ""
        what = f"claim of 20 with {one['waiting']:,} waiting, {args.hosts} hosts, p50 / p99"
        note(what, f"{ms(one['p50'])} / {ms(one['p99'])}", target)
        note(
            f"memory per queued URL of 60 characters, {one['waiting']:,} waiting", f"{one['bytes']:.0f} bytes", "≤ 200"
        )
    note("adding 1,000 at a time", f"{large['fill_rate']:,.0f} /s", "≥ 60,000 /s")
    return result, harness.table(["Redis queue", "measured", "target"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000, help="of a throughput run")
    parser.add_argument("--repeats", type=int, default=3, help="of the throughput runs")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="the largest number waiting")
    parser.add_argument("--turns", type=int, default=500, help="claims timed at each backlog")
    parser.add_argument("--hosts", type=int, default=100, help="of the backlog runs")
    parser.add_argument("--aof", choices=("yes", "no"), default="yes", help="the server's log (appendonly)")
    parser.add_argument("--clients", type=int, default=8, help="processes at once")
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=100, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        asyncio.run(client(args.client, args.batch))
        return 0
    print(f"appendonly {args.aof}, calibration {harness.calibrate():.3f} CPU-s")
    with harness.scratch() as folder:
        result, text = asyncio.run(everything(args, folder))
    print(f"\n{text}")
    harness.save("queue_redis", result, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
