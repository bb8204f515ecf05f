"""A fleet on a virtual clock whose hosts have a pace: real workers, one queue in memory, pages that take their time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from simulation import EPOCH

from shoal.core.lane import Pace
from shoal.core.page import Request, Response
from shoal.core.run import NewRun
from shoal.core.url import lane_of
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.politeness.robots import RobotsVerdict
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.loop import Worker
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.crash_note import CrashNote


class SlowQueue:
    """The queue as a worker reaches it: every call takes its time."""

    def __init__(self, queue: SqliteQueue, latency: float, calls: Counter[str]) -> None:
        self._queue = queue
        self._latency = latency
        self._calls = calls
        self.promises = queue.promises

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        real = getattr(self._queue, verb)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[verb] += 1
            await asyncio.sleep(self._latency / 2)
            answer = await real(*args, **kwargs)
            await asyncio.sleep(self._latency / 2)
            return answer

        return call


class Web:
    """Pages of one worker's requests; computing each takes the worker's one core some time."""

    def __init__(self, fleet: PacedFleet) -> None:
        self._fleet = fleet
        self._core = asyncio.Lock()

    async def fetch(self, request: Request) -> Response:
        fleet = self._fleet
        fleet.hits[lane_of(request.url)].append(asyncio.get_running_loop().time())
        await asyncio.sleep(fleet.latency)
        if fleet.cpu:
            async with self._core:
                await asyncio.sleep(fleet.cpu)
        return Response(request.url, 200, (), b"")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class FirstContact:
    """The robots.txt of each host, which a worker reads once: it goes out in the slot of the page that needs it."""

    def __init__(self) -> None:
        self._read: set[str] = set()

    async def verdict(self, url: str, exit: str = "") -> RobotsVerdict:
        fresh = lane_of(url) not in self._read
        if fresh:
            self._read.add(lane_of(url))
            await asyncio.sleep(0.05)
        return RobotsVerdict(True, fresh=fresh)


@dataclass
class PacedFleet:
    hosts: int
    spacing: float  # seconds
    workers: int = 2
    concurrency: int = 64
    latency: float = 0.1  # seconds of a page
    queue_latency: float = 0.002
    cpu: float = 0.0  # seconds of a worker's core that a page takes
    in_flight: int = 0
    robots: bool = False
    pages: int = 0  # of a host; 0: more than it has slots
    hits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    calls: Counter[str] = field(default_factory=Counter)

    async def crawl(self, seconds: float, warm_up: float) -> Crawled:
        """Work for so long after the warm-up."""
        loop = asyncio.get_running_loop()
        queue = await SqliteQueue.open(":memory:", clock=lambda: EPOCH + round(loop.time() * 1e6))
        run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
        pace = Pace(self.spacing, self.in_flight)
        pages = self.pages or round((seconds + warm_up) / self.spacing) + 10
        for host in range(self.hosts):
            tasks, _ = start_tasks(f"http://h{host}.test/{number}" for number in range(pages))
            await queue.add(run, tasks, {f"h{host}.test": pace})
        fleet = [self._worker(queue, run, pace, f"w{number}") for number in range(self.workers)]
        working = [asyncio.create_task(worker.run()) for worker in fleet]
        await asyncio.sleep(warm_up)
        self.hits.clear()
        self.calls.clear()
        await asyncio.sleep(seconds)
        crawled = Crawled(self.spacing, self.hosts, seconds, tuple(map(tuple, self.hits.values())), Counter(self.calls))
        for worker in fleet:
            worker.stop()
        await asyncio.gather(*working)
        await queue.close()
        return crawled

    def _worker(self, queue: SqliteQueue, run: int, pace: Pace, name: str) -> Worker:
        scraper = Scraper("s", hosts="*")

        @scraper.page("*")
        def page(page: Page) -> Any:
            return ()

        links = LinkFilter(scraper.in_scope, None, lambda lane, url: None)
        robots: Any = FirstContact() if self.robots else None
        context = RunContext(scraper, links, robots, lambda lane: pace)

        async def serve(run: int) -> RunContext:
            return context

        wire: Any = SlowQueue(queue, self.queue_latency, self.calls)
        clock, note = asyncio.get_running_loop().time, CrashNote.in_memory(name)
        tools = WorkerContext(name, wire, Web(self), serve, note, clock=clock, jitter=random.Random(name).random)
        return Worker(tools, WorkerPlan(runs=(run,), concurrency=self.concurrency, stop_when_empty=False))


@dataclass(frozen=True)
class Crawled:
    spacing: float
    hosts: int
    seconds: float
    hits: tuple[tuple[float, ...], ...]  # by host, when it was asked
    calls: Counter[str]  # to the queue

    @property
    def rate(self) -> float:
        return sum(map(len, self.hits)) / self.seconds

    @property
    def used(self) -> float:
        """The part of the slots that was used."""
        return self.rate * self.spacing / self.hosts

    @property
    def fewest(self) -> int:
        """Requests to the host that was asked least."""
        return min(map(len, self.hits)) if len(self.hits) == self.hosts else 0

    @property
    def least_gap(self) -> float:
        """Between two requests of a host, as a part of the spacing."""
        return min((b - a) / self.spacing for hits in self.hits for a, b in pairwise(hits))
