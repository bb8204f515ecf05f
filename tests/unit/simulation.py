"""Simulation: real workers and a real queue on a virtual clock, with a web and faults drawn from a seed.

Time jumps to the next timer, so that minutes pass in milliseconds and every run of a seed is the same.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from shoal.core.lane import Pace
from shoal.core.page import Request, Response
from shoal.core.run import NewRun
from shoal.core.stats import Stats
from shoal.core.task import Claim, Outcome, Verdict
from shoal.core.url import lane_of
from shoal.errors import FetchFailed, QueueUnavailable
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.queue.base import SLOT_HORIZON_SECONDS, Queue, StoredRecord
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.loop import Worker
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.crash_note import CrashNote

T = TypeVar("T")
EPOCH = 1_750_000_000_000_000
LEASE = 9.0
FAULTS = ("crash", "crash", "outage", "long outage", "freeze", "sleep", "nap", "forward", "back")
STUCK_AFTER = 4 * 3600.0  # virtual seconds after which a run counts as stuck


class VirtualSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for nothing")
        self.now += max(timeout, 0.0)
        return super().select(0)  # type: ignore[no-any-return]


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass
class Hit:
    """One request as its server saw it."""

    at: float
    until: float
    path: str
    counts: bool  # False where a fault of the machine, not of the worker, moved it
    orphan: bool = False  # its worker has died: the server goes on alone


@dataclass
class Server:
    pace: Pace
    hits: list[Hit] = field(default_factory=list)


@dataclass
class SimulatedPage:
    """One page of the web."""

    kind: str  # good, gone, or where it has moved to
    faults: list[str]  # answers that come before the good one
    links: list[str] = field(default_factory=list)


class SimulatedWeb:
    """A few hosts with pages that link to each other, some of them slow, flaky, moved or gone."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.servers: dict[str, Server] = {}
        self.pages: dict[str, SimulatedPage] = {}
        for number in range(dice.randint(1, 4)):
            spacing = dice.choice((0.0, 0.0, 0.2, 0.5, 1.0))
            self.servers[f"h{number}.test"] = Server(Pace(spacing, dice.choice((0, 1, 2, 2, 4))))
        for lane in self.servers:
            for page in range(dice.randint(5, 20)):
                self.pages[f"http://{lane}/{page}"] = self._make_page(lane, page)
        self.start = "http://h0.test/0"
        self.pages[self.start].kind = "good"
        self._link(list(self.pages))

    def _make_page(self, lane: str, page: int) -> SimulatedPage:
        elsewhere = self.dice.choice(list(self.servers))
        moved, away = f"http://{lane}/0", f"http://{elsewhere}/away/{lane}/{page}"
        faults = ([], ["500"], ["timeout"], ["reset", "500"], ["429"], ["503", "503"])
        return SimulatedPage(
            self.dice.choices(("good", "gone", moved, away), (88, 4, 4, 4))[0],
            list(self.dice.choices(faults, (80, 5, 4, 3, 3, 2))[0]),
        )

    def _link(self, urls: list[str]) -> None:
        """Every page is reachable from the start through pages that really show their links."""
        showing = [urls[0]]
        for url in urls[1:]:
            for _ in range(self.dice.randint(1, 4)):
                self.pages[self.dice.choice(showing)].links.append(url)
            if self.pages[url].kind == "good":
                showing.append(url)
                self.pages[url].links.append(self.dice.choice(urls))

    def expected(self) -> set[str]:
        """The addresses that must be in the records, each once."""
        good = {url for url, sheet in self.pages.items() if sheet.kind == "good"}
        return good | {sheet.kind for sheet in self.pages.values() if "/away/" in sheet.kind}

    def answer(self, url: str) -> Response:
        if "/away/" in url:
            return Response(url, 200, (), b"<html></html>")
        sheet = self.pages[url]
        if sheet.faults:
            return self._fault(url, sheet.faults.pop(0))
        if sheet.kind == "gone":
            return Response(url, 404, (), b"gone")
        if sheet.kind != "good":
            return Response(url, 302, (("location", sheet.kind),), b"")
        body = "".join(f'<a href="{link}">x</a>' for link in sheet.links)
        return Response(url, 200, (("content-type", "text/html"),), body.encode())

    def _fault(self, url: str, fault: str) -> Response:
        if fault == "timeout":
            raise FetchFailed("timeout.total")
        if fault == "reset":
            raise FetchFailed("connect")
        headers = (("retry-after", "3"),) if fault == "429" else ()
        return Response(url, int(fault), headers, b"")


class Machine:
    """Where one worker runs: it can be switched off, or stopped for a while."""

    def __init__(self) -> None:
        self.dead = False
        self.frozen_until = 0.0
        self.asleep = 0.0  # seconds its own clock did not count
        self.odd_until = -1.0  # requests until then may have missed their slots without a chance to know
        self.off: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return asyncio.get_running_loop().time() - self.asleep

    async def ready(self) -> bool:
        """Hold whoever passes while the machine stands still; True if it did."""
        held = False
        while True:
            if self.dead:
                await asyncio.get_running_loop().create_future()
            wait = self.frozen_until - asyncio.get_running_loop().time()
            if wait <= 0:
                return held
            held = True
            await asyncio.sleep(wait)

    def freeze(self, seconds: float, *, clock_too: bool) -> None:
        now = asyncio.get_running_loop().time()
        self.frozen_until = max(self.frozen_until, now + seconds)
        self.odd_until = self.frozen_until + 2 * SLOT_HORIZON_SECONDS + 1
        if clock_too:
            asyncio.get_running_loop().call_later(seconds, self._overslept, seconds)

    def _overslept(self, seconds: float) -> None:
        self.asleep += seconds


class MachineQueue:
    """The queue as one machine sees it: with latency, outages, lost answers and crashes in the middle."""

    def __init__(self, queue: Queue, machine: Machine, simulation: Simulation) -> None:
        self._queue = queue
        self._machine = machine
        self._simulation = simulation
        self.promises = queue.promises

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        real = getattr(self._queue, verb)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._machine.ready()
            await self._lag()
            answer = await real(*args, **kwargs)
            fate = self._simulation.fate(verb)
            if fate == "crash":
                self._machine.off()
            await self._lag()
            await self._machine.ready()
            if fate == "lost":
                raise QueueUnavailable(f"the answer to {verb} was lost")
            return answer

        return call

    async def _lag(self) -> None:
        if self._simulation.dice.random() < 0.5:
            await asyncio.sleep(self._simulation.dice.uniform(0.0, 0.001))
        if asyncio.get_running_loop().time() < self._simulation.outage_until:
            raise QueueUnavailable("no route to the queue")


class MachineFetcher:
    """The web as one machine sees it."""

    def __init__(self, web: SimulatedWeb, machine: Machine, simulation: Simulation) -> None:
        self._web = web
        self._machine = machine
        self._simulation = simulation

    async def fetch(self, request: Request) -> Response:
        held = await self._machine.ready()
        loop = asyncio.get_running_loop()
        now, dice = loop.time(), self._web.dice
        latency = dice.choice((0.001, 0.02, 0.1, 0.4, 1.5)) * dice.random()
        odd = held or now < self._machine.odd_until or now < self._simulation.odd_until
        hit = Hit(now, now + latency, request.url.partition(".test")[2], not odd)
        self._web.servers[lane_of(request.url)].hits.append(hit)
        try:
            response = self._web.answer(request.url)
        finally:
            try:
                await asyncio.sleep(latency)
            except asyncio.CancelledError:
                hit.orphan = self._machine.dead
                raise
            finally:
                hit.until = loop.time()
        if await self._machine.ready():
            hit.counts = False
        return response

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Simulation:
    """One seed: a site, some workers, and what happens to them."""

    def __init__(self, seed: int, wrap: Callable[[Queue], Any] = lambda queue: queue) -> None:
        self.dice = random.Random(seed)
        self.web = SimulatedWeb(random.Random(seed + 1_000_000))
        self.outage_until = -1.0
        self.odd_until = -1.0
        self.crashes = self.stale = 0
        self._wrap = wrap
        self._stepped = 0
        self._furthest = 0.0  # seconds the store's clock was set back
        self._fates: Counter[str] = Counter()
        self._living: dict[asyncio.Task[Any], tuple[Machine, str]] = {}
        self._born = 0
        self._charges = 2  # how often tasks may be charged for their worker; the third would be their death
        self._lost_answers = self.dice.choice((0.0, 0.0, 0.05, 0.2))
        self._crash_in_call = self.dice.choice((0.0, 0.0, 0.01))

    def store_clock(self) -> int:
        return EPOCH + self._stepped + round(asyncio.get_running_loop().time() * 1_000_000)

    def fate(self, verb: str) -> str:
        """What happens to an answer on its way back, after the verb was carried out."""
        if verb in ("settle", "claim", "extend", "reserve"):
            if self.dice.random() < self._lost_answers:
                return "lost"
            if verb in ("settle", "claim") and self.crashes < 5 and self.dice.random() < self._crash_in_call:
                return "crash"
        return ""

    async def run_to_end(self) -> None:
        self.queue = self._wrap(await SqliteQueue.open(":memory:", clock=self.store_clock))
        self.run = (await self.queue.start_run(NewRun(scraper="sim", key="sim"))).id
        tasks, _ = start_tasks([self.web.start])
        await self.queue.add(self.run, tasks, {task.lane: self._pace(task.lane) for task in tasks})
        reaping = asyncio.create_task(self._reap())
        troubling = asyncio.create_task(self._fault())
        for _ in range(self.dice.randint(1, 3)):
            self._start_worker()
        async with asyncio.timeout(STUCK_AFTER):
            while self._living:
                done, _ = await asyncio.wait(self._living, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._living.pop(task, None)
                    if not task.cancelled():
                        self.stale += task.result().stale
        reaping.cancel()
        troubling.cancel()
        await asyncio.wait([reaping, troubling])

    def _pace(self, lane: str) -> Pace:
        return self.web.servers[lane].pace

    def _start_worker(self) -> None:
        self._born += 1
        name, machine = f"w{self._born}", Machine()
        task = asyncio.create_task(self._work(name, machine))
        self._living[task] = machine, name
        machine.off = lambda: self._crash(task)

    async def _work(self, name: str, machine: Machine) -> Any:
        scraper = Scraper("sim", self.web.start, hosts=list(self.web.servers))

        @scraper.page("*")
        def every(page: Page) -> Any:
            yield {"url": page.url}
            yield from page.follow()

        links = LinkFilter(scraper.in_scope, None, lambda lane, url: None)

        async def serve(run: int) -> RunContext:
            return RunContext(scraper, links, None, self._pace)

        wire: Any = MachineQueue(self.queue, machine, self)
        tools = WorkerContext(
            worker=name,
            queue=wire,
            fetcher=MachineFetcher(self.web, machine, self),
            build_run_context=serve,
            crash_note=CrashNote.in_memory(name),
            clock=machine.clock,
            jitter=self.dice.random,
        )
        plan = WorkerPlan(runs=(self.run,), concurrency=self.dice.choice((1, 3, 8)), lease=LEASE, heartbeat=LEASE / 3)
        return await Worker(tools, plan).run()

    def _crash(self, task: asyncio.Task[Any]) -> None:
        """All of a worker vanishes between two steps; where nobody saw it, only time tells."""
        if task not in self._living or len(self._living) == 0:
            return
        machine, name = self._living.pop(task)
        machine.dead = True
        self.crashes += 1
        loop = asyncio.get_running_loop()
        loop.call_soon(task.cancel)
        if self._charges > 0 and self.dice.random() < 0.3:
            self._charges -= 1
        else:
            reaping = asyncio.ensure_future(self.queue.reap({name: ()}))
            self._reaped = reaping
        self._start_worker()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            if asyncio.get_running_loop().time() >= self.outage_until:
                await self.queue.reap()

    async def _fault(self) -> None:
        """Things that happen at random moments."""
        for _ in range(self.dice.randint(0, 6)):
            await asyncio.sleep(self.dice.expovariate(0.5))
            now = asyncio.get_running_loop().time()
            victims = list(self._living)
            kind = self.dice.choice(FAULTS)
            if kind == "crash" and victims:
                self._crash(self.dice.choice(victims))
            elif kind == "outage":
                self.outage_until = now + self.dice.uniform(0.5, 3.5)
            elif kind == "long outage" and self._charges:
                self._charges -= 1
                self.outage_until = now + self.dice.uniform(3.5, 30.0)
            elif kind == "nap" and victims:
                self._living[self.dice.choice(victims)][0].freeze(self.dice.uniform(0.1, 2.0), clock_too=False)
            elif kind in ("freeze", "sleep") and victims and self._charges:
                self._charges -= 1
                seconds = LEASE + self.dice.uniform(1.0, 20.0)
                self._living[self.dice.choice(victims)][0].freeze(seconds, clock_too=kind == "sleep")
            elif kind == "forward" and self._charges:
                self._charges -= 1
                self._step(self.dice.uniform(0.1, 60.0))
            elif kind == "back":
                self._step(-self.dice.uniform(0.1, 15.0))

    def _step(self, seconds: float) -> None:
        """Slots given out and slots yet to come are counted on different clocks, for as long as any waits."""
        self._stepped += round(seconds * 1_000_000)
        self._furthest += max(0.0, -seconds)
        if seconds > 0:
            waits = 2 * SLOT_HORIZON_SECONDS + 1 + self._furthest
            self.odd_until = asyncio.get_running_loop().time() + waits

    # what must be true in the end

    async def violations(self) -> list[str]:
        said: list[str] = []
        stats, counted = await self.queue.stats(self.run), await self.queue.recount(self.run)
        if stats.open or not stats.is_balanced:
            said.append(f"the account does not add up: {stats}")
        if _account_violations(stats) != _account_violations(counted):
            said.append(f"counters {_account_violations(stats)}, counted {_account_violations(counted)}")
        said += await self._record_violations()
        if sum(lane.in_flight for lane in await self.queue.lanes()):
            said.append("lanes still count requests in flight")
        for lane, server in self.web.servers.items():
            said += [f"{lane}: {why}" for why in _spacing_violations(server) + _in_flight_violations(server)]
        return said

    async def _record_violations(self) -> list[str]:
        kept = await self.queue.records(self.run, limit=10_000)
        times = Counter(msgspec.json.decode(record.data)["url"] for record in kept)
        said = [f"{url} recorded {count} times" for url, count in times.items() if count > 1]
        missing, extra = self.web.expected() - set(times), set(times) - self.web.expected()
        if missing:
            dead = await self.queue.list_tasks(self.run, state="dead")
            said.append(f"missing {sorted(missing)}; dead: {[(task.url, task.cause) for task in dead]}")
        if extra:
            said.append(f"unexpected {sorted(extra)}")
        return said


def _account_violations(stats: Stats) -> tuple[int, ...]:
    return stats.seen, stats.ready, stats.leased, stats.done, stats.dead, stats.cancelled, stats.records


def _spacing_violations(server: Server) -> list[str]:
    hits, least = server.hits, 0.95 * server.pace.spacing
    return [
        f"{before.path} and {after.path} only {after.at - before.at:.3f} s apart at {after.at:.3f}"
        for before, after in pairwise(hits)
        if before.counts and after.counts and after.at - before.at < least
    ]


def _in_flight_violations(server: Server) -> list[str]:
    # Where a redirect comes in from another host it took a slot here, but no place.
    hits = [hit for hit in server.hits if hit.counts and not hit.orphan and "/away/" not in hit.path]
    limit = server.pace.max_in_flight or len(hits)
    return [
        f"more than {limit} requests at once at {hit.at:.3f}"
        for hit in hits
        if sum(other.at <= hit.at < other.until for other in hits) > limit
    ]


class Broken:
    """A queue with a planted bug; everything else is real."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._queue, verb)


class TakesStale(Broken):
    """Keeps the records of an outcome whose lease was lost."""

    kept: tuple[StoredRecord, ...] = ()

    async def settle(self, outcomes: Sequence[Outcome], *rest: Any) -> list[Verdict]:
        verdicts = await self._queue.settle(outcomes, *rest)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if verdict == "stale":
                self.kept += tuple(StoredRecord(0, outcome.task, data) for data in outcome.records)
        return verdicts

    async def records(self, run: int, **page: Any) -> list[StoredRecord]:
        return [*await self._queue.records(run, **page), *self.kept]


class IgnoresSlots(Broken):
    """Hands tasks out to be started at once."""

    async def claim(self, *args: Any, **kwargs: Any) -> Claim:
        claim = await self._queue.claim(*args, **kwargs)
        tasks = tuple(msgspec.structs.replace(task, start_in=0.0) for task in claim.tasks)
        return msgspec.structs.replace(claim, tasks=tasks)


class AcknowledgesFailures(Broken):
    """Takes a task that is to be retried for done."""

    async def settle(self, outcomes: Sequence[Outcome], *rest: Any) -> list[Verdict]:
        early = [msgspec.structs.replace(o, result="done") if o.result == "retry" else o for o in outcomes]
        return await self._queue.settle(early, *rest)
