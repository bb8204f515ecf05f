"""Scenario: what is simulated, and how its hosts lie on the shards of its queue."""

from __future__ import annotations

import math
from functools import cached_property

import msgspec

from shoal.core.autoscale import ScaleLimits
from shoal.core.host_sizes import EXACT_RANKS, HostSizes, spread_over_hosts
from shoal.core.partition import partition
from shoal.core.retry import retry_delay
from shoal.core.sizing import BUSY_SHARE, QUEUES, QueueSizing, host_spacing, page_cpu_ms, place_seconds

MERGED_SHARE = 0.03  # by which the hosts of one step may differ


class Outage(msgspec.Struct, frozen=True):
    """A shard's server that is away for a while."""

    at: float
    shard: int
    seconds: float


class Scenario(msgspec.Struct, frozen=True, dict=True):
    urls: int
    hosts: int
    largest_host: int | None = None
    spacing: float = 1.0
    in_flight: int = 2
    latency: float = 0.5
    page_bytes: int = 50_000
    queue: str = "redis"
    shards: int = 1
    server_cores: float = 4.0
    workers: int = 1  # processes
    per_machine: int = 4  # of them
    concurrency: int = 32
    failing: float = 0.0  # responses that are 503
    worker_mtbf: float = math.inf  # seconds until a worker process dies
    restart: float = 5.0  # seconds until there is another
    outages: tuple[Outage, ...] = ()
    scale: ScaleLimits | None = None  # an autoscaler acts, and workers are those it begins with
    speed: float = 1.0  # of a core, beside that of core/sizing
    robots: bool = True
    max_seconds: float = math.inf

    @property
    def sizing(self) -> QueueSizing:
        return QUEUES[self.queue]

    @property
    def machines(self) -> int:
        most = self.scale.maximum if self.scale else self.workers
        return max(1, math.ceil(most / self.per_machine))

    @property
    def host_spacing(self) -> float:
        return host_spacing(self.spacing, self.in_flight, self.latency)

    @property
    def worker_rate(self) -> float:
        """Requests per second of one process that has enough to do."""
        by_cpu = BUSY_SHARE / (page_cpu_ms(self.queue, self.page_bytes) / 1000 / self.speed)
        return min(by_cpu, self.concurrency / place_seconds(self.latency))

    @property
    def attempts(self) -> float:
        """Requests of a page, by the retry policy in force."""
        expected, reached, failures = 0.0, 1.0, 0
        while reached > 1e-9:
            expected += reached
            reached *= self.failing
            if retry_delay("http.503", {"http.503": failures}, jitter=0.5) is None:
                break
            failures += 1
        return expected

    def requests(self, pages: float) -> float:
        """Requests to a host for its pages: each machine that comes to it asks for its robots.txt, too."""
        asked = pages * self.attempts
        if not self.robots:
            return asked
        machines = self.machines
        return asked + machines * -math.expm1(asked * math.log1p(-1 / machines)) if machines > 1 else asked + 1

    @cached_property
    def sizes(self) -> HostSizes:
        return spread_over_hosts(self.urls, self.hosts, self.largest_host)

    def shard_steps(self) -> list[list[tuple[float, float]]]:
        """By shard: (hosts with work, requests of each) of every step, from all hosts to the last one.

        The largest hosts are where rendezvous hashing puts them; of the others each shard has its share.
        """
        steps = [(group.hosts, group.pages) for group in self.sizes.groups()]
        if self.shards == 1:
            return [self._with_robots(steps)]
        named = partition([f"http://h{rank}.example/" for rank in range(1, EXACT_RANKS + 1)], self.shards)
        ranks = [sorted(int(url.split("//h")[1].split(".")[0]) for url in part) for part in named]
        found = []
        for mine in ranks:
            whole = [(self._on_shard(hosts, mine), pages) for hosts, pages in steps]
            found.append(self._with_robots([step for step in whole if step[0] > 0]))
        return found

    def _on_shard(self, hosts: float, mine: list[int]) -> float:
        """How many of the largest hosts are on a shard that has these ranks of the first ones."""
        exact = sum(rank <= hosts for rank in mine)
        return exact if hosts <= EXACT_RANKS else exact + (hosts - EXACT_RANKS) / self.shards

    def _with_robots(self, steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
        found, done = [], 0.0
        for hosts, pages in _merged(steps):
            found.append((hosts, self.requests(done + pages) - self.requests(done) if done else self.requests(pages)))
            done += pages
        return found


def _merged(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Fewer steps: those whose numbers of hosts hardly differ are one, with as many pages in all."""
    found: list[tuple[float, float]] = []
    first = math.inf
    for hosts, pages in steps:
        if found and hosts > first * (1 - MERGED_SHARE):
            before, done = found[-1]
            found[-1] = ((before * done + hosts * pages) / (done + pages), done + pages)
        else:
            first = hosts
            found.append((hosts, pages))
    return found
