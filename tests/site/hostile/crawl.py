"""Crawl: `shoal run` over the hostile site and its neighbours, and what became of every page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from hostile.behaviour import Behaviour
from hostile.memory import MemoryWatcher
from hostile.registry import BEHAVIOURS
from hostile.targets import BEYOND_LOOPBACK

HERE = Path(__file__).resolve().parents[1]
SCRAPER = """
import os
import shoal

site = shoal.Scraper("hostile", start=os.environ["HOSTILE_START"].split(), hosts="*")


@site.page()
def page(page):
    yield {"url": page.url, "title": page.css("title::text").get(), "size": len(page.text)}
    yield from page.follow(".secret", headers={"Authorization": "Bearer letmein"})
    yield from page.follow("a:not(.secret)")
"""
# Every limit that is not named here is at its default; two requests at once per host are what public
# hosts get anyway. So the neighbours are as fast as they answer, and the machine has time to spare: else
# any other work would show.
LIMITS = (
    *("--timeout", "8", "--first-byte-timeout", "5", "--connect-timeout", "3"),
    *("--slow-for", "3", "--parse-timeout", "3", "--retries", "0", "--delay", "50ms", "--max-per-shape", "100"),
)


def check_guard() -> None:
    """Refuse to begin where the guard is so broken that requests would leave this machine."""
    from shoal.fetch.guard import PrivateNetworkPolicy, non_public_reason

    allow = PrivateNetworkPolicy.parse("127.0.1.1:80")
    for url in BEYOND_LOOPBACK.values():
        host = url.split("/")[2].strip("[]")
        ip = str(ip_address(int(host) if host.isdigit() else host))
        assert non_public_reason(ip, 80) and not allow.permits(url, ip, 80), f"the guard lets {url} through"


class ServerProcess:
    """A server in a process of its own, spoken with line by line."""

    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *argv],
            env=os.environ | {"PYTHONPATH": str(HERE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started: dict[str, Any] = self._read()

    def ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(10)
        self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


class Sites:
    """The hostile site and its neighbours, as long as the block runs."""

    def __init__(self, *, hosts: int = 8, pages: int = 200, latency: float = 0.1) -> None:
        self.pages = hosts * pages
        self._hostile = ServerProcess("hostile.server")
        self._neighbours = ServerProcess("hostile.neighbours", str(hosts), str(pages), str(latency))
        self.urls: dict[str, str] = self._hostile.started["urls"]
        self.neighbours: list[str] = self._neighbours.started["urls"]

    def __enter__(self) -> Sites:
        return self

    def __exit__(self, *_: object) -> None:
        self._hostile.close()
        self._neighbours.close()

    def seen(self) -> dict[str, Any]:
        """What the hostile site has noted since its start; first connections since the last time."""
        return self._hostile.ask()

    def speed(self) -> tuple[float, int, int]:
        """Pages a second of the neighbours since the last time, the pages, and those asked with a cookie."""
        seen = self._neighbours.ask()
        took = seen["last"] - seen["first"]
        return seen["pages"] / took if took else 0.0, seen["pages"], seen["with_cookies"]


@dataclass(frozen=True)
class BehaviourResult:
    """What became of one behaviour's start page, and of the pages linked from it."""

    behaviour: Behaviour
    outcome: str
    seconds: float
    message: str
    rest: dict[str, int]
    peak: float  # MB of the largest process meanwhile

    @property
    def as_expected(self) -> bool:
        wanted = self.behaviour.rest.split("|")
        return self.behaviour.fits(self.outcome) and (wanted == [""] or set(self.rest) <= set(wanted))

    def __str__(self) -> str:
        rest = f", its other pages {self.rest}" if self.behaviour.rest else ""
        wanted = self.behaviour.expect
        return f"{self.behaviour.name}: {self.outcome}, not {wanted}{rest} ({self.message})"


@dataclass(frozen=True)
class CrawlResult:
    code: int
    wall: float
    words: str
    results: tuple[BehaviourResult, ...]
    peaks: dict[str, float]  # MB by process
    is_balanced: bool
    titles: frozenset[str]
    speed: float  # of the neighbours
    neighbour_pages: int
    with_cookies: int


def crawl(
    sites: Sites, folder: Path, behaviours: Sequence[Behaviour], more: Sequence[str] = (), timeout: float = 120.0
) -> CrawlResult:
    """One run over the neighbours and these behaviours, from beginning to end, in a folder of its own."""
    check_guard()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.py").write_text(SCRAPER)
    urls = {one.name: sites.urls[one.name] for one in behaviours}
    start = [*sites.neighbours, *urls.values()]
    allowed = ",".join(dict.fromkeys(url.split("/")[2] for url in (*sites.neighbours, *urls.values())))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    argv = [sys.executable, "-m", "shoal", "run", "site.py", "-o", "out.jsonl", *LIMITS, *more]
    sites.speed()  # forget what was before
    sites.seen()
    began = time.time()
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--allow-private", allowed],
            cwd=folder,
            env=env | {"HOSTILE_START": " ".join(start)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        memory = MemoryWatcher(process.pid)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            memory.stop()
    wall = time.time() - began
    speed, pages, with_cookies = sites.speed()
    first = sites.seen()["first"]
    tasks, is_balanced = asyncio.run(_tasks(folder / ".shoal" / "shoal.db"))
    out = folder / "out.jsonl"
    records = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return CrawlResult(
        code=code,
        wall=wall,
        words=(folder / "log.txt").read_text(errors="replace"),
        results=tuple(_results(tasks, urls, first, memory)),
        peaks={f"{pid} {memory.names.get(pid, '')}": peak for pid, peak in memory.peaks.items()},
        is_balanced=is_balanced,
        titles=frozenset(str(record["title"]) for record in records),
        speed=speed,
        neighbour_pages=pages,
        with_cookies=with_cookies,
    )


async def _tasks(path: Path) -> tuple[list[Any], bool]:
    from shoal.queue.sqlite import SqliteQueue

    queue = await SqliteQueue.open(str(path))
    try:
        run = (await queue.runs())[0]
        found: list[Any] = []
        while True:
            page = await queue.list_tasks(run.id, after=found[-1].id if found else 0, limit=1_000)
            if not page:
                break
            found += page
        stats = await queue.stats(run.id)
        counted = await queue.recount(run.id)
    finally:
        await queue.close()
    same = (stats.seen, stats.done, stats.dead, stats.cancelled, stats.open)
    return found, stats.is_balanced and same == (
        counted.seen, counted.done, counted.dead, counted.cancelled, counted.open
    )  # fmt: skip


def _results(
    tasks: list[Any], urls: dict[str, str], first: dict[str, float], memory: MemoryWatcher
) -> Iterator[BehaviourResult]:
    by_lane: dict[str, list[Any]] = {}
    for task in tasks:
        by_lane.setdefault(task.lane, []).append(task)
    for behaviour in BEHAVIOURS:
        if behaviour.name not in urls:
            continue
        url = urls[behaviour.name]
        own = by_lane.get(url.split("/")[2], [])
        task = next((one for one in own if one.url == url), None)
        rest: dict[str, int] = {}
        for other in own:
            if other is not task:
                rest[_outcome(other)] = rest.get(_outcome(other), 0) + 1
        if task is None:
            yield BehaviourResult(behaviour, "never seen", 0.0, "", rest, 0.0)
            continue
        history = task.history
        began = min([first.get(behaviour.name, 9e9), *(attempt.at / 1e6 for attempt in history[:1])])
        end = task.finished_at / 1e6
        message = history[-1].message if history else ""
        peak = memory.between(began, end)
        yield BehaviourResult(behaviour, _outcome(task), max(end - began, 0.0), message, rest, peak)


def _outcome(task: Any) -> str:
    return str(task.cause if task.state == "dead" else f"{task.state} {task.cause}".strip())
