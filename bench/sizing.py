"""What a page, a URL and a worker cost on every kind of queue: the figures of core/sizing.py, measured anew here.

CPU per page is measured with pages of two sizes, which gives a part per page and a part per kilobyte. Bytes per URL are
taken from the servers: URLs of 60 characters, first waiting, then done, then done with a record of 177 bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
from queue_redis import RECORD
from queue_servers import KINDS, QueueServer, crawl, queue_server

from shoal.app import open_queue
from shoal.config.load import Settings
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

CARDS = (8, 56)  # links of small and of usual pages
ADD, CLAIM = 1_000, 100
CONCURRENCY = 32  # of workers here
STORED = ("sqlite", "redis", "postgres")  # the others keep their work in one of these


def database_size(server: QueueServer) -> int:
    """Bytes that the queue takes on its server."""
    if server.kind == "sqlite":
        path = server.url.removeprefix("sqlite:///")
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(path).stat().st_size
    if server.kind == "redis":
        said = subprocess.run(
            ["redis-cli", "-u", server.url, "info", "memory"], capture_output=True, text=True, check=True
        ).stdout
        return int(said.split("used_memory:")[1].split()[0])
    from servers import postgres

    place = re.sub(r"\?.*", "", server.url)
    words = [postgres.program("psql"), place, "-Atc", "SELECT pg_database_size(current_database())"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def tasks(prefix: str, first: int, count: int, hosts: int) -> list[Task]:
    """URLs of about 60 characters."""
    made = []
    for n in range(first, first + count):
        lane = f"h{n % hosts}.example"
        url = f"http://{lane}/catalogue/{prefix}/page-{n:09d}.html".ljust(60, "x")
        made.append(Task(url=url, lane=lane, digest=digest(url)))
    return made


async def fill(queue: Queue, run: int, prefix: str, count: int, hosts: int) -> None:
    for first in range(0, count, ADD):
        some = tasks(prefix, first, min(ADD, count - first), hosts)
        await queue.add(run, some, {task.lane: UNLIMITED_PACE for task in some})


async def work_off(queue: Queue, records: tuple[bytes, ...], limit: int = CLAIM) -> int:
    """Claim and settle all that waits; how many claims that took."""
    claims = 0
    while claim := (await queue.claim("sizing", limit)).tasks:
        await queue.settle([Outcome(task.id, task.lease, "done", records=records) for task in claim])
        claims += 1
    return claims


async def verbs(server: QueueServer, count: int, hosts: int) -> dict[str, float]:
    """Server CPU in ms of a claim with its settle, of each task in it, of adding one; SQLite: of our process."""

    def cpu() -> float:
        return server.cpu() if server.pids else time.process_time()

    queue = await open_queue(Settings(queue=server.url))
    try:
        run = await queue.start_run(NewRun(scraper="sizing", key="verbs", name="verbs"))
        spent = {}
        for prefix, limit, tasks in (("warm", CLAIM, count), ("many", CLAIM, count), ("single", 1, count // 10)):
            before = cpu()
            await fill(queue, run.id, prefix, tasks, hosts)
            added = cpu()
            claims = await work_off(queue, (RECORD,), limit)
            spent[prefix] = (tasks, claims, cpu() - added, added - before)
        many, single = spent["many"], spent["single"]
        # Two equations: claims * call + tasks * task = CPU.
        of_task = (many[2] / many[1] - single[2] / single[1]) / (many[0] / many[1] - single[0] / single[1])
        return {
            "call_ms": (single[2] / single[1] - of_task) * 1000,
            "task_ms": of_task * 1000,
            "add_ms": many[3] / many[0] * 1000,
        }
    finally:
        await queue.close()


async def stored(server: QueueServer, count: int, hosts: int) -> dict[str, float]:
    """Bytes per URL: waiting; done; done with a record of len(RECORD) bytes; and of a host."""
    queue = await open_queue(Settings(queue=server.url))
    try:
        sizes = {}
        run = await queue.start_run(NewRun(scraper="sizing", key="sizing", name="sizing"))
        empty = database_size(server)
        await fill(queue, run.id, "plain", count, hosts)
        sizes["waiting"] = (database_size(server) - empty) / count
        await work_off(queue, ())
        done = database_size(server)
        sizes["done"] = (done - empty) / count
        await fill(queue, run.id, "with-record", count, hosts)
        await work_off(queue, (RECORD,))
        sizes["record"] = (database_size(server) - done) / count - sizes["done"]
        before = database_size(server)
        many = count // 10
        await fill(queue, run.id, "host", many, many)
        sizes["host"] = (database_size(server) - before) / many - sizes["waiting"]
        return sizes
    finally:
        await queue.close()


def costs(kind: str, args: argparse.Namespace) -> dict[str, float]:
    """CPU of the worker and of the server per page, by size of page; memory; connections of a worker."""
    found: dict[str, float] = {}
    for cards in CARDS:
        with (
            harness.scratch() as folder,
            queue_server(kind, folder) as server,
            harness.site(args.pages, cards=cards) as site,
        ):
            cost = crawl(server, site, folder, args.pages)
            if cards == CARDS[0]:
                three = crawl(server, site, folder, args.pages, processes=3)
                found["connections"] = (three.connections - cost.connections) / 2
                found["base_connections"] = cost.connections - found["connections"]
        found[f"kb_{cards}"] = cost.bytes / cost.pages / 1000
        found[f"worker_ms_{cards}"] = cost.worker_cpu / cost.pages * 1000
        found[f"server_ms_{cards}"] = cost.server_cpu / cost.pages * 1000
        found[f"rate_{cards}"] = cost.rate
        found["worker_mb"] = cost.worker_memory / 1e6
        found["supervisor_mb"] = cost.supervisor_memory / 1e6
    small, usual = CARDS
    per_kb = (found[f"worker_ms_{usual}"] - found[f"worker_ms_{small}"]) / (found[f"kb_{usual}"] - found[f"kb_{small}"])
    found["page_kb_ms"] = per_kb
    found["page_ms"] = found[f"worker_ms_{small}"] - per_kb * found[f"kb_{small}"]
    return found


def paced_rates() -> dict[float, float]:
    """Pages per second and page in progress of one worker whose 200 hosts have a pace, by their spacing."""
    found = {}
    for spacing, pages in ((0.1, 2_000), (0.5, 1_000), (1.0, 800), (2.0, 600)):
        with (
            harness.scratch() as folder,
            queue_server("redis", folder) as server,
            harness.site(pages, hosts=200, latency=100.0, cards=8) as site,
        ):
            crawl(server, site, folder, pages, flags=("--delay", str(spacing), "--in-flight", "0"))
            times = sorted(at for asked in site.ask("/__times").values() for at in asked)
        first, last = pages * 3 // 10, pages * 8 // 10
        found[spacing] = (last - first) / (times[last] - times[first]) / CONCURRENCY
    return found


def saved_share(pages: int) -> float:
    """Bytes on disk of a saved page, by those it came with (--keep-raw)."""
    with harness.scratch() as folder, harness.site(pages) as site:
        argv, env = harness.shoal_run(site, folder / "out.jsonl", fresh=True)
        cost = harness.measured([*argv, "--keep-raw"], cwd=folder, env=env)
        if cost.code:
            raise SystemExit(cost.words)
        kept = sum(path.stat().st_size for path in folder.rglob("*raw*/**/*") if path.is_file())
        return kept / float(site.ask("/__count")["bytes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: %(default)s")
    parser.add_argument("--pages", type=int, default=5_000, help="of each crawl")
    parser.add_argument("--urls", type=int, default=200_000, help="that are stored")
    args = parser.parse_args()
    calibration = harness.calibrate()
    result: dict[str, Any] = {"machine": harness.machine(), "calibration": calibration, "arguments": vars(args)}
    rows, sizes, calls = [], [], []
    for kind in args.kinds.split(","):
        found = result[kind] = costs(kind, args)
        figures = ("page_ms", "page_kb_ms", "worker_ms_56", "server_ms_8", "server_ms_56", "rate_56")
        numbers = [f"{found[name]:.4f}" for name in figures]
        rows.append(
            [
                kind,
                *numbers,
                *(f"{found[name]:.0f}" for name in ("worker_mb", "supervisor_mb", "base_connections", "connections")),
            ]
        )
        print(*rows[-1], flush=True)
        if kind in STORED:
            with harness.scratch() as folder, queue_server(kind, folder) as server:
                bytes_ = result[f"{kind}_bytes"] = asyncio.run(stored(server, args.urls, 100))
            sizes.append([kind, *(f"{bytes_[name]:.0f}" for name in ("waiting", "done", "record", "host"))])
            print(*sizes[-1], flush=True)
            with harness.scratch() as folder, queue_server(kind, folder) as server:
                spent = result[f"{kind}_verbs"] = asyncio.run(verbs(server, 20_000, 100))
            calls.append([kind, *(f"{spent[name]:.4f}" for name in ("call_ms", "task_ms", "add_ms"))])
            print(*calls[-1], flush=True)
    paced = result["paced_rates"] = paced_rates()
    result["saved_share"] = saved_share(1_000)
    head = ["queue", "ms/page", "ms/kB", "worker ms", "server ms, small", "server ms", "pages/s", "worker MB"]
    text = harness.table([*head, "supervisor MB", "connections", "per process"], rows)
    text += "\n\n" + harness.table(["server ms per", "claim and settle", "task in them", "task added"], calls)
    text += "\n\n" + harness.table(["bytes per", "URL waiting", "URL done", f"record of {len(RECORD)}", "host"], sizes)
    text += f"\n\nA saved page takes {result['saved_share']:.1%} of its bytes. Calibration {calibration:.3f} CPU-s."
    words = ", ".join(f"{rate:.2f} at {spacing:g} s" for spacing, rate in paced.items())
    text += f"\n\nPages/s of a worker with paced hosts, per page in progress, by spacing: {words}."
    print(f"\n{text}")
    harness.save("sizing", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
