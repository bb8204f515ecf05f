"""Plan: how long a crawl takes, with how many workers and machines, for how much money, and what limits it first. Pure.

Hosts with work proceed alike: each gets its share of what the fleet can do, and never more than its pace allows. A host
that has n pages is therefore done when all have got that far, and the time is the sum over the steps between two sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec

from shoal.core.host_sizes import HostGroup, HostSizes, spread_over_hosts
from shoal.core.sizing import (
    BUSY_SHARE,
    HEADER_BYTES,
    QUEUES,
    RECORD_OVERHEAD,
    SAVED_SHARE,
    SUPERVISOR_MEMORY,
    WORKER_MEMORY,
    QueueSizing,
    host_spacing,
    page_cpu_ms,
    place_seconds,
    server_cpu_ms,
)
from shoal.errors import UsageError

MAX_MACHINES = 100_000
MAX_CONCURRENCY = 256  # pages in progress that a plan gives a worker, if nobody says
BODIES_PER_PAGE = 3  # in memory: as it came, as text, as a tree
SERVER_SHARE = 0.7  # of a server that a plan uses: claims must not wait
MEMORY_SHARE = 0.85
ENOUGH = 1.1  # times the least that hosts allow: a larger fleet is not worth it
LimitName = Literal["hosts", "cpu", "concurrency", "bandwidth", "queue"]
MONTH = 30 * 86_400.0
HOUR = 3600.0


class Prices(msgspec.Struct, frozen=True):
    """In any currency; 0 is free."""

    machine_hour: float = 0.0
    server_hour: float | None = None  # of the queue's server; None: as for a machine
    traffic_gb: float = 0.0
    storage_gb_month: float = 0.0
    proxy_gb: float = 0.0
    thousand_pages: float = 0.0  # whatever else is paid by the page: a browser, a service

    @property
    def is_free(self) -> bool:
        return not any(msgspec.structs.astuple(self))


class PlanRequest(msgspec.Struct, frozen=True, dict=True):
    """What is to be crawled, and with what."""

    urls: int
    hosts: int = 1
    largest_host: int | None = None
    spacing: float = 1.0  # seconds between two requests to a host; 0: no limit
    in_flight: int = 2  # per host; 0: no limit
    latency: float = 0.5  # seconds until a response is there
    page_bytes: int = 50_000
    record_bytes: int = 500
    repeated: float = 0.0  # requests that are made again, of all pages
    keep_raw: bool = False
    queue: str = "redis"
    machines: int | None = None
    within: float | None = None  # seconds
    cores: float = 4.0  # of a machine
    memory: int = 16_000_000_000
    bandwidth: float = 1e9  # bits per second of a machine
    servers: int = 1  # of the queue
    server_cores: float = 4.0
    server_memory: int = 16_000_000_000
    workers: int | None = None  # processes of a machine
    concurrency: int | None = None  # pages in progress per process
    page_seconds: float | None = None  # CPU of a page, if it is known
    speed: float = 1.0  # of a core, beside the one that was measured
    prices: Prices = Prices()

    @property
    def sizing(self) -> QueueSizing:
        return QUEUES[self.queue]

    @property
    def host_spacing(self) -> float:
        return host_spacing(self.spacing, self.in_flight, self.latency)

    @property
    def page_cpu(self) -> float:
        """Seconds of a core that a page takes from a worker."""
        if self.page_seconds is not None:
            return self.page_seconds
        return page_cpu_ms(self.queue, self.page_bytes) / 1000 / self.speed

    @property
    def workers_per_machine(self) -> int:
        return self.workers or max(1, math.floor(self.cores))

    @property
    def pages_at_once(self) -> int:
        """Per worker process: as many as it takes to keep it busy, unless somebody says."""
        if self.concurrency:
            return self.concurrency
        busy = math.ceil(BUSY_SHARE / self.page_cpu * self.place_seconds)
        return max(16, min(MAX_CONCURRENCY, busy))

    @property
    def place_seconds(self) -> float:
        return place_seconds(self.latency)

    @property
    def worker_memory(self) -> int:
        return WORKER_MEMORY + BODIES_PER_PAGE * self.pages_at_once * self.page_bytes

    @cached_property
    def sizes(self) -> HostSizes:
        return spread_over_hosts(self.urls, self.hosts, self.largest_host)

    @cached_property
    def groups(self) -> Sequence[HostGroup]:
        return tuple(self.sizes.groups())


class Limit(msgspec.Struct, frozen=True):
    """What one part allows at most."""

    name: LimitName
    rate: float  # pages per second; inf: any


class Storage(msgspec.Struct, frozen=True):
    """Bytes at the end, or at the fullest moment."""

    queue: int
    records: int
    saved: int

    @property
    def total(self) -> int:
        return self.queue + self.records + self.saved


class Cost(msgspec.Struct, frozen=True):
    machines: float
    scaled: float  # if machines are given back as hosts run out of work
    servers: float
    traffic: float
    storage: float
    pages: float  # proxies, and what is paid by the page

    @property
    def total(self) -> float:
        return self.machines + self._others

    @property
    def scaled_total(self) -> float:
        return self.scaled + self._others

    @property
    def _others(self) -> float:
        return self.servers + self.traffic + self.storage + self.pages


class Plan(msgspec.Struct, frozen=True):
    request: PlanRequest
    machines: int
    servers_needed: int  # of the queue
    seconds: float
    least_seconds: float  # that hosts need, whatever the fleet
    most_pages_done: float  # seconds until nine tenths of the pages are
    rate: float  # pages per second, on average
    peak_rate: float
    machine_hours: float
    scaled_machine_hours: float
    limits: tuple[Limit, ...]  # the tightest first
    storage: Storage
    traffic: int  # bytes
    cost: Cost

    @property
    def in_time(self) -> bool:
        return self.request.within is None or self.seconds <= self.request.within

    @property
    def workers(self) -> int:
        return self.machines * self.request.workers_per_machine

    @property
    def limited_by(self) -> LimitName:
        return self.limits[0].name

    @property
    def connections(self) -> int:
        """To all servers of the queue together: every process has its own to each of them."""
        sizing = self.request.sizing
        each = self.workers * sizing.connections + self.machines * sizing.base_connections
        return each * self.servers_needed

    @property
    def machine_memory(self) -> int:
        return SUPERVISOR_MEMORY + self.request.workers_per_machine * self.request.worker_memory

    @property
    def server_cores(self) -> float:
        """That the queue's servers keep busy at most."""
        return self.peak_rate * server_cpu_ms(self.request.queue, self.peak_rate / self.workers) / 1000

    @property
    def peak_bandwidth(self) -> float:
        """Bits per second of all machines together."""
        return self.peak_rate * (self.request.page_bytes + HEADER_BYTES) * 8

    @property
    def cost_per_million(self) -> float:
        return self.cost.total / self.request.urls * 1e6

    @property
    def scaled_cost_per_million(self) -> float:
        return self.cost.scaled_total / self.request.urls * 1e6


class Course(msgspec.Struct, frozen=True):
    """How a crawl goes with a fleet of some rate."""

    seconds: float
    most_pages_done: float
    peak_rate: float
    fleet_seconds: float  # of the whole fleet, if idle parts of it are given back


def make_plan(request: PlanRequest) -> Plan:
    """For a number of machines, for a deadline, or for as few machines as are nearly as fast as hosts allow."""
    least = _course(request, math.inf).seconds
    machines = _machines(request, least)
    limits = sorted(_limits(request, machines), key=lambda limit: limit.rate)
    course = _course(request, limits[0].rate)
    hosts = Limit("hosts", request.urls / least if least else math.inf)
    # Hosts limit a crawl where it would take no longer than this with a fleet of any size.
    first = [hosts, *limits] if course.seconds <= least * ENOUGH else [*limits, hosts]
    hours = course.seconds / HOUR * machines
    scaled = max(course.fleet_seconds * machines, course.seconds) / HOUR
    traffic = round(request.urls * (1 + request.repeated) * (request.page_bytes + HEADER_BYTES))
    storage = _storage(request)
    servers = _servers_needed(request, storage)
    return Plan(
        request=request,
        machines=machines,
        servers_needed=servers,
        seconds=course.seconds,
        least_seconds=least,
        most_pages_done=course.most_pages_done,
        rate=request.urls / course.seconds if course.seconds else math.inf,
        peak_rate=course.peak_rate,
        machine_hours=hours,
        scaled_machine_hours=scaled,
        limits=tuple(first),
        storage=storage,
        traffic=traffic,
        cost=_cost(
            request, course.seconds, machines=(hours, scaled), servers=servers, traffic=traffic, storage=storage
        ),
    )


def _course(request: PlanRequest, capacity: float) -> Course:
    """Step by step, from the moment all hosts have work to that in which the largest is done."""
    seconds = pages = done_at = fleet = peak = 0.0
    most, attempts = 0.9 * request.urls, 1 + request.repeated
    for group in request.groups:
        step = group.pages * group.hosts
        at_pace = group.pages * request.host_spacing * attempts
        at_capacity = step * attempts / capacity
        took = max(at_pace, at_capacity)
        if took:
            peak = max(peak, step / took)
        fleet += at_capacity
        if pages < most <= pages + step:
            done_at = seconds + took * (most - pages) / step
        seconds, pages = seconds + took, pages + step
    return Course(seconds, done_at, peak, fleet)


def _machines(request: PlanRequest, least: float) -> int:
    """As many as were asked for, or as few as are in time; where hosts cannot be, as few as they can keep busy."""
    most = 1 if request.sizing.on_one_machine else MAX_MACHINES
    if request.machines is not None:
        if request.machines > most:
            raise UsageError(
                f"workers of {request.machines:,} machines cannot share one file",
                hint="--on redis, postgres or rabbitmq for a queue of several machines",
            )
        return request.machines
    target = max(least * ENOUGH, HOUR)
    if request.within is not None and request.within >= least:
        target = request.within
    elif not least:
        return 1

    def is_in_time(machines: int) -> bool:
        return _course(request, min(limit.rate for limit in _limits(request, machines))).seconds <= target

    high = 1
    while high < most and not is_in_time(high):
        high = min(most, high * 2)
    low = high // 2  # is too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_in_time(middle) else (middle, high)
    # Where nothing is in time, the queue's server limits: more machines than it can serve buy nothing.
    return high if is_in_time(high) else _fewest_at_rate(request, high)


def _fewest_at_rate(request: PlanRequest, machines: int) -> int:
    """The fewest machines that are as fast as so many."""

    def rate(number: int) -> float:
        return min(limit.rate for limit in _limits(request, number))

    low, high, best = 0, machines, rate(machines)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rate(middle) >= best else (middle, high)
    return high


def _limits(request: PlanRequest, machines: int) -> list[Limit]:
    """What a fleet of so many machines can do, by each of its parts."""
    workers = machines * request.workers_per_machine
    busy = min(request.cores * machines, BUSY_SHARE * workers)
    at_once = workers * request.pages_at_once / request.place_seconds
    limits = [
        Limit("cpu", busy / request.page_cpu),
        Limit("concurrency", at_once),
        Limit("bandwidth", machines * request.bandwidth / 8 / (request.page_bytes + HEADER_BYTES)),
    ]
    each = min(limit.rate for limit in limits) / workers
    limits.append(Limit("queue", request.servers * _server_rate(request, each)))
    return limits


def _server_rate(request: PlanRequest, worker_rate: float) -> float:
    """Pages per second that one server of the queue can take from workers that do so many each."""
    cores = min(request.sizing.parallel, request.server_cores) * request.speed
    return SERVER_SHARE * cores * 1000 / server_cpu_ms(request.queue, worker_rate)


def _storage(request: PlanRequest) -> Storage:
    sizing, urls = request.sizing, request.urls
    each = max(sizing.waiting_bytes, sizing.done_bytes)
    return Storage(
        queue=urls * each + request.hosts * sizing.host_bytes,
        records=urls * (request.record_bytes + RECORD_OVERHEAD) if request.record_bytes else 0,
        saved=round(urls * request.page_bytes * SAVED_SHARE) if request.keep_raw else 0,
    )


def _servers_needed(request: PlanRequest, storage: Storage) -> int:
    """Servers of the queue in whose memory it has room; what their CPU can do is a limit of its own."""
    in_memory = storage.queue + storage.records if request.sizing.in_memory else 0
    return max(request.servers, math.ceil(in_memory / (request.server_memory * MEMORY_SHARE)))


def _cost(
    request: PlanRequest, seconds: float, *, machines: tuple[float, float], servers: int, traffic: int, storage: Storage
) -> Cost:
    """`machines`: hours of all of them, and those if idle ones are given back."""
    prices = request.prices
    server = prices.machine_hour if prices.server_hour is None else prices.server_hour
    servers = 0 if request.sizing.on_one_machine else servers
    hours, scaled = machines
    return Cost(
        machines=hours * prices.machine_hour,
        scaled=scaled * prices.machine_hour,
        servers=servers * server * seconds / HOUR,
        traffic=traffic / 1e9 * prices.traffic_gb,
        storage=storage.total / 1e9 * prices.storage_gb_month * max(1.0, seconds / MONTH),
        pages=traffic / 1e9 * prices.proxy_gb + request.urls / 1000 * prices.thousand_pages,
    )
