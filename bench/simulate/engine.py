"""Engine: a crawl as a sequence of events, with constant rates between two of them.

Hosts of a shard that have work proceed alike, as its claims take them in turn; so what is kept is how far they are and
how many have any left, not each URL. Events are: the next smallest hosts of a shard are done, a worker dies or is back,
a shard is away or back, the autoscaler evaluates. A billion URLs take seconds.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field

import msgspec
from queue_load import cores_of, most_requests, server_load
from scenario import Scenario

from shoal.core.autoscale import SECOND, ScaleLoad, ScaleMemory, decide
from shoal.core.scaling import TARGET, Workload, WorkSample, estimate_capacity
from shoal.queue.base import LEASE_SECONDS

SAMPLES = 60
MAX_CLAIMABLE = 100_000
START_SECONDS = 5.0  # of a worker that the autoscaler starts


class Moment(msgspec.Struct, frozen=True):
    """The fleet at one moment."""

    at: float
    rate: float  # requests per second
    workers: int
    hosts: float  # with work
    busiest: float  # share of its cores that the busiest shard's server is busy
    left: float  # requests


@dataclass
class Shard:
    number: int
    steps: deque[tuple[float, float]]
    left: float = 0.0  # requests of each host in this step
    hosts: float = 0.0
    rate: float = 0.0
    busy: float = 0.0
    is_up: bool = True
    open: float = 0.0

    def advance(self) -> None:
        """On to the next step, if this one is done."""
        while self.left <= 1e-9 and self.steps:
            self.hosts, self.left = self.steps.popleft()
        if self.left <= 1e-9:
            self.hosts = self.left = 0.0


@dataclass
class Simulation:
    scenario: Scenario
    seed: int = 1
    now: float = 0.0
    alive: int = 0
    done: float = 0.0  # requests
    repeated: float = 0.0  # of them, because a worker died
    deaths: int = 0
    server_seconds: float = 0.0
    worker_seconds: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)  # by shard
    decisions: list[tuple[float, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._events: list[tuple[float, int, str, int]] = []
        self._count = 0
        self._memory = ScaleMemory()
        self._samples: deque[WorkSample] = deque(maxlen=SAMPLES)
        self.shards = [Shard(n, deque(steps)) for n, steps in enumerate(self.scenario.shard_steps())]
        for shard in self.shards:
            shard.open = sum(hosts * requests for hosts, requests in shard.steps)
            shard.advance()
        self.alive = self.current = self.scenario.workers

    def run(self) -> Simulation:
        for outage in self.scenario.outages:
            self._at(outage.at, "down", outage.shard)
            self._at(outage.at + outage.seconds, "up", outage.shard)
        if self.scenario.scale:
            self._at(0.0, "scale", 0)
        self._schedule_death()
        while any(shard.hosts for shard in self.shards) and self.now < self.scenario.max_seconds:
            self._set_rates()
            until = min([self._step_end(), *(event[0] for event in self._events[:1])])
            if math.isinf(until):
                raise RuntimeError("the crawl stands still")
            self._pass(until - self.now)
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, number = heapq.heappop(self._events)
                getattr(self, f"_on_{kind}")(number)
        self._note()
        return self

    @property
    def seconds(self) -> float:
        return self.now

    @property
    def rate(self) -> float:
        return self.done / self.now if self.now else math.inf

    def _at(self, when: float, kind: str, number: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, kind, number))

    def _set_rates(self) -> None:
        """What each shard gives: what hosts allow, what its server can, and its part of what workers can do."""
        scenario = self.scenario
        up = [shard for shard in self.shards if shard.hosts and shard.is_up]
        for shard in self.shards:
            shard.rate = shard.busy = 0.0
        if not up or not self.alive:
            return
        share = self.alive / len(up)
        paced = {s.number: s.hosts / scenario.host_spacing if scenario.host_spacing else math.inf for s in up}
        able = {s.number: most_requests(scenario, share, s.hosts, self.alive) for s in up}
        wanted = {s.number: min(paced[s.number], able[s.number]) for s in up}
        total, fleet = sum(wanted.values()), self.alive * scenario.worker_rate
        part = min(1.0, fleet / total)
        for shard in up:
            shard.rate = wanted[shard.number] * part
            # Every worker asks every shard.
            is_paced = part == 1.0 and paced[shard.number] <= able[shard.number]
            workers = self.alive if is_paced else share
            load = server_load(scenario, shard.rate, workers, shard.hosts, is_paced=is_paced, fleet=self.alive)
            shard.busy = min(1.0, load.share(cores_of(scenario)))
        self._note()

    def _note(self) -> None:
        rate = sum(shard.rate for shard in self.shards)
        hosts = sum(shard.hosts for shard in self.shards)
        busiest = max(shard.busy for shard in self.shards)
        left = sum(shard.open for shard in self.shards)
        self.moments.append(Moment(self.now, rate, self.alive, hosts, busiest, left))

    def _step_end(self) -> float:
        """When the first shard comes to its next step."""
        ends = [self.now + s.left * s.hosts / s.rate for s in self.shards if s.hosts and s.rate]
        return min(ends, default=math.inf)

    def _pass(self, seconds: float) -> None:
        fleet = sum(shard.rate for shard in self.shards)
        for shard in self.shards:
            if shard.hosts and shard.rate:
                requests = shard.rate * seconds
                shard.left = max(0.0, shard.left - requests / shard.hosts)
                shard.open = max(0.0, shard.open - requests)
                self.done += requests
                self.server_seconds += shard.busy * cores_of(self.scenario) * seconds
                if shard.left <= 1e-9 * max(1.0, requests):
                    shard.left = 0.0
                    shard.advance()
                    if not shard.hosts:
                        self.ended[shard.number] = self.now + seconds
        self.now += seconds
        self.worker_seconds += self.alive * seconds
        if self.scenario.scale and seconds:
            full = fleet >= 0.99 * self.alive * self.scenario.worker_rate
            self._samples.append(WorkSample(seconds, self.alive, round(fleet * seconds), full))

    def _schedule_death(self) -> None:
        if not math.isinf(self.scenario.worker_mtbf) and self.alive:
            self._at(self.now + self._random.expovariate(self.alive / self.scenario.worker_mtbf), "death", 0)

    def _on_death(self, number: int) -> None:
        """What it had in progress is leased until its lease ends, and then fetched again."""
        if self.alive:
            self.alive -= 1
            self.deaths += 1
            rate = sum(shard.rate for shard in self.shards)
            lost = rate / (self.alive + 1) * self.scenario.latency
            self.repeated += lost
            self._at(self.now + self.scenario.restart, "start", 1)
            self._at(self.now + LEASE_SECONDS, "returned", math.ceil(lost))
        self._schedule_death()

    def _on_returned(self, requests: int) -> None:
        with_work = [shard for shard in self.shards if shard.hosts]
        for shard in with_work:
            shard.left += requests / len(with_work) / shard.hosts
            shard.open += requests / len(with_work)

    def _on_start(self, number: int) -> None:
        self.alive = min(self.current, self.alive + number)

    def _on_down(self, number: int) -> None:
        self.shards[number].is_up = False

    def _on_up(self, number: int) -> None:
        self.shards[number].is_up = True

    def _on_scale(self, number: int) -> None:
        """One evaluation of the real autoscaler."""
        scenario, limits = self.scenario, self.scenario.scale
        assert limits is not None
        self._set_rates()
        rate = sum(shard.rate for shard in self.shards)
        waiting = round(sum(shard.open for shard in self.shards))
        hosts = sum(shard.hosts for shard in self.shards)
        allowed = hosts / scenario.host_spacing if scenario.host_spacing else math.inf
        busy = min(self.alive, math.ceil(rate / scenario.worker_rate)) if scenario.worker_rate else self.alive
        work = Workload(
            workers=self.alive,
            idle=self.alive - busy,
            open=waiting,
            waiting=waiting,
            # Slots are claimed ahead: where workers take all that hosts allow, nothing is left for another.
            claimable=0 if rate >= 0.99 * allowed else min(waiting, MAX_CLAIMABLE),
            in_flight=round(rate * scenario.latency),
            rate=rate,
            failing=0.0,
            fetchable=waiting if math.isinf(allowed) else min(waiting, round(allowed * TARGET)),
            allowed=allowed,
        )
        load = ScaleLoad(
            at=round((self.now + 1) * SECOND), current=self.current, capacity=estimate_capacity(work, self._samples)
        )
        decision, self._memory = decide(load, limits, self._memory)
        if decision.wanted != self.current:
            self.decisions.append((self.now, decision.wanted, decision.reason))
        if decision.wanted > self.current:
            self._at(self.now + START_SECONDS, "start", decision.wanted - self.current)
        self.current = decision.wanted
        self.alive = min(self.alive, self.current)
        self._at(self.now + limits.interval, "scale", 0)
