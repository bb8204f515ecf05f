"""The SQLite queue alone: batches claimed and settled, a long backlog, eight processes on one file."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Attempt, LeasedTask, Outcome, Task, digest
from shoal.queue.sqlite import SqliteQueue

ADD = 1000
RECORD = json.dumps({"url": "http://host/page", "title": "A page of middling length", "text": "x" * 100}).encode()


def tasks(first: int, count: int, hosts: int) -> list[Task]:
    urls = [(f"h{n % hosts}.example", f"http://h{n % hosts}.example/p/{n}") for n in range(first, first + count)]
    return [Task(url=url, lane=lane, digest=digest(url)) for lane, url in urls]


def done(task: LeasedTask) -> Outcome:
    attempt = Attempt(at=0, worker="bench", status=200, seconds=0.1, size=30_000)
    return Outcome(task=task.id, lease=task.lease, result="done", attempt=attempt, records=(RECORD,))


@dataclass
class Bench:
    """One queue file with one run, and how long its verbs took."""

    queue: SqliteQueue
    run: int
    hosts: int
    worker: str = "bench"
    added: int = 0

    @classmethod
    async def open(cls, path: Path, hosts: int, synchronous: Any) -> Bench:
        queue = await SqliteQueue.open(str(path), synchronous=synchronous)
        run = await queue.start_run(NewRun(scraper="bench", key="bench", name="bench"))
        return cls(queue, run.id, hosts)

    async def add(self, count: int) -> float:
        """Add so many in calls of a thousand; the seconds spent inside the queue."""
        spent = 0.0
        paces = {f"h{n}.example": UNLIMITED_PACE for n in range(self.hosts)}
        for _ in range(-(-count // ADD)):
            batch = tasks(self.added, min(ADD, count), self.hosts)
            start = time.perf_counter()
            answers = await self.queue.add(self.run, batch, paces)
            spent += time.perf_counter() - start
            assert answers.count("added") == len(batch)
            self.added += len(batch)
            paces = {}
        return spent

    async def turn(self, limit: int) -> tuple[float, float, int]:
        """Claim once and settle all of it: the seconds of each, and how many tasks."""
        start = time.perf_counter()
        claim = await self.queue.claim(self.worker, limit)
        claimed = time.perf_counter()
        outcomes = [done(task) for task in claim.tasks]
        settling = time.perf_counter()
        verdicts = await self.queue.settle(outcomes) if outcomes else []
        assert set(verdicts) <= {"ok"}, set(verdicts)
        return claimed - start, time.perf_counter() - settling, len(outcomes)


async def throughput(folder: Path, hosts: int, count: int, synchronous: str) -> dict[str, float]:
    bench = await Bench.open(folder / f"throughput-{hosts}.db", hosts, synchronous)
    await bench.add(count)
    claiming = settling = 0.0
    handled = 0
    start = time.perf_counter()
    while handled < count:
        claimed, settled, number = await bench.turn(100)
        assert number, "the queue handed out nothing although work was waiting"
        claiming, settling, handled = claiming + claimed, settling + settled, handled + number
    elapsed = time.perf_counter() - start
    stats = await bench.queue.stats(bench.run)
    await bench.queue.close()
    assert stats.done == stats.records == count, stats
    return {"hosts": hosts, "per_second": count / elapsed, "claim": claiming / count, "settle": settling / count}


async def backlog(folder: Path, waiting: int, hosts: int, turns: int, synchronous: str) -> dict[str, float]:
    """Claims of 20 while so many wait; what was taken is put back, so that the backlog stays."""
    bench = await Bench.open(folder / f"backlog-{waiting}.db", hosts, synchronous)
    filling = await bench.add(waiting)
    adding = await bench.add(20 * ADD)
    waits = []
    for _ in range(turns):
        claimed, _, number = await bench.turn(20)
        waits.append(claimed)
        await bench.add(number)
    await bench.queue.close()
    return {
        "waiting": waiting,
        "hosts": hosts,
        "p50": harness.quantile(waits, 0.5),
        "p99": harness.quantile(waits, 0.99),
        "fill_rate": waiting / filling,
        "add_rate": 20 * ADD / adding,
    }


async def crowd_member(path: str, name: str, seconds: float, synchronous: Any) -> dict[str, Any]:
    bench = Bench(await SqliteQueue.open(path, synchronous=synchronous), 0, 0, name)
    claims, settles, handled = [], [], 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        claimed, settled, number = await bench.turn(20)
        if not number:
            break
        claims.append(claimed)
        settles.append(settled)
        handled += number
    await bench.queue.close()
    return {"name": name, "claims": claims, "settles": settles, "handled": handled}


def crowd_process(path: str, name: str, seconds: float, synchronous: str, answers: Any) -> None:
    answers.put(asyncio.run(crowd_member(path, name, seconds, synchronous)))


async def crowd(folder: Path, processes: int, hosts: int, seconds: float, synchronous: str) -> dict[str, Any]:
    """Many processes that each claim and settle 20 at a time on one file."""
    path = folder / f"crowd-{hosts}.db"
    bench = await Bench.open(path, hosts, synchronous)
    await bench.add(int(seconds * 20_000))
    await bench.queue.close()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    members = [
        context.Process(target=crowd_process, args=(str(path), f"w{n}", seconds, synchronous, answers), daemon=True)
        for n in range(processes)
    ]
    for member in members:
        member.start()
    try:
        said = [answers.get(timeout=seconds + 60) for _ in members]
    finally:
        for member in members:
            member.join(5)
            member.kill()
    claims = [wait for answer in said for wait in answer["claims"]]
    settles = [wait for answer in said for wait in answer["settles"]]
    handled = [answer["handled"] for answer in said]
    return {
        "processes": processes,
        "hosts": hosts,
        "claim": [harness.quantile(claims, 0.5), harness.quantile(claims, 0.99), max(claims)],
        "settle": [harness.quantile(settles, 0.5), harness.quantile(settles, 0.99), max(settles)],
        "per_second": sum(handled) / seconds,
        "least": min(handled),
        "most": max(handled),
    }


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


async def everything(args: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], str]:
    wanted = args.only.split(",") if args.only else ["throughput", "backlog", "crowd"]
    result: dict[str, Any] = {"machine": harness.machine(), "sqlite": sqlite3.sqlite_version, "arguments": vars(args)}
    rows: list[list[str]] = []

    def note(what: str, figure: str, target: str) -> None:
        rows.append([what, figure, target])
        print(f"  {what}: {figure} (target {target or '-'})", flush=True)

    for hosts, target in ((1, 20_000), (100, 10_000)) if "throughput" in wanted else ():
        runs = [await throughput(scratch_in(folder), hosts, args.tasks, args.synchronous) for _ in range(args.repeats)]
        result[f"throughput_{hosts}"] = runs
        rates = harness.spread([run["per_second"] for run in runs], ",.0f")
        note(f"batches of 100 claimed and settled with a record, {hosts} host(s)", f"{rates} /s", f"≥ {target:,} /s")
    if "backlog" in wanted:
        small = await backlog(folder, 10_000, args.hosts, args.turns, args.synchronous)
        middle = await backlog(folder, 100_000, args.hosts, args.turns, args.synchronous)
        large = await backlog(folder, args.backlog, args.hosts, args.turns, args.synchronous)
        result["backlog"] = [small, middle, large]
        for one in (small, middle, large):
            target = f"≤ {ms(2 * small['p99'])}" if one is large else ""
            what = f"claim of 20 with {one['waiting']:,} waiting, {args.hosts} hosts, p50 / p99"
            note(what, f"{ms(one['p50'])} / {ms(one['p99'])}", target)
        note("adding 1,000 at a time with 100,000 waiting", f"{middle['add_rate']:,.0f} /s", "≥ 40,000 /s")
        note(f"adding 1,000 at a time, filling up to {args.backlog:,}", f"{large['fill_rate']:,.0f} /s", "")
    for hosts in (1, 100) if "crowd" in wanted else ():
        many = await crowd(folder, args.processes, hosts, args.seconds, args.synchronous)
        result[f"crowd_{hosts}"] = many
        figure = " / ".join(ms(value) for value in many["claim"])
        note(f"wait of a claim, {args.processes} processes, {hosts} host(s), p50 / p99 / max", figure, "p99 < 100 ms")
        figure = " / ".join(ms(value) for value in many["settle"])
        note(f"wait of a settle, {args.processes} processes, {hosts} host(s), p50 / p99 / max", figure, "")
        figure = f"{many['per_second']:,.0f} /s ({many['least']:,}–{many['most']:,} tasks)"
        note(f"all {args.processes} processes together (least–most by one)", figure, "")
    return result, harness.table(["SQLite queue", "measured", "target"], rows)


def scratch_in(folder: Path) -> Path:
    fresh = folder / str(time.monotonic_ns())
    fresh.mkdir()
    return fresh


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000, help="of a throughput run")
    parser.add_argument("--repeats", type=int, default=3, help="of the throughput runs")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="the largest number waiting")
    parser.add_argument("--turns", type=int, default=500, help="claims timed at each backlog")
    parser.add_argument("--hosts", type=int, default=100, help="of the backlog runs")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run with many processes")
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full")
    parser.add_argument("--only", default="", help="throughput, backlog and/or crowd, joined by commas")
    args = parser.parse_args()
    print(f"synchronous={args.synchronous}, calibration {harness.calibrate():.3f} CPU-s")
    with harness.scratch() as folder:
        result, text = asyncio.run(everything(args, folder))
    stated = f"SQLite {sqlite3.sqlite_version}, synchronous={args.synchronous}, WAL; lanes without limits (FREE); "
    text = f"{stated}{', '.join(harness.machine().values())}.\n\n{text}"
    print(f"\n{text}")
    harness.save("queue_sqlite", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
