"""A worker that reaches only a server, beside one that reaches the queue itself: pages a second, CPU a page.

The same crawl of the bench site, by one worker process: the queue is an SQLite file, opened by the worker,
or by a `shoal serve` on this machine that the worker asks over HTTP.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness

TOKEN = "a-token-of-the-bench-alone"


def environment(site: harness.Site, queue: str) -> dict[str, str]:
    return {
        "SHOAL_QUEUE": queue,
        "SHOAL_TOKEN": TOKEN,
        "BENCH_URLS": " ".join(site.urls),
        "SHOAL_ALLOW_PRIVATE": "true",
    }


@contextlib.contextmanager
def server(site: harness.Site, queue: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A server of this queue on a port of its own, ready: its address and process."""
    argv = [str(harness.SHOAL), "serve", "--listen", "127.0.0.1:0"]
    file = folder / "serve.log"
    with file.open("wb") as log:
        env = os.environ | environment(site, queue)
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _ready(process, file), process.pid
    finally:
        process.terminate()
        process.wait(20)


def _ready(process: subprocess.Popen[bytes], file: Path) -> str:
    """Its own word for where it is: whatever else answers on this machine is not ours to load."""
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        if found := re.search(r"http://127\.0\.0\.1:\d+", file.read_text()):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{found[0]}/ready", timeout=2):
                return found[0]
        time.sleep(0.1)
    raise SystemExit(f"the server did not come up: {file.read_text()}")


def crawl(site: harness.Site, folder: Path, queue: str, pages: int) -> harness.Cost:
    """Submit the crawl, then measure the one worker that does it."""
    env = environment(site, queue)
    give = [str(harness.SHOAL), "submit", str(harness.SCRAPER), "--fresh", "--delay", "0", "--in-flight", "0"]
    subprocess.run(give, cwd=folder, env=os.environ | env, check=True, capture_output=True)
    work = [str(harness.SHOAL), "worker", str(harness.SCRAPER), "--exit-when-done", "--workers", "1"]
    work += ["--concurrency", "32", "--health", "0"]
    cost = harness.measured(work, cwd=folder, env=env)
    if cost.code or f"{pages} done" not in cost.words.replace(",", ""):
        raise SystemExit(f"the crawl went wrong ({cost.code}): {cost.words}")
    return cost


def figures(cost: harness.Cost, pages: int, idle: harness.Cost, served: float = 0.0) -> dict[str, float]:
    """Without what the processes cost before the first page, which is what the small crawl costs."""
    wall = cost.wall - idle.wall
    return {"rate": pages / wall, "worker": (cost.cpu - idle.cpu) / pages, "server": served / pages}


def once(pages: int) -> tuple[dict[str, float], dict[str, float]]:
    with harness.scratch() as folder, harness.site(pages) as site, harness.site(2) as small:
        file = f"sqlite:///{folder}/queue.db"
        idle = crawl(small, folder, file, 2)
        direct = figures(crawl(site, folder, file, pages), pages, idle)
    with (
        harness.scratch() as folder,
        harness.site(pages) as site,
        harness.site(2) as small,
        server(site, f"sqlite:///{folder}/queue.db", folder) as (url, pid),
    ):
        idle = crawl(small, folder, url, 2)
        before = harness.tree(pid)[1]
        cost = crawl(site, folder, url, pages)
        served = harness.tree(pid)[1] - before
        if not served:
            raise SystemExit("the server did nothing: this measured something else")
        remote = figures(cost, pages, idle, served)
    return direct, remote


def middle(tries: list[dict[str, float]]) -> dict[str, float]:
    return sorted(tries, key=lambda one: one["rate"])[len(tries) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    tries = [once(args.pages) for _ in range(args.repeats)]
    direct, remote = middle([one for one, _ in tries]), middle([other for _, other in tries])
    result: dict[str, Any] = {"machine": harness.machine(), "direct": direct, "remote": remote}
    rows = [
        [name, f"{it['rate']:.0f}", f"{it['worker'] * 1e3:.2f} ms", f"{it['server'] * 1e3:.2f} ms"]
        for name, it in (("the queue itself", direct), ("over HTTP", remote))
    ]
    ratio = remote["rate"] / direct["rate"]
    cpu = (remote["worker"] + remote["server"]) / direct["worker"]
    rows.append(["over HTTP, beside the queue itself", f"{ratio:.2f} ×", "", f"{cpu:.2f} × CPU in all"])
    text = harness.table(["one worker", "pages/s", "CPU of the worker a page", "of the server"], rows)
    print(text)
    harness.save("remote", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
