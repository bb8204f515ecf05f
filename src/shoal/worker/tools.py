"""Tools: everything a worker needs, handed in; the worker builds no backend by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shoal.core.lane import Pace
from shoal.core.page import Request, Response
from shoal.core.task import Leased, Outcome, Task
from shoal.extract.contents import Contents
from shoal.extract.page import Follow, Page
from shoal.politeness.answers import SLOW_DOWN
from shoal.politeness.health import Health
from shoal.politeness.pace import Adaptive
from shoal.queue.base import Queue
from shoal.worker.clients import Clients
from shoal.worker.figures import Counting
from shoal.worker.manners import Manners
from shoal.worker.note import Note


class Fetcher(Protocol):
    async def fetch(self, request: Request) -> Response: ...

    def note_stall(self, seconds: float) -> None:
        """The event loop stood still for so long: exchanges that timed out meanwhile are not to blame."""
        ...

    async def close(self) -> None: ...


class Verdict(Protocol):
    @property
    def allowed(self) -> bool: ...
    @property
    def wait(self) -> float | None: ...
    @property
    def crawl_delay(self) -> float | None: ...
    @property
    def fresh(self) -> bool: ...
    @property
    def news(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def cause(self) -> str: ...


class Robots(Protocol):
    async def verdict(self, url: str) -> Verdict: ...


class Budget(Protocol):
    @property
    def free(self) -> int:
        """Bytes of a page that need not be checked."""
        ...

    async def check(self, response: Response) -> None:
        """Raise GiveUp for a page that would cost too much to parse."""
        ...

    async def close(self) -> None: ...


class Handler(Protocol):
    @property
    def func(self) -> Callable[[Page], Any]: ...


class TaskHandler(Protocol):
    @property
    def func(self) -> Callable[..., Any]: ...
    @property
    def retries(self) -> int | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def rows(self) -> bool: ...


class Scraper(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> Mapping[str, TaskHandler]: ...
    @property
    def opening(self) -> Callable[[], Any] | None: ...
    @property
    def closing(self) -> Callable[[Any], Any] | None: ...

    def handler_for(self, url: str) -> Handler | None: ...

    def default_follow(self, page: Page) -> Iterable[Follow]: ...


class Found(Protocol):
    @property
    def tasks(self) -> Sequence[Task]: ...
    @property
    def skipped(self) -> Sequence[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True)
class NoLinks:
    skipped: Sequence[tuple[str, str]] = ()
    tasks: Sequence[Task] = ()


class LinkGate(Protocol):
    def admit(self, follows: Iterable[Follow], *, depth: int, parent: int, origin_url: str) -> Found: ...

    def committed(self, tasks: Iterable[Task]) -> None: ...


class NotServed(Exception):
    """This worker cannot work on a run after all; whoever can shall have its tasks."""


class Roster(Protocol):
    """Which runs a worker asks for work of, where that changes while it works."""

    async def serves(self, *, fresh: bool) -> tuple[str, ...]:
        """Names of runs; fresh: as they are now, not as they were a moment ago."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """A run this worker has the code for."""

    scraper: Scraper
    links: LinkGate
    robots: Robots | None  # None: told to ignore them
    pace: Callable[[str], Pace]  # what the run asks of a lane
    name: str = ""  # of the run
    title: str = ""  # of its scraper
    in_scope: Callable[[str], bool] = lambda lane: True  # whether a redirect of a found page may lead there
    manners: Manners = field(default_factory=Manners)
    rewrite: Callable[[str], str] | None = None  # which of several addresses of a page stands for all
    max_redirects: int = 10
    adapt: bool = False  # go slower where a host answers slowly or refuses
    distinct: bool = True  # a page that several addresses lead to is recorded once
    max_same_content: int = 0  # pages of a host with the same content whose links are followed; 0: all
    contents: Contents = field(default_factory=Contents)
    handler_timeout: float = 60.0
    retries: Mapping[str, int] | None = None  # by cause or class, in place of the usual ones
    retry_delay: float | None = None  # before the second try, in place of the usual one
    fetcher: Fetcher | None = None  # None: that of the tools
    budget: Budget | None = None  # None: that of the tools


class Refusals:
    """How often in a row each lane has told us to slow down."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, int] = {}

    def count(self, lane: str, status: int) -> int:
        """Such answers before this one."""
        if status not in SLOW_DOWN:
            return 0
        if len(self._in_a_row) > 10_000:
            self._in_a_row.clear()
        before = self._in_a_row.get(lane, 0)
        self._in_a_row[lane] = before + 1
        return before

    def good(self, lane: str) -> None:
        if self._in_a_row:
            self._in_a_row.pop(lane, None)


class Holds:
    """Hosts that asked this worker for quiet, until the queue's own hold has reached everybody."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, lane: str, seconds: float) -> None:
        now = self._clock()
        if len(self._until) > 1_000:
            self._until = {lane: until for lane, until in self._until.items() if until > now}
        self._until[lane] = max(self._until.get(lane, 0.0), now + seconds)

    def seconds(self, lane: str) -> float:
        """How long the host is still to be left alone."""
        if not self._until or lane not in self._until:
            return 0.0
        left = self._until[lane] - self._clock()
        if left <= 0:
            del self._until[lane]
            return 0.0
        return left


def _wall() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class Tools:
    worker: str
    queue: Queue
    fetcher: Fetcher
    serve: Callable[[int], Awaitable[Served]]  # by run id; asked once per run
    note: Note
    open_queue: Callable[[], Awaitable[Queue]] | None = None  # a second handle, for the heartbeat's thread
    keep: Callable[[], Awaitable[None]] | None = None  # makes kept pages durable, before their outcome is
    supervised: bool = True  # False in somebody's own process: there Ctrl-C is theirs, not the handler's
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], int] = _wall
    jitter: Callable[[], float] = random.random
    refusals: Refusals = field(default_factory=Refusals)
    health: Health = field(default_factory=Health)
    pace: Adaptive = field(default_factory=Adaptive)
    prompt: int = 0  # answers that came at once, from hosts without a pace
    budget: Budget | None = None  # None: pages are parsed whatever it may cost
    roster: Roster | None = None  # None: the plan says what is served, once and for all
    closing: Callable[[], Awaitable[None]] | None = None  # what else is to be closed
    clients: Clients = field(default_factory=Clients)  # of handlers of typed tasks
    traced: Callable[[Leased, Outcome, str], None] | None = None  # told of every attempt, with its run's name
    holds: Holds = field(init=False)
    figures: Counting = field(init=False)
    waiting: dict[object, float] = field(default_factory=dict)  # visits that only wait, and since when
    _served: dict[int, Served] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.holds = Holds(self.clock)
        self.figures = Counting(self.clock)

    async def close(self) -> None:
        await self.clients.close()
        await self.fetcher.close()
        if self.budget is not None:
            await self.budget.close()
        if self.closing is not None:
            await self.closing()

    async def served(self, run: int) -> Served:
        found = self._served.get(run)
        if found is None:
            found = self._served[run] = await self.serve(run)
        return found

    def served_now(self, run: int) -> Served | None:
        return self._served.get(run)

    def forget(self, run: int) -> None:
        """The run has ended; should there be more of it after all, it is built again."""
        self._served.pop(run, None)
