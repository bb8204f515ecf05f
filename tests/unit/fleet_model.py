"""A fleet on a virtual clock: work that comes, hosts that allow so much, workers that take a while to start."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from shoal.core.autoscale import SECOND, Decision, ScaleLimits, ScaleLoad, ScaleMemory, decide
from shoal.core.scaling import Workload, WorkSample, estimate_capacity

TARGET = 60.0  # seconds in which what hosts allow should be fetched
START_SECONDS = 5
SAMPLES = 60


@dataclass
class FleetModel:
    limits: ScaleLimits
    arrivals: Callable[[int], float]  # pages that come in this second
    allowed: Callable[[int], float] = lambda second: math.inf  # pages per second that hosts allow
    share_failing: Callable[[int], float] = lambda second: 0.0  # attempts that are retried later
    per_worker: float = 10.0  # pages per second
    current: int = 0
    ready: float = 0.0
    delayed: deque[tuple[int, float]] = field(default_factory=deque)
    started: dict[int, int] = field(default_factory=dict)  # second: workers that answer from then on
    decisions: list[Decision] = field(default_factory=list)
    memory: ScaleMemory = field(default_factory=ScaleMemory)
    samples: deque[WorkSample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    work_done: float = 0.0
    alive: int = 0
    rate: float = 0.0

    def run(self, seconds: int) -> None:
        for second in range(seconds):
            self._work(second)
            if second % self.limits.interval == 0:
                self._evaluate(second)

    def _work(self, second: int) -> None:
        self.alive = min(self.current, self.alive + self.started.pop(second, 0))
        self.ready += self.arrivals(second)
        while self.delayed and self.delayed[0][0] <= second:
            self.ready += self.delayed.popleft()[1]
        can = min(self.alive * self.per_worker, self.allowed(second))
        tried = min(self.ready, can)
        failing = tried * self.share_failing(second)
        self.ready -= tried
        if failing:
            self.delayed.append((second + 30, failing))
        self.work_done += tried - failing
        self.rate = tried
        full = self.ready > 0 and can == self.alive * self.per_worker
        self.samples.append(WorkSample(1.0, self.alive, round(tried), full))

    def _evaluate(self, second: int) -> None:
        allowed = self.allowed(second)
        waiting = round(self.ready)
        claimable = waiting if math.isinf(allowed) else min(waiting, math.ceil(allowed))
        in_flight = round(self.rate / 2)
        can = self.alive * self.per_worker
        work = Workload(
            workers=self.alive,
            idle=self.alive - min(self.alive, math.ceil(self.rate / self.per_worker)) if can else 0,
            open=waiting + in_flight + round(sum(pages for _, pages in self.delayed)),
            waiting=waiting,
            claimable=claimable,
            in_flight=in_flight,
            rate=self.rate,
            failing=0.0,
            fetchable=waiting if math.isinf(allowed) else min(waiting, round(allowed * TARGET)),
            allowed=allowed,
        )
        capacity = estimate_capacity(work, self.samples, TARGET)
        load = ScaleLoad(at=(second + 1) * SECOND, current=self.current, capacity=capacity)
        decision, self.memory = decide(load, self.limits, self.memory)
        self.decisions.append(decision)
        if decision.wanted > self.current:
            self.started[second + START_SECONDS] = decision.wanted - self.current
        self.current = decision.wanted
        self.alive = min(self.alive, self.current)

    @property
    def sizes(self) -> list[int]:
        return [decision.wanted for decision in self.decisions]

    def turns(self) -> int:
        """How often the fleet changed its direction."""
        moves = [b - a for a, b in pairwise(self.sizes) if b != a]
        return sum((a > 0) != (b > 0) for a, b in pairwise(moves))
