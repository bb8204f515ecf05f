"""Simulated beside measured: real crawls with 1, 2, 4 and 8 workers, and the simulation with the same parameters.

Waiting: one host that takes 200 ms to answer, four pages at once per worker, no pace. Paced: 40 hosts, each asked every
half second. Compared are pages per second, without the beginning and the end, and CPU of the queue's server per page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness
from engine import Simulation
from queue_servers import FleetCost, crawl, queue_server
from scenario import Scenario

TARGET = 0.20
LATENCY, AT_ONCE = 0.2, 4
PACED_HOSTS, SPACING = 40, 0.5


def scenario(kind: str, queue: str, workers: int, pages: int) -> Scenario:
    paced = kind == "paced"
    return Scenario(
        urls=pages,
        hosts=PACED_HOSTS if paced else 1,
        largest_host=pages // PACED_HOSTS if paced else pages,
        spacing=SPACING if paced else 0.0,
        in_flight=0,
        latency=LATENCY,
        page_bytes=31_000,
        queue=queue,
        workers=workers,
        per_machine=8,
        concurrency=32 if paced else AT_ONCE,
    )


def measure(case: Scenario, pages: int) -> tuple[FleetCost, float]:
    """What the crawl cost, and its pages per second in the middle: the ends have too little for all."""
    flags = ("--delay", str(case.spacing), "--in-flight", "0")
    with (
        harness.scratch() as folder,
        queue_server(case.queue, folder) as server,
        harness.site(pages, hosts=case.hosts, latency=LATENCY * 1000) as site,
    ):
        cost = crawl(server, site, folder, pages, workers=case.workers, concurrency=case.concurrency, flags=flags)
        times = sorted(at for asked in site.ask("/__times").values() for at in asked)
    first, last = len(times) // 10, len(times) * 9 // 10
    return cost, (last - first) / (times[last] - times[first])


def compare(kind: str, queue: str, workers: int, seconds: float) -> dict[str, Any]:
    rate = PACED_HOSTS / SPACING if kind == "paced" else workers * AT_ONCE / LATENCY
    pages = round(rate * seconds) // PACED_HOSTS * PACED_HOSTS
    case = scenario(kind, queue, workers, pages)
    cost, measured = measure(case, pages)
    simulated = Simulation(case).run()
    peak = max(moment.rate for moment in simulated.moments)
    return {
        "kind": kind,
        "workers": workers,
        "pages": pages,
        "measured": measured,
        "simulated": peak,
        "ratio": peak / measured,
        "server_ms": cost.server_cpu / pages * 1000,
        "simulated_server_ms": simulated.server_seconds / simulated.done * 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", default="redis", help="redis, postgres or sqlite")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--kinds", default="waiting,paced")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a crawl should take")
    args = parser.parse_args()
    done = []
    for kind in args.kinds.split(","):
        for workers in map(int, args.workers.split(",")):
            done.append(compare(kind, args.queue, workers, args.seconds))
            print(done[-1], flush=True)
    head = ["crawl", "workers", "measured pages/s", "simulated", "ratio", "server CPU ms/page", "simulated"]
    rows = [
        [
            one["kind"], str(one["workers"]), f"{one['measured']:.1f}", f"{one['simulated']:.1f}",
            f"{one['ratio']:.2f}", f"{one['server_ms']:.3f}", f"{one['simulated_server_ms']:.3f}",
        ]
        for one in done
    ]  # fmt: skip
    text = f"{args.queue}; target: within {TARGET:.0%}\n\n{harness.table(head, rows)}"
    print(f"\n{text}")
    harness.save("simulate", {"machine": harness.machine(), "arguments": vars(args), "done": done}, text)
    return 0 if all(abs(one["ratio"] - 1) <= TARGET for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
