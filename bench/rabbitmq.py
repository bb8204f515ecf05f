"""Work through RabbitMQ: free tasks beside Celery on the same broker, and a paced crawl beside the same on Redis.

Free: N typed tasks with confirms, results in Redis, by one relay and one `shoal worker`, against Celery's solo and
prefork pools, whose results are in Redis, too. Paced: a crawl whose hosts have a spacing, so that the clock bounds it;
what counts is how much longer it takes, and the worker's CPU per page. Rounds are interleaved, ratios within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
from queues import HERE, OWN, rabbitmq_server, redis_server

sys.path.insert(0, str(harness.ROOT / "tests"))
sys.path.insert(0, str(HERE))

from report import tree_cpu

PEERS = Path(os.environ.get("BENCH_PEERS", str(harness.PEERS)))
SHOAL = str(OWN.with_name("shoal"))
SPACING, LATENCY = 0.1, 100.0  # seconds between two requests to a host; ms that it takes to answer


def free(folder: Path, broker: str, script: str, count: int, *words: str) -> dict[str, Any]:
    """One contender with a fresh Redis and its own namespace in the broker."""
    with redis_server(folder) as redis:
        ours = script.startswith("shoal")
        namespace = f"b{time.monotonic_ns()}"
        queue = f"{broker.removesuffix('/')}?namespace={namespace}&ledger={redis}"
        env = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "BENCH_BROKER": broker,
            "BENCH_BACKEND": redis.removesuffix("0") + "1",
            "BENCH_LEDGER": redis,
            "BENCH_QUEUE": queue,
        }
        argv = [str(OWN if ours else PEERS), script, str(count), *words]
        done = subprocess.run(argv, cwd=HERE, env=env, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise SystemExit(f"{script} failed:\n{done.stdout}\n{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


def paced(folder: Path, broker: str, hosts: int, pages: int) -> dict[str, Any]:
    """A crawl of so many pages of each host: seconds from the first to the last request, CPU of the worker per page."""
    total = hosts * pages
    with (
        redis_server(folder) as redis,
        harness.site(total, hosts=hosts, latency=LATENCY) as site,
        contextlib.ExitStack() as stack,
    ):
        queue = f"{broker.removesuffix('/')}?namespace=p{time.monotonic_ns()}&ledger={redis}" if broker else redis
        place = folder / f"paced-{time.monotonic_ns()}"
        place.mkdir()
        env = {**os.environ, "SHOAL_QUEUE": queue, "BENCH_URLS": " ".join(site.urls)}

        def start(*argv: str) -> subprocess.Popen[bytes]:
            log = (place / argv[0]).open("wb")
            process = subprocess.Popen(
                [SHOAL, *argv], cwd=place, env=env, stdout=log, stderr=log, start_new_session=True
            )
            stack.callback(process.wait)
            stack.callback(harness.kill_group, process.pid)
            return process

        if broker:
            start("relay")
        submit = [SHOAL, "submit", str(harness.SCRAPER), "--allow-private", "--delay", str(SPACING), "--fresh"]
        subprocess.run(submit, cwd=place, env=env, check=True, capture_output=True, timeout=120)
        worker = start("worker", str(harness.SCRAPER), "--workers", "1", "--allow-private")
        until = time.monotonic() + 600
        while site.ask("/__count")["pages"] < total:
            if time.monotonic() > until:
                raise SystemExit(f"the crawl does not get on: {site.ask('/__count')}")
            time.sleep(0.1)
        times = [at for asked in site.ask("/__times").values() for at in asked]
        return {"seconds": max(times) - min(times), "cpu": tree_cpu(worker.pid) / total}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of tasks")
    args = parser.parse_args()
    many, some = int(20_000 * args.scale), int(3_000 * args.scale)
    hosts, pages = 10, int(200 * args.scale)
    rounds: list[dict[str, dict[str, Any]]] = []
    with harness.scratch() as folder, rabbitmq_server(folder) as broker:
        for number in range(args.rounds):
            print(f"round {number + 1}, calibration {harness.calibrate():.3f} CPU-s", flush=True)
            said = {
                "shoal rabbitmq": free(folder, broker, "shoal_rabbitmq.py", many, "32", "manual"),
                "shoal rabbitmq auto": free(folder, broker, "shoal_rabbitmq.py", many, "32", "auto"),
                "celery rabbitmq solo": free(folder, broker, "celery_run.py", some, "solo"),
                "celery rabbitmq prefork": free(folder, broker, "celery_run.py", some, "prefork"),
                "paced on Redis": paced(folder, "", hosts, pages),
                "paced through RabbitMQ": paced(folder, broker, hosts, pages),
            }
            rounds.append(said)
            for name, one in said.items():
                print(f"  {name:24} " + "  ".join(f"{key} {value:,.6g}" for key, value in one.items()), flush=True)
    text = table(rounds)
    print(f"\n{text}")
    harness.save("rabbitmq", {"machine": harness.machine(), "rounds": rounds}, text)
    return 0


def table(rounds: list[dict[str, dict[str, Any]]]) -> str:
    def ratio(ours: str, peer: str, figure: str) -> str:
        return harness.spread([one[ours][figure] / one[peer][figure] for one in rounds], ".3f")

    best = [max(one[f"celery rabbitmq {pool}"]["rate"] for pool in ("solo", "prefork")) for one in rounds]
    ours = [one["shoal rabbitmq"] for one in rounds]
    through, direct = "paced through RabbitMQ", "paced on Redis"
    against = harness.spread([one["rate"] / peer for one, peer in zip(ours, best, strict=True)], ".1f")
    rows = [
        ["free tasks /s", harness.spread([one["rate"] for one in ours], ",.0f"), ""],
        ["worker µs CPU/task", harness.spread([one["cpu"] * 1e6 for one in ours], ",.0f"), ""],
        ["relay µs CPU/task", harness.spread([one["relay_cpu"] * 1e6 for one in ours], ",.0f"), ""],
        ["better Celery pool /s", harness.spread(best, ",.0f"), ""],
        ["against the better Celery pool", against, "≥ 5 ×"],
        ["paced crawl, time by that on Redis", ratio(through, direct, "seconds"), "≤ 1.05 ×"],
        ["worker CPU per page by that on Redis", ratio(through, direct, "cpu"), "≤ 1.15 ×"],
    ]
    return harness.table(["figure", "measured", "target"], rows)


if __name__ == "__main__":
    sys.exit(main())
