"""How soon things happen: a new task is fetched, a killed worker's page is fetched again, servers act and stop.

Tests wait for these states for as long as it takes; how long that is on this machine is measured here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import harness
import psutil

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.identity import begin_seeding
from shoal.sources.start_task import start_task

SCRAPER = """
import shoal

quick = shoal.Scraper("quick", start="http://127.0.0.1/")

@quick.page("*")
def one(page):
    return {}
"""
TARGETS = {
    "an idle worker fetches a new task": 0.2,
    "a killed worker's page is fetched again": 2.0,
    "a server answers after its start": 5.0,
    "a server ends after SIGTERM": 5.0,
    "an action on one server shows on another": 2.0,
}


class Pages(ThreadingHTTPServer):
    """Any page; those under /hold answer when they are let go. `hits` has the moments of each path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.hits: defaultdict[str, list[float]] = defaultdict(list)
        self.go = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages: Any = self.server
        pages.hits[self.path].append(time.monotonic())
        if self.path.startswith("/hold"):
            pages.go.wait(60)
        with contextlib.suppress(OSError):
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None: ...


def until(done: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.005)
    return found


async def add(path: str, run_name: str, url: str) -> float:
    """Put a task into the queue; the moment before."""
    queue = await SqliteQueue.open(path)
    try:
        await begin_seeding(queue, run_name)  # so that it does not end with its first page
        run = await queue.start_run(NewRun("quick", run_name, run_name, {"mode": "distributed", "scraper": "quick"}))
        task = start_task(url)
        at = time.monotonic()
        await queue.add(run.id, [task], {task.lane: UNLIMITED_PACE})
        return at
    finally:
        await queue.close()


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "shoal", *words]
    with subprocess.Popen(
        argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate()


def workers(folder: Path, rounds: int) -> dict[str, list[float]]:
    pages, file = Pages(), str(folder / "queue.db")
    (folder / "quick.py").write_text(SCRAPER)
    woken, again = [], []
    words = ("worker", "quick.py", "--queue", f"sqlite:///{file}", "--workers", "2", "--allow-private")
    with started(folder, *words, "--ignore-robots") as command:
        asyncio.run(add(file, "first", f"{pages.url}/first"))
        until(lambda: pages.hits["/first"])
        for number in range(rounds):
            time.sleep(0.3)
            at = asyncio.run(add(file, "first", f"{pages.url}/new/{number}"))
            woken.append(until(lambda: pages.hits[f"/new/{number}"])[0] - at)  # noqa: B023
        for number in range(max(3, rounds // 4)):
            pages.go.clear()
            asyncio.run(add(file, "first", f"{pages.url}/hold/{number}"))
            hits = until(lambda: pages.hits[f"/hold/{number}"])  # noqa: B023
            for child in psutil.Process(command.pid).children():
                child.kill()
            at = time.monotonic()
            until(lambda: len(hits) > 1)  # noqa: B023
            again.append(hits[1] - at)
            pages.go.set()
            time.sleep(1.0)
    return {"an idle worker fetches a new task": woken, "a killed worker's page is fetched again": again}


@contextlib.contextmanager
def server(folder: Path, file: str) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """The process, its port, and the seconds until it was ready."""
    at = time.monotonic()
    with started(folder, "serve", "--listen", "127.0.0.1:0", "--queue", f"sqlite:///{file}") as process:
        assert process.stderr is not None
        port = next(int(found[1]) for line in process.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        until(lambda: call(port, "GET", "/ready")[0] == 200)
        yield process, port, time.monotonic() - at


def call(port: int, method: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    except OSError:
        return 0, None
    finally:
        connection.close()


def servers(folder: Path, rounds: int) -> dict[str, list[float]]:
    file = str(folder / "servers.db")
    asyncio.run(add(file, "r1", "http://127.0.0.1:9/x"))
    ready, ended, heard = [], [], []
    for _ in range(max(3, rounds // 4)):
        with server(folder, file) as (process, _port, seconds):
            ready.append(seconds)
            at = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            process.wait(60)
            ended.append(time.monotonic() - at)
    with server(folder, file) as (_, one, _), server(folder, file) as (_, other, _):
        for number in range(rounds):
            verb, state = (("pause", "paused"), ("resume", "running"))[number % 2]
            at = time.monotonic()
            assert call(one, "POST", f"/api/v1/runs/r1/{verb}")[0] == 200
            until(lambda: call(other, "GET", "/api/v1/runs/r1")[1].get("state") == state)  # noqa: B023
            heard.append(time.monotonic() - at)
    return {
        "a server answers after its start": ready,
        "a server ends after SIGTERM": ended,
        "an action on one server shows on another": heard,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with harness.scratch() as folder:
        found = workers(folder, args.rounds) | servers(folder, args.rounds)
    rows = [
        (what, f"{harness.quantile(seconds, 0.5):.3f}", f"{max(seconds):.3f}", f"< {TARGETS[what]:g}")
        for what, seconds in found.items()
    ]
    text = harness.table(("what", "s, median", "s, slowest", "target"), rows)
    print(text)
    harness.save("reaction", {"machine": harness.machine(), "seconds": found}, text)


if __name__ == "__main__":
    main()
