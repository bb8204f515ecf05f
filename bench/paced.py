"""How much of the pace that hosts allow does a fleet use, and does it keep to it?

So many hosts are each asked at most every so many seconds: hosts divided by seconds is what is allowed. Counted is what
the site saw after the first seconds, for some time; gaps are those between two requests of a host, as the site saw
them. A fleet that claims too little leaves slots unused, and one that claims too much misses them; neither comes back.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import harness
from queue_servers import queue_server, start_fleet

TARGET, GAP = 0.95, 0.95  # of what is allowed; of the spacing, for 99 of 100 gaps


@dataclass(frozen=True)
class Case:
    hosts: int
    delay: float  # seconds
    latency: float  # seconds
    workers: int
    concurrency: int
    warm_up: float = 10.0  # seconds

    @property
    def allowed(self) -> float:
        return self.hosts / self.delay


CASES = (
    Case(200, 0.5, 0.1, 2, 64),
    Case(2_000, 5.0, 0.1, 2, 64, warm_up=25.0),  # robots.txt takes the first slot of each
    Case(20, 0.5, 0.1, 2, 64),
)


def measure(case: Case, kind: str, seconds: float) -> dict[str, Any]:
    per_host = max(20, round((case.warm_up + seconds + 20) / case.delay))  # more than there is time for
    with (
        harness.scratch() as folder,
        queue_server(kind, folder) as server,
        harness.site(per_host * case.hosts, hosts=case.hosts, latency=case.latency * 1000, cards=8) as site,
        start_fleet(server, site, folder, processes=case.workers, concurrency=case.concurrency) as fleet,
    ):
        fleet.submit("--delay", str(case.delay), "--in-flight", "0")
        while not site.ask("/__count")["robots"]:
            time.sleep(0.1)
        time.sleep(case.warm_up)
        cpu, served, since = fleet.cpu(), server.cpu(), time.time()
        time.sleep(seconds)
        cpu, served, until = fleet.cpu() - cpu, server.cpu() - served, time.time()
        times = site.ask("/__times")
    seen = [[at for at in times_of_host if since <= at < until] for times_of_host in times.values()]
    gaps = [(b - a) / case.delay for host in seen for a, b in pairwise(host)]
    count = sum(map(len, seen))
    return {
        **asdict(case),
        "allowed": case.allowed,
        "rate": count / (until - since),
        "used": count / (until - since) / case.allowed,
        "gap": harness.quantile(gaps, 0.01),
        "worker_cpu": cpu / count,
        "server_cpu": served / count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", default="redis", help="sqlite, redis, postgres, http or rabbitmq")
    parser.add_argument("--seconds", type=float, default=30.0, help="that are counted, of each case")
    parser.add_argument("--cases", default="", help="which of them, by number: 1,2 (default: all)")
    args = parser.parse_args()
    wanted = [int(number) - 1 for number in args.cases.split(",") if number] or range(len(CASES))
    done = []
    for number in wanted:
        done.append(measure(CASES[number], args.queue, args.seconds))
        print(done[-1], flush=True)
    head = ["hosts", "every s", "allowed pages/s", "measured", "used", "gap", "worker CPU ms/page", "server CPU"]
    rows = [
        [
            f"{one['hosts']:,}", f"{one['delay']:g}", f"{one['allowed']:.0f}", f"{one['rate']:.1f}",
            f"{one['used']:.0%}", f"{one['gap']:.0%}", f"{one['worker_cpu'] * 1000:.2f}",
            f"{one['server_cpu'] * 1000:.2f}",
        ]
        for one in done
    ]  # fmt: skip
    text = f"{args.queue}; targets: {TARGET:.0%} used, 99 of 100 gaps at least {GAP:.0%} of the spacing\n\n"
    text += harness.table(head, rows)
    print(f"\n{text}")
    harness.save("paced", {"machine": harness.machine(), "cases": done}, text)
    return 0 if all(one["used"] >= TARGET and one["gap"] >= GAP for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
