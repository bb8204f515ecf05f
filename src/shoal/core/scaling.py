"""Scaling: how many workers the open work needs, from what hosts allow and what a worker does. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from shoal.core.forecast import held_seconds
from shoal.core.lane import LaneState

TARGET = 600.0  # seconds in which what can be fetched should be
ASSUMED_RATE = 10.0  # pages per second of a worker of which nothing is known yet
MAX_WORKERS = 1_000
SATURATED_SHARE = 0.9  # of what hosts allow


class WorkSample(msgspec.Struct, frozen=True):
    """What the workers of the fleet did in a stretch of time."""

    seconds: float
    workers: int
    attempts: int
    is_full: bool  # they had more to do than they could


class Workload(msgspec.Struct, frozen=True):
    """What is there to do in runs that more workers would help, and who is there to do it."""

    workers: int
    idle: int
    open: int  # pages
    waiting: int  # of these, not leased and not delayed
    claimable: int  # could be handed out this second
    in_flight: int
    rate: float  # pages per second lately
    failing: float  # failed attempts per second lately
    fetchable: int  # what hosts allow within the target
    allowed: float  # pages per second that hosts with work allow together; inf: any


class Capacity(msgspec.Struct, frozen=True):
    """How many workers there should be, and why."""

    work: Workload
    desired: int
    rate_per_worker: float | None  # pages per second that a worker does; None: nobody knows yet
    target: float
    is_saturated: bool = False  # what hosts allow is being fetched already

    @property
    def is_unknown(self) -> bool:
        """Whether there is work, but too little was done to say how many it takes."""
        return bool(self.work.open and self.work.workers) and self.rate_per_worker is None

    @property
    def held(self) -> int:
        """What waits and cannot be fetched within the target."""
        return max(0, self.work.waiting - self.work.fetchable)

    @property
    def drain_seconds(self) -> float:
        """Seconds that the present workers need for what is fetchable."""
        return self.seconds_with(self.work.workers)

    def seconds_with(self, workers: int) -> float:
        rate = workers * (self.rate_per_worker or ASSUMED_RATE)
        return self.work.fetchable / rate if rate else math.inf


def estimate_capacity(work: Workload, samples: Sequence[WorkSample], target: float = TARGET) -> Capacity:
    attempts = work.rate + work.failing
    seen = attempts / work.workers if work.workers else 0.0
    each = estimate_worker_rate(seen, samples, work.claimable > work.in_flight)
    # Workers that fetch all that hosts allow may look slow, each of them; more would only share it.
    is_saturated = bool(work.workers) and SATURATED_SHARE * work.allowed <= attempts
    desired = 0
    if work.open:
        desired = min(MAX_WORKERS, max(1, math.ceil(work.fetchable / ((each or ASSUMED_RATE) * target))))
        if each is None and work.workers:
            desired = work.workers  # of workers that have done nothing yet nobody knows how many it takes
        if is_saturated:
            desired = min(desired, work.workers)
    return Capacity(work, desired, each, target, is_saturated)


def estimate_worker_rate(seen: float, samples: Sequence[WorkSample], busy: bool) -> float | None:
    """Pages per second of one worker that has enough to do: only then does it show what it can.

    seen: what each does right now.
    """
    known = [one for one in samples if one.seconds and one.workers and one.attempts]
    full = [one for one in known if one.is_full]
    if full:
        return sum(one.attempts for one in full) / sum(one.seconds * one.workers for one in full)
    if busy and seen:
        return seen
    best = max((one.attempts / one.seconds / one.workers for one in known), default=0.0)
    return max(best, seen) or None


def host_allowance(
    lanes: Iterable[LaneState], unseen: int, *, attempt_seconds: float, target: float, now: int
) -> tuple[int, float]:
    """(pages that may be fetched within the target, pages per second that hosts allow together).

    unseen: pages that wait on hosts that are not among these. What is leased counts as fetched.
    """
    pages, together, ready = 0.0, 0.0, 0
    for lane in lanes:
        ready += lane.ready
        if not lane.ready or lane.is_held_indefinitely(now):
            continue
        rate, seconds = allowed_rate(lane, attempt_seconds), target - held_seconds(lane, now)
        if seconds > 0:
            pages += lane.ready if math.isinf(rate) else min(lane.ready, rate * seconds)
            together += rate
    if unseen and ready:
        # Hosts that come later have less work each: they are taken for as quick as those looked at.
        pages, together = pages * (1 + unseen / ready), together * (1 + unseen / ready)
    elif unseen:
        pages, together = float(unseen), math.inf
    return int(pages), together


def allowed_rate(lane: LaneState, attempt_seconds: float) -> float:
    """Pages per second that a host allows; inf: as many as anybody can fetch."""
    spaced = 1 / lane.spacing if lane.spacing else math.inf
    at_once = lane.max_in_flight / attempt_seconds if lane.max_in_flight and attempt_seconds else math.inf
    return min(spaced, at_once)
