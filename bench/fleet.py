"""A fleet on one machine: is it polite as one, and does it scale? Real `shoal worker` processes.

Pace: one page every 0.5 s, crawled by 1 and by 8 workers; the site says when it was asked.
Scale: a site that takes 200 ms to answer, 4 pages at a time per worker, no pace; 1 and 8 workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
import queues
from servers import postgres

SPACING = 0.5
LATENCY = 200.0  # ms
AT_ONCE = 4


@contextlib.contextmanager
def workers(count: int, url: str, folder: Path, site: harness.Site) -> Iterator[None]:
    """So many workers with one process each, up and waiting for work."""
    argv = [str(harness.SHOAL), "worker", str(harness.SCRAPER), "--workers", "1", "--concurrency", str(AT_ONCE)]
    argv += ["--allow-private", "--heartbeat", "2", "--lease", "30"]
    started = []
    for number in range(count):
        place = folder / f"w{number}-{time.monotonic_ns()}"
        place.mkdir()
        log = (place / "log").open("wb")
        started.append(
            subprocess.Popen(
                argv, cwd=place, env=environment(url, site), stdout=log, stderr=log, start_new_session=True
            )
        )
    try:
        listing = [str(harness.SHOAL), "workers", "--json"]
        until = time.monotonic() + 60
        while True:
            said = subprocess.run(
                listing, cwd=folder, env=environment(url, site), capture_output=True, text=True
            ).stdout
            if said.count('"id"') >= count:
                break
            if time.monotonic() > until:
                raise SystemExit(f"workers did not come up: {said}")
            time.sleep(0.5)
        yield
    finally:
        for worker in started:
            worker.terminate()
        for worker in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(20)
            harness.kill_group(worker.pid)


def environment(url: str, site: harness.Site) -> dict[str, str]:
    return {**os.environ, "SHOAL_QUEUE": url, "BENCH_URLS": " ".join(site.urls)}


def crawl(url: str, folder: Path, site: harness.Site, count: int, *flags: str) -> None:
    """Submit a run, and wait until the fleet has finished it."""
    env = environment(url, site)
    argv = [str(harness.SHOAL), "submit", str(harness.SCRAPER), "--allow-private", "--json", "--fresh", *flags]
    said = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(f"submit failed: {said.stderr}")
    until = time.monotonic() + 600
    while site.ask("/__count")["pages"] < count:
        if time.monotonic() > until:
            raise SystemExit(f"the fleet does not get on: {site.ask('/__count')}")
        time.sleep(0.2)


def pace(url: str, folder: Path, count: int, pages: int) -> dict[str, float]:
    with harness.site(pages) as site, workers(count, url, folder, site):
        crawl(url, folder, site, pages, "--delay", str(SPACING), "--in-flight", "0")
        times = next(iter(site.ask("/__times").values()))
    gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
    return {"workers": count, "rate": len(gaps) / sum(gaps), "smallest": min(gaps), "p01": harness.quantile(gaps, 0.01)}


def scale(url: str, folder: Path, count: int, pages: int) -> dict[str, float]:
    with harness.site(pages, latency=LATENCY) as site, workers(count, url, folder, site):
        crawl(url, folder, site, pages, "--delay", "0", "--in-flight", "0")
        times = sorted(next(iter(site.ask("/__times").values())))
    # The middle: at the beginning there is one page to fetch, at the end there are not enough for all.
    first, last = len(times) // 10, len(times) * 9 // 10
    return {"workers": count, "rate": (last - first) / (times[last] - times[first])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default="sqlite,redis,postgres")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--pages", type=int, default=60, help="of the polite crawls")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a crawl of the scale runs should take")
    parser.add_argument("--only", default="pace,scale")
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": harness.machine()}
    rows: list[list[str]] = []
    print(f"calibration {harness.calibrate():.3f} CPU-s", flush=True)
    server = postgres.Server(durable=True)
    with harness.scratch() as folder, contextlib.ExitStack() as stack:
        stack.callback(server.remove)
        for backend in args.backends.split(","):

            def fresh(backend: str = backend) -> str:
                if backend == "sqlite":
                    return f"sqlite:///{folder}/{time.monotonic_ns()}.db"
                if backend == "postgres":
                    return server.url(f"f{time.monotonic_ns()}", connections=2)
                return str(stack.enter_context(queues.redis_server(folder)))

            if "pace" in args.only:
                one, many = (pace(fresh(), folder, count, args.pages) for count in (1, args.workers))
                result[f"pace_{backend}"] = [one, many]
                for said in (one, many):
                    words = f"{said['rate']:.3f} pages/s, smallest gap {said['smallest'] / SPACING:.1%} of it"
                    rows.append([f"{backend}: a host seen by {said['workers']:.0f} worker(s)", words, "≥ 95 %"])
                    print(*rows[-1], flush=True)
            if "scale" in args.only:
                each = AT_ONCE / (LATENCY / 1000) * args.seconds
                one, many = (scale(fresh(), folder, count, int(each * count)) for count in (1, args.workers))
                result[f"scale_{backend}"] = [one, many]
                words = f"{many['rate'] / one['rate']:.2f} × ({one['rate']:.1f} → {many['rate']:.1f} pages/s)"
                rows.append([f"{backend}: {args.workers} workers against 1, 200 ms latency", words, "≥ 7.2 ×"])
                print(*rows[-1], flush=True)
    text = harness.table(["fleet", "measured", "target"], rows)
    print(f"\n{text}")
    harness.save("fleet", json.loads(json.dumps(result)), text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
