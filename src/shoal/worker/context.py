"""WorkerContext and RunContext: everything a worker needs, passed in; it builds no backend by itself."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from shoal.core.block_rule import OFF
from shoal.core.cost import Cost
from shoal.core.lane import Pace
from shoal.core.page import Request, Response
from shoal.core.task import LeasedTask, Outcome, Task
from shoal.core.typed_task import TYPE_PREFIX
from shoal.extract.duplicate_content import DuplicateContent
from shoal.extract.links import AdmittedLinks
from shoal.extract.page import Follow
from shoal.extract.parse_budget import ParseBudget
from shoal.extract.scraper import Scraper
from shoal.fetch.base import Browser, Fetcher
from shoal.politeness.health import HostHealth
from shoal.politeness.pace import AdaptivePace
from shoal.politeness.response_hints import THROTTLE_STATUSES
from shoal.politeness.robots import Robots
from shoal.queue.base import Queue
from shoal.worker.block_watch import BlockWatch
from shoal.worker.browser_workers import BrowserWorkers
from shoal.worker.counters import CounterRecorder
from shoal.worker.fetch_learning import FetchLearning
from shoal.worker.page_states import PageStateBuffer
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.run_list import RunList
from shoal.worker.sessions import SharedSessions
from shoal.worker.start_rate import StartLimit
from shoal.worker.task.clients import HandlerClients
from shoal.worker.task.recrawl import Recrawl
from shoal.worker.task.request_builder import RequestBuilder

CPU_INTERVAL = 0.001  # seconds
Cached = Callable[[Sequence[Request]], Awaitable[Sequence[bool]]]
RecordRendered = Callable[[Request, Response], Awaitable[None]]


class LinkAdmitter(Protocol):
    def admit(
        self,
        follows: Iterable[Follow],
        *,
        depth: int,
        parent: int,
        origin_url: str,
        again: int = 0,
        listed: bool = False,
    ) -> AdmittedLinks: ...

    def note_unhandled(self, urls: Iterable[str], *, origin_url: str) -> tuple[tuple[str, str], ...]: ...

    def mark_committed(self, tasks: Iterable[Task]) -> None: ...


@dataclass(slots=True)
class RecordWatch:
    """Whether this worker has had a record of the run: until then it counts why pages give none."""

    has_records: bool = False


@dataclass(slots=True)
class CaptureBudget:
    """How many more screenshots and PDFs of a run this worker keeps to be looked at; handlers get all of them."""

    left: int = 20


class PageBudget(Protocol):
    """What pages of a run may cost, together with those of all other workers."""

    @property
    def is_limited(self) -> bool: ...

    async def begin(self, key: tuple[int, ...], kinds: Collection[str]) -> None:
        """Before a page; raises what puts its task back while too little is left."""
        ...

    async def extend(self, key: tuple[int, ...], spent: Cost, kinds: Collection[str]) -> None:
        """Before one more request of a page, likewise."""
        ...

    def give_back(self, key: tuple[int, ...]) -> None:
        """The page has not begun after all."""
        ...

    def end(self, key: tuple[int, ...], counters: Mapping[str, int]) -> None: ...

    def settle(self, key: tuple[int, ...], *, is_counted: bool) -> None: ...

    async def close(self) -> None: ...


class RunNotServed(Exception):
    """This worker cannot serve a run after all; its tasks are released for others."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Everything needed to work on tasks of one run."""

    scraper: Scraper
    links: LinkAdmitter
    robots: Robots | None  # None: told to ignore them
    pace: Callable[[str], Pace]  # what the run asks of a lane
    jitter: float = 0.0  # seconds by which the time between two requests varies, either way
    name: str = ""  # of the run
    title: str = ""  # of its scraper
    in_scope: Callable[[str], bool] = lambda lane: True  # whether a redirect of a found page may lead there
    request_builder: RequestBuilder = field(default_factory=RequestBuilder)
    rewrite: Callable[[str], str] | None = None  # which of several URLs of a page stands for all
    max_redirects: int = 10
    adaptive: bool = False  # go slower where a host answers slowly or refuses
    distinct: bool = True  # a page that several URLs lead to is recorded once
    skip_failing: int = 0  # links to URLs that failed so often before are skipped; 0: none
    max_same_content: int = 0  # pages of a host with the same content whose links are followed; 0: all
    unique: tuple[str, ...] = ()  # fields by which records are kept once; none: all are kept
    contents: DuplicateContent = field(default_factory=DuplicateContent)
    handler_timeout: float = 60.0
    retries: Mapping[str, int] | None = None  # by cause or class, in place of the usual ones
    retry_delay: float | None = None  # before the second try, in place of the usual one
    fetcher: Fetcher | None = None  # None: the worker's
    browser: Browser | None = None  # None: this worker has none
    record_rendered: RecordRendered | None = None  # saves what the browser gave; None: it is not saved
    fetch: str = "http"  # with what pages are fetched of which nobody else says so
    steps: tuple[str, ...] = ()  # likewise, what a browser does on them
    renders: bool = True  # False: pages come from files, whatever they would be fetched with
    counts_subrequests: bool = False  # against the pace of the page's own host
    cached: Cached | None = None  # which requests the cache would answer; None: it has none
    budget: ParseBudget | None = None  # None: the worker's
    sitemap_since: Callable[[float], float] = lambda now: 0.0  # older entries of sitemaps are left out; 0: none is
    record_watch: RecordWatch = field(default_factory=RecordWatch)
    captures: CaptureBudget = field(default_factory=CaptureBudget)
    celery_task: str = ""  # sent after each page; empty: none
    exit: str = ""  # by which requests leave of whose task nobody has said so
    exits_have_own_pace: bool = True  # hosts are asked by each exit as if there were no other
    on_block: str = OFF  # what becomes of a page for which the site gives a block page, as in core/block_rule.py
    sessions: SharedSessions | None = None  # None: this machine has none
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # of this machine, for their logins
    run_budget: PageBudget | None = None  # None: it cannot have one
    recrawl: Recrawl | None = None  # None: pages are not compared with those of the run before

    @property
    def reader(self) -> str:
        """Who reads its pages, as what was learned of them is kept by."""
        return self.title or self.scraper.name

    @property
    def served_by(self) -> tuple[str, ...]:
        """What workers say they serve that can work on it."""
        return (self.name, self.title, *(("templates",) if hasattr(self.scraper, "template") else ()))


class RefusalCounter:
    """How often in a row each lane has told us to slow down."""

    def __init__(self) -> None:
        self._consecutive: dict[str, int] = {}

    def count(self, lane: str, status: int) -> int:
        """Such answers before this one."""
        if status not in THROTTLE_STATUSES:
            return 0
        if len(self._consecutive) > 10_000:
            self._consecutive.clear()
        before = self._consecutive.get(lane, 0)
        self._consecutive[lane] = before + 1
        return before

    def reset(self, lane: str) -> None:
        if self._consecutive:
            self._consecutive.pop(lane, None)


class CpuMeter:
    """Processor time of this process, given to whatever was finished when it is asked: together it is all of it."""

    def __init__(self) -> None:
        self._taken_ns = time.process_time_ns()
        self._asked_at = 0.0

    def take(self) -> int:
        """Microseconds since it was last asked; none within a millisecond, for to ask the kernel takes a while."""
        now = time.monotonic()
        if now < self._asked_at + CPU_INTERVAL:
            return 0
        self._asked_at = now
        micros = (time.process_time_ns() - self._taken_ns) // 1000
        self._taken_ns += micros * 1000
        return micros


class LaneHolds:
    """Hosts that asked this worker for quiet, until the queue's own hold has reached everybody."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, lane: str, seconds: float) -> None:
        now = self._clock()
        if len(self._until) > 1_000:
            self._until = {lane: until for lane, until in self._until.items() if until > now}
        self._until[lane] = max(self._until.get(lane, 0.0), now + seconds)

    def remaining(self, lane: str) -> float:
        """How long the host is still to be left alone."""
        if not self._until or lane not in self._until:
            return 0.0
        left = self._until[lane] - self._clock()
        if left <= 0:
            del self._until[lane]
            return 0.0
        return left


@dataclass(slots=True)
class WorkerContext:
    worker: str
    queue: Queue
    fetcher: Fetcher
    build_run_context: Callable[[int], Awaitable[RunContext]]  # by run id; asked once per run
    crash_note: CrashNote
    open_queue: Callable[[], Awaitable[Queue]] | None = None  # a second handle, for the heartbeat's thread
    flush_pages: Callable[[], Awaitable[None]] | None = None  # before outcomes are settled
    page_states: PageStateBuffer | None = None  # likewise
    supervised: bool = True  # False in somebody's own process: there Ctrl-C is theirs, not the handler's
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], int] = lambda: time.time_ns() // 1000
    jitter: Callable[[], float] = random.random
    refusals: RefusalCounter = field(default_factory=RefusalCounter)
    health: HostHealth = field(default_factory=HostHealth)
    pace: AdaptivePace = field(default_factory=AdaptivePace)
    fast_responses: int = 0  # answers that came at once, from hosts without a pace
    budget: ParseBudget | None = None  # None: pages are parsed whatever it may cost
    run_list: RunList | None = None  # None: the plan says what is served, once and for all
    sessions: SharedSessions | None = None  # None: this machine has none
    on_close: Callable[[], Awaitable[None]] | None = None  # what else is to be closed
    new_circuit: Callable[[str, str, str], Awaitable[None]] | None = None  # by exit, session and host
    start_limit: StartLimit | None = None  # how many tasks it may start, beside what lanes allow
    clients: HandlerClients = field(default_factory=HandlerClients)  # of handlers of typed tasks
    on_attempt: Callable[[LeasedTask, Outcome, str], None] | None = None  # with the run's name
    cpu_meter: CpuMeter = field(default_factory=CpuMeter)
    sitemap_places: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)  # by lane
    lane_holds: LaneHolds = field(init=False)
    counters: CounterRecorder = field(init=False)
    fetch_learning: FetchLearning = field(init=False)
    blocks: BlockWatch = field(init=False)
    browser_workers: BrowserWorkers = field(init=False)
    _run_contexts: dict[int, RunContext] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lane_holds = LaneHolds(self.clock)
        self.counters = CounterRecorder(self.clock)
        self.fetch_learning = FetchLearning(self.queue, self.clock)
        self.blocks = BlockWatch(self.queue, self.clock)
        self.browser_workers = BrowserWorkers(self.queue, self.clock)

    async def after_claim(self, tasks: Sequence[LeasedTask]) -> None:
        """Read what is known of their pages; of runs that this worker has begun to work on."""
        for run in {task.run for task in tasks}:
            known = self._run_contexts.get(run)
            if known is not None and known.recrawl is not None:
                await known.recrawl.read_ahead(task for task in tasks if task.run == run)

    async def before_settle(self) -> None:
        """Make durable what outcomes refer to."""
        if self.flush_pages is not None:
            await self.flush_pages()
        if self.page_states is not None:
            await self.page_states.flush()
        await self.fetch_learning.share_due()
        if self.sessions is not None:
            await self.sessions.share_due()
        await self.blocks.share_due()

    async def close(self) -> None:
        for run_context in self._run_contexts.values():
            if run_context.run_budget is not None:
                await run_context.run_budget.close()
        await self.fetch_learning.share_all()
        if self.sessions is not None:
            await self.sessions.share_all()
        await self.blocks.share_all()
        await self.clients.close()
        await self.fetcher.close()
        if self.budget is not None:
            await self.budget.close()
        if self.on_close is not None:
            await self.on_close()

    async def run_context(self, run: int) -> RunContext:
        found = self._run_contexts.get(run)
        if found is None:
            found = self._run_contexts[run] = await self.build_run_context(run)
        return found

    def known_run_context(self, run: int) -> RunContext | None:
        return self._run_contexts.get(run)

    def run_budget(self, run: int) -> PageBudget | None:
        known = self._run_contexts.get(run)
        return known.run_budget if known is not None else None

    def run_title(self, run: int) -> str:
        """What people look for: the scraper, and which of its runs; runs of typed tasks are known by their type."""
        known = self.known_run_context(run)
        if known is None:
            return ""
        return known.title if known.title.startswith(TYPE_PREFIX) else f"{known.title}, run {known.name}"

    def forget(self, run: int) -> None:
        """The run has ended; should there be more of it after all, it is built again."""
        self._run_contexts.pop(run, None)
