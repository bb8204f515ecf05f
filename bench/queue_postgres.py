"""The PostgreSQL queue alone, durable: batches claimed and settled, several at once, a long backlog."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from dataclasses import dataclass
from typing import Any

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres

from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Attempt, LeasedTask, Outcome, Task, digest
from shoal.queue.postgres import PostgresQueue

ADD = 1000
LIMITED = Pace(0.001, 100)  # spaced and counted, but never in the way of the benchmark
RECORD = json.dumps({"url": "http://host/page", "title": "A page of middling length", "text": "x" * 100}).encode()


def tasks(first: int, count: int, hosts: int) -> list[Task]:
    urls = [(f"h{n % hosts}.example", f"http://h{n % hosts}.example/p/{n}") for n in range(first, first + count)]
    return [Task(url=url, lane=lane, digest=digest(url)) for lane, url in urls]


def done(task: LeasedTask) -> Outcome:
    attempt = Attempt(at=0, worker="bench", status=200, seconds=0.1, size=30_000)
    return Outcome(task=task.id, lease=task.lease, result="done", attempt=attempt, records=(RECORD,))


@dataclass
class Bench:
    """One schema with one run, and how long its verbs took."""

    queue: PostgresQueue
    run: int
    hosts: int
    worker: str = "bench"
    pace: Pace = UNLIMITED_PACE
    added: int = 0

    @classmethod
    async def open(cls, url: str, hosts: int, pace: Pace = UNLIMITED_PACE) -> Bench:
        queue = await PostgresQueue.open(url)
        run = await queue.start_run(NewRun(scraper="bench", key="bench", name="bench"))
        return cls(queue, run.id, hosts, pace=pace)

    async def add(self, count: int) -> float:
        """Add so many in calls of a thousand; the seconds spent inside the queue."""
        spent, left = 0.0, count
        paces = {f"h{n}.example": self.pace for n in range(self.hosts)}
        while left > 0:
            batch = tasks(self.added, min(ADD, left), self.hosts)
            start = time.perf_counter()
            answers = await self.queue.add(self.run, batch, paces)
            spent += time.perf_counter() - start
            assert answers.count("added") == len(batch)
            self.added += len(batch)
            left -= len(batch)
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


async def throughput(url: str, hosts: int, count: int, pace: Pace, at_once: int = 1) -> dict[str, float]:
    """One client that claims and settles batches of 100, so many of them at once."""
    bench = await Bench.open(url, hosts, pace)
    adding = await bench.add(count)
    claiming = settling = 0.0
    handled = 0

    async def work() -> None:
        nonlocal claiming, settling, handled
        while handled < count:
            claimed, settled, number = await bench.turn(100)
            claiming, settling, handled = claiming + claimed, settling + settled, handled + number

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    elapsed = time.perf_counter() - start
    stats = await bench.queue.stats(bench.run)
    await bench.queue.close()
    assert stats.done == stats.records == count, stats
    return {
        "hosts": hosts,
        "at_once": at_once,
        "add_rate": count / adding,
        "per_second": count / elapsed,
        "claim": claiming / count,
        "settle": settling / count,
    }


async def backlog(url: str, waiting: int, hosts: int, turns: int) -> dict[str, float]:
    """Claims of 20 while so many wait; what was taken is put back, so that the backlog stays."""
    bench = await Bench.open(url, hosts)
    filling = await bench.add(waiting)
    waits = []
    for number in range(turns + 20):
        claimed, _, count = await bench.turn(20)
        if number >= 20:  # the first ones plan their statements
            waits.append(claimed)
        await bench.add(count)
    await bench.queue.close()
    return {
        "waiting": waiting,
        "hosts": hosts,
        "p50": harness.quantile(waits, 0.5),
        "p99": harness.quantile(waits, 0.99),
        "fill_rate": waiting / filling,
    }


async def crowd_member(url: str, name: str, seconds: float, limit: int) -> dict[str, Any]:
    bench = Bench(await PostgresQueue.open(url), 0, 0, name)
    claims, settles, handled, idle = [], [], 0, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        claimed, settled, number = await bench.turn(limit)
        idle += not number
        claims.append(claimed)
        settles.append(settled)
        handled += number
    await bench.queue.close()
    return {"name": name, "claims": claims, "settles": settles, "handled": handled, "idle": idle}


def crowd_process(url: str, name: str, seconds: float, limit: int, answers: Any) -> None:
    answers.put(asyncio.run(crowd_member(url, name, seconds, limit)))


async def crowd(url: str, processes: int, hosts: int, seconds: float, limit: int) -> dict[str, Any]:
    """Many processes that each claim and settle at once."""
    bench = await Bench.open(url, hosts)
    await bench.add(int(seconds * 40_000))
    await bench.queue.close()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    words = (seconds, limit, answers)
    members = [
        context.Process(target=crowd_process, args=(url, f"w{n}", *words), daemon=True) for n in range(processes)
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
        "idle": sum(answer["idle"] for answer in said),
    }


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


async def everything(args: argparse.Namespace, server: postgres.Server) -> tuple[dict[str, Any], str]:
    wanted = args.only.split(",") if args.only else ["throughput", "backlog", "crowd"]
    result: dict[str, Any] = {"machine": harness.machine(), "arguments": vars(args)}
    rows: list[list[str]] = []

    def fresh() -> str:
        return server.url(f"b{time.monotonic_ns()}")

    def note(what: str, figure: str, target: str) -> None:
        rows.append([what, figure, target])
        print(f"  {what}: {figure} (target {target or '-'})", flush=True)

    kinds = [("without limits", UNLIMITED_PACE, "≥ 18,700 /s"), ("with limits", LIMITED, "≥ 11,000 /s")]
    cases = [(100, kind, at_once) for kind in kinds for at_once in (1, 2)] + [(1, kinds[0], 1)]
    for hosts, (kind, pace, target), at_once in cases if "throughput" in wanted else ():
        runs = [await throughput(fresh(), hosts, args.tasks, pace, at_once) for _ in range(args.repeats)]
        result[f"throughput_{hosts}_{kind.replace(' ', '_')}_{at_once}"] = runs
        rates = harness.spread([run["per_second"] for run in runs], ",.0f")
        each = [sum(run[verb] for run in runs) / len(runs) for verb in ("claim", "settle")]
        what = f"batches of 100 claimed and settled with a record, {hosts} host(s) {kind}, {at_once} at once"
        note(what, f"{rates} /s ({each[0] * 1e6:.0f} + {each[1] * 1e6:.0f} µs)", target)
        if at_once == 1:
            added = harness.spread([run["add_rate"] for run in runs], ",.0f")
            note(f"adding 1,000 at a time, {hosts} host(s) {kind}", f"{added} /s", "≥ 40,000 /s")
    if "backlog" in wanted:
        small = await backlog(fresh(), 10_000, args.hosts, args.turns)
        large = await backlog(fresh(), args.backlog, args.hosts, args.turns)
        result["backlog"] = [small, large]
        for one in (small, large):
            target = f"≤ {ms(2 * small['p99'])}" if one is large else ""
            what = f"claim of 20 with {one['waiting']:,} waiting, {args.hosts} hosts, p50 / p99"
            note(what, f"{ms(one['p50'])} / {ms(one['p99'])}", target)
        note(f"adding 1,000 at a time, filling up to {args.backlog:,}", f"{large['fill_rate']:,.0f} /s", "")
    for hosts in (1, 100) if "crowd" in wanted else ():
        many = await crowd(fresh(), args.processes, hosts, args.seconds, args.limit)
        result[f"crowd_{hosts}"] = many
        what = f"{args.processes} processes, {hosts} host(s), batches of {args.limit}"
        for verb in ("claim", "settle"):
            figure = " / ".join(ms(value) for value in many[verb])
            note(f"wait of a {verb}, {what}, p50 / p99 / max", figure, "")
        spread = f"{many['least']:,}–{many['most']:,} tasks, {many['idle']} empty claims"
        figure = f"{many['per_second']:,.0f} /s ({spread})"
        note(f"all of them together, {what}", figure, "≥ 11,000 /s")
    return result, harness.table(["PostgreSQL queue", "measured", "target"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, help="of a throughput run")
    parser.add_argument("--repeats", type=int, default=3, help="of the throughput runs")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="the largest number waiting")
    parser.add_argument("--turns", type=int, default=500, help="claims timed at each backlog")
    parser.add_argument("--hosts", type=int, default=100, help="of the backlog runs")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--limit", type=int, default=100, help="of the batches of many processes")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run with many processes")
    parser.add_argument("--only", default="", help="throughput, backlog and/or crowd, joined by commas")
    args = parser.parse_args()
    server = postgres.Server(durable=True)
    try:
        print(f"fsync and synchronous_commit on, calibration {harness.calibrate():.3f} CPU-s")
        result, text = asyncio.run(everything(args, server))
    finally:
        server.remove()
    stated = "PostgreSQL, fsync and synchronous_commit on, unix socket; "
    text = f"{stated}{', '.join(harness.machine().values())}.\n\n{text}"
    print(f"\n{text}")
    harness.save("queue_postgres", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
