"""Is `shoal plan` right? Crawls that it works out beforehand and that are then measured, in one run.

Paced: 200 hosts, each asked every half second, so that the clock bounds it. Waiting: one host without a pace that
takes 200 ms to answer, so that pages in progress bound it. CPU: small pages of a host that answers at once, one worker.
The plan is given what a user would give: pages, hosts, pace, latency and size; how fast a core is, it measures itself.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from typing import Any

import harness
from queue_servers import FleetCost, crawl, queue_server

from shoal.commands.machine_speed import measure_speed
from shoal.core.plan import PlanRequest, make_plan

TARGET = 0.25


@dataclass(frozen=True)
class Case:
    name: str
    hosts: int
    latency: float  # seconds
    delay: float
    workers: int
    concurrency: int
    cards: int = 8
    share: float = 1.0  # of the pages: what waits takes long

    def flags(self) -> tuple[str, ...]:
        return "--delay", str(self.delay), "--in-flight", "0"

    def request(self, pages: int, cost: FleetCost, queue: str, speed: float) -> PlanRequest:
        return PlanRequest(
            urls=pages,
            hosts=self.hosts,
            largest_host=-(-pages // self.hosts),
            spacing=self.delay,
            in_flight=0,
            latency=self.latency,
            page_bytes=round(cost.bytes / cost.pages),
            queue=queue,
            machines=1,
            cores=2,
            workers=self.workers,
            concurrency=self.concurrency,
            speed=speed,
        )


CASES = (
    Case("paced", hosts=200, latency=0.1, delay=0.5, workers=2, concurrency=64),
    Case("waiting", hosts=1, latency=0.2, delay=0.0, workers=2, concurrency=32, share=0.4),
    Case("CPU", hosts=1, latency=0.0, delay=0.0, workers=1, concurrency=32),
)


def measure(case: Case, args: argparse.Namespace, speed: float) -> dict[str, Any]:
    pages = round(args.pages * case.share) // case.hosts * case.hosts
    with (
        harness.scratch() as folder,
        queue_server(args.queue, folder) as server,
        harness.site(pages, hosts=case.hosts, latency=case.latency * 1000, cards=case.cards) as site,
    ):
        cost = crawl(
            server, site, folder, pages, processes=case.workers, concurrency=case.concurrency, flags=case.flags()
        )
    request = case.request(pages, cost, args.queue, speed)
    plan = make_plan(request)
    return {
        "case": case.name,
        "pages": pages,
        "planned_seconds": plan.seconds,
        "seconds": cost.seconds,
        "ratio": plan.seconds / cost.seconds,
        "planned_cpu_ms": request.page_cpu * 1000,
        "cpu_ms": cost.worker_cpu / pages * 1000,
        "cpu_ratio": request.page_cpu / (cost.worker_cpu / pages),
        "limited_by": plan.limited_by,
        "cost": asdict(cost),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--queue", default="sqlite", help="sqlite, redis, postgres, http or rabbitmq")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    args = parser.parse_args()
    calibration, speed = harness.calibrate(), measure_speed()
    print(f"calibration {calibration:.3f} CPU-s, speed {speed:.2f}", flush=True)
    done = []
    for case in CASES:
        if case.name in args.cases.split(","):
            done.append(measure(case, args, speed))
            print({name: value for name, value in done[-1].items() if name != "cost"}, flush=True)
    head = ["crawl", "pages", "planned s", "measured s", "ratio", "planned CPU ms/page", "measured", "limited by"]
    rows = [
        [
            one["case"], f"{one['pages']:,}", f"{one['planned_seconds']:.1f}", f"{one['seconds']:.1f}",
            f"{one['ratio']:.2f}", f"{one['planned_cpu_ms']:.3f}", f"{one['cpu_ms']:.3f}", one["limited_by"],
        ]
        for one in done
    ]  # fmt: skip
    text = f"{args.queue}, calibration {calibration:.3f} CPU-s, speed {speed:.2f}; target: within {TARGET:.0%}\n\n"
    text += harness.table(head, rows)
    print(f"\n{text}")
    harness.save("plan", {"machine": harness.machine(), "speed": speed, "cases": done}, text)
    return 0 if all(abs(one["ratio"] - 1) <= TARGET for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
