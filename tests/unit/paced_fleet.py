"""A fleet on a virtual clock whose hosts have a pace: real workers, one queue in memory, pages that take their time."""

from __future__ import annotations

import asyncio
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
    hits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    calls: Counter[str] = field(default_factory=Counter)
    started: dict[str, int] = field(default_factory=dict)

    async def crawl(self, seconds: float, warm_up: float = 5.0) -> None:
        """Work for so long; what was asked for after the warm-up is in hits."""
        loop = asyncio.get_running_loop()
        queue = await SqliteQueue.open(":memory:", clock=lambda: EPOCH + round(loop.time() * 1e6))
        run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
        pace = Pace(self.spacing, self.in_flight)
        for host in range(self.hosts):
            count = round((seconds + warm_up) / self.spacing) + 10 if self.spacing else 2000
            tasks, _ = start_tasks(f"http://h{host}.test/{number}" for number in range(count))
            await queue.add(run, tasks, {f"h{host}.test": pace})
        fleet = [self._worker(queue, run, pace, f"w{number}") for number in range(self.workers)]
        working = [asyncio.create_task(worker.run()) for worker in fleet]
        await asyncio.sleep(warm_up)
        for hits in self.hits.values():
            hits.clear()
        self.calls.clear()
        before = [w.finished for w in fleet]
        await asyncio.sleep(seconds)
        self.measured = {host: tuple(hits) for host, hits in self.hits.items()}
        self.seconds = seconds
        self.made = Counter(self.calls)
        self.each = [w.finished - b for w, b in zip(fleet, before, strict=True)]
        for worker in fleet:
            worker.stop()
        await asyncio.gather(*working)
        await queue.close()

    def _worker(self, queue: SqliteQueue, run: int, pace: Pace, name: str) -> Worker:
        scraper = Scraper("s", hosts="*")

        @scraper.page("*")
        def page(page: Page) -> Any:
            return ()

        links = LinkFilter(scraper.in_scope, None, lambda lane, url: None)
        context = RunContext(scraper, links, None, lambda lane: pace)

        async def serve(run: int) -> RunContext:
            return context

        wire: Any = SlowQueue(queue, self.queue_latency, self.calls)
        clock, note = asyncio.get_running_loop().time, CrashNote.in_memory(name)
        tools = WorkerContext(name, wire, Web(self), serve, note, clock=clock, jitter=lambda: 0.5)
        return Worker(tools, WorkerPlan(runs=(run,), concurrency=self.concurrency, stop_when_empty=False))

    @property
    def used(self) -> float:
        """The part of the slots that was used."""
        return sum(map(len, self.measured.values())) * self.spacing / self.seconds / self.hosts

    @property
    def rate(self) -> float:
        return sum(map(len, self.measured.values())) / self.seconds

    @property
    def least_gap(self) -> float:
        """Between two requests of a host, by its spacing."""
        return (
            min((b - a) / self.spacing for hits in self.measured.values() for a, b in pairwise(hits))
            if self.spacing
            else 0
        )
