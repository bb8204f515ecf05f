"""What a page costs in a pool beside a Celery worker (--shoal-workers), against `shoal worker`: CPU time, interleaved.

A round crawls the bench site twice on one Redis: by two processes of `shoal worker`, and by two of a Celery worker's
bootstep, with everything that Celery itself needs. CPU time is that of the whole tree of processes between the moment
when it is ready and the end of the crawl.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fleet
import harness
import queues

TARGET = 1.10  # of the CPU time of `shoal worker`
PROCESSES = 2
NAMES = ("shoal worker", "celery, bootstep")


@contextlib.contextmanager
def workers(name: str, url: str, folder: Path, site: harness.Site) -> Iterator[int]:
    """Two processes that wait for work, under one or the other; the pid of what has started them."""
    env = fleet.environment(url, site) | {"SHOAL_ALLOW_PRIVATE": "1", "SHOAL_CONCURRENCY": "16", "C_FORCE_ROOT": "1"}
    argv = [str(harness.SHOAL), "worker", str(harness.SCRAPER), "--workers", str(PROCESSES)]
    if name != "shoal worker":
        argv = [sys.executable, "-m", "celery", "-A", "shoal.integrations.celery", "worker", "-P", "solo"]
        argv += ["--shoal-workers", str(PROCESSES), "-l", "INFO"]
        env |= {"CELERY_BROKER_URL": url.partition("?")[0], "CELERY_TASK_RATE_LIMIT": "none"}
        env |= {"SHOAL_SCRAPERS": str(harness.SCRAPER), "SHOAL_QUEUE": url}
    place = folder / f"{name.split(',')[0].replace(' ', '-')}-{time.monotonic_ns()}"
    place.mkdir()
    with (place / "log").open("wb") as log:
        started = subprocess.Popen(argv, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        listing, until = [str(harness.SHOAL), "workers", "--json"], time.monotonic() + 60
        while (
            subprocess.run(listing, cwd=folder, env=env, capture_output=True, text=True).stdout.count('"id"')
            < PROCESSES
        ):
            if time.monotonic() > until or started.poll() is not None:
                raise SystemExit(f"{name} did not come up: {(place / 'log').read_text()[-2000:]}")
            time.sleep(0.3)
        time.sleep(2.0)  # what it does to begin with is no part of a page
        yield started.pid
    finally:
        started.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(20)
        harness.kill_group(started.pid)


def crawl(name: str, url: str, folder: Path, pages: int) -> float:
    """Milliseconds of CPU per page."""
    with harness.site(pages) as site, workers(name, url, folder, site) as pid:
        _, before = harness.tree(pid)
        fleet.crawl(url, folder, site, pages, "--delay", "0", "--in-flight", "0")
        _, after = harness.tree(pid)
        return (after - before) / pages * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ.pop("SHOAL_QUEUE", None)
    costs: dict[str, list[float]] = {name: [] for name in NAMES}
    with harness.scratch() as folder:
        for _ in range(args.rounds):
            for name in NAMES:
                with queues.redis_server(folder) as url:
                    costs[name].append(crawl(name, url, folder, args.pages))
                print(f"{name}: {costs[name][-1]:.3f} ms CPU per page", flush=True)
    ratio = statistics.median(theirs / ours for ours, theirs in zip(*costs.values(), strict=True))
    rows = [[name, harness.spread(values, ".3f"), ""] for name, values in costs.items()]
    rows.append(["median of the ratios", f"{ratio:.3f}", f"≤ {TARGET}"])
    text = harness.table(["worker", "ms CPU per page", "target"], rows)
    print(text)
    harness.save("celery_pool", {"machine": harness.machine(), "ms_per_page": costs, "ratio": ratio}, text)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
