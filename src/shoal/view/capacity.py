"""Capacity: how much work hosts allow, how much a worker does, and how many workers that needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.control.history import Series
from shoal.control.runs import here
from shoal.control.sample import Sample
from shoal.core.forecast import held_seconds
from shoal.core.lane import LaneState
from shoal.view.snapshot import CLOSE_LANES, RunLook, Snapshot
from shoal.view.standing import fleets
from shoal.view.words import count, lasting, pace
from shoal.view.workers import by_state

TARGET = 600.0  # seconds in which what can be fetched should be
LATELY = 600.0  # seconds of history that tell how fast workers are
AT_WORK = ("working", "idle")  # states of workers that count
GUESS = 10.0  # pages per second of a worker of which nothing is known yet
MOST_WORKERS = 1_000
NEARLY = 0.9  # of what hosts allow


class Capacity(msgspec.Struct, frozen=True):
    """What is there to do, and who is there to do it."""

    current: int  # workers
    idle: int
    desired: int
    open: int  # pages of runs that are not paused
    claimable: int  # could be handed out this second
    in_flight: int
    fetchable: int  # what hosts allow within `target`
    held: int  # what waits and is not among these
    allowed: float  # pages per second that hosts with work allow together; inf: any
    each: float | None  # pages per second that a worker does; None: nobody knows yet
    rate: float  # pages per second lately
    target: float
    used: bool = False  # what hosts allow is being fetched already

    @property
    def needs(self) -> float:
        """Seconds that the workers there are need for what is fetchable."""
        return self.fetchable / (self.current * (self.each or GUESS)) if self.current else math.inf


def capacity(snapshot: Snapshot, series: Series, target: float = TARGET) -> Capacity:
    states = by_state(fleets(snapshot.workers), snapshot.at, snapshot.stale_after)
    current, idle = sum(states[state] for state in AT_WORK), states["idle"]
    running = fleet_runs(snapshot)
    open_ = sum(one.stats.open for one in running)
    waiting = sum(one.stats.ready - one.stats.delayed for one in running)
    claimable = sum(one.stats.claimable for one in running)
    in_flight = sum(one.stats.leased for one in running)
    fetchable, allowed = _allowed(snapshot, series, target)
    others = [one for one in snapshot.runs if here(one.run)]
    rate = max(0.0, snapshot.rate - sum(one.rate for one in others))
    failing = max(0.0, snapshot.failing - sum(one.failing for one in others))
    each = per_worker((rate + failing) / current if current else 0.0, series, claimable > in_flight)
    # Workers that fetch all that hosts allow may look slow, each of them; more would only share it.
    used = bool(current) and NEARLY * allowed <= rate + failing
    desired = 0
    if open_:
        wanted = math.ceil(fetchable / ((each or GUESS) * target))
        desired = min(MOST_WORKERS, max(1, wanted))
        if each is None and current:
            desired = current  # of workers that have done nothing yet nobody knows how many it takes
        if used:
            desired = min(desired, current)
    return Capacity(
        current=current,
        idle=idle,
        desired=desired,
        open=open_,
        claimable=claimable,
        in_flight=in_flight,
        fetchable=fetchable,
        held=max(0, waiting - fetchable),
        allowed=allowed,
        each=each,
        rate=rate,
        target=target,
        used=used,
    )


def fleet_runs(snapshot: Snapshot) -> list[RunLook]:
    """Runs that go on and that more workers of the fleet would help.

    What control rooms do themselves needs none. A run that waits although there are workers waits for others
    than these: more of the same would not take it either.
    """
    idle = {"stopped", "waiting"} if fleets(snapshot.alive) else {"stopped"}
    return [
        one
        for one in snapshot.runs
        if one.run.state == "running" and not here(one.run) and one.standing not in idle
    ]


def per_worker(seen: float, series: Series, busy: bool) -> float | None:
    """Pages per second of one worker that has enough to do: only then does it show what it can.

    seen: what each does right now.
    """
    known = [one for one in series.last(LATELY) if one.span and _at_work(one) and _tries(one)]
    full = [one for one in known if one.ready - one.held > one.leased]
    if full:
        return _tries_sum(full) / sum(one.span * _at_work(one) for one in full)
    if busy and seen:
        return seen
    best = max((_tries(one) / one.span / _at_work(one) for one in known), default=0.0)
    return max(best, seen) or None


def _at_work(one: Sample) -> int:
    return sum(one.workers.get(state, 0) for state in AT_WORK)


def _tries(one: Sample) -> int:
    """Of workers of the fleet, as those are that are counted."""
    return max(0, one.done + one.retries + one.dead - one.own)


def _tries_sum(samples: Sequence[Sample]) -> int:
    return sum(_tries(one) for one in samples)


def answering(series: Series) -> float:
    """Seconds that an attempt took lately; 0: nobody knows."""
    samples = series.last(LATELY)
    number = sum(sum(one.took) for one in samples)
    return sum(one.took_sum for one in samples) / number if number else 0.0


def _allowed(snapshot: Snapshot, series: Series, target: float) -> tuple[int, float]:
    """(pages that may be fetched within the target, pages per second that hosts allow together).

    What is under way counts as fetched by those who have it.
    """
    took = answering(series)
    lanes: dict[str, LaneState] = {}
    rest = 0  # on hosts that were not looked at
    for one in fleet_runs(snapshot):
        own = snapshot.lanes.get(one.run.id, ())
        for lane in own:
            known = lanes.get(lane.name)
            ready = lane.ready + (known.ready if known else 0)
            lanes[lane.name] = msgspec.structs.replace(lane, ready=ready)
        if len(own) >= CLOSE_LANES or not own:
            rest += max(0, one.stats.ready - one.stats.delayed - sum(lane.ready for lane in own))
    pages, together = 0.0, 0.0
    for lane in lanes.values():
        if not lane.ready:
            continue
        rate = pace_of(lane, took)
        seconds = 0.0 if lane.for_good(snapshot.at) else max(0.0, target - held_seconds(lane, snapshot.at))
        if seconds:
            pages += lane.ready if math.isinf(rate) else min(lane.ready, rate * seconds)
            together += rate
    if rest and lanes:
        # Hosts that come later have less work each: they are taken for as quick as those looked at.
        share = pages / max(1, sum(lane.ready for lane in lanes.values()))
        pages += rest * share
        together += together * rest / max(1, sum(lane.ready for lane in lanes.values()))
    else:
        pages += rest
        together = math.inf if rest else together
    return int(pages), together


def pace_of(lane: LaneState, took: float) -> float:
    """Pages per second that a host allows; inf: as many as anybody can fetch."""
    spaced = 1 / lane.spacing if lane.spacing else math.inf
    at_once = lane.max_in_flight / took if lane.max_in_flight and took else math.inf
    return min(spaced, at_once)


def autoscale_document(found: Capacity) -> dict[str, Any]:
    """What an autoscaler reads; the reason is for people."""
    return {
        "desired_workers": found.desired,
        "current_workers": found.current,
        "idle_workers": found.idle,
        "fetchable_in_target": found.fetchable,
        "held_by_site_limits": found.held,
        "claimable": found.claimable,
        "in_flight": found.in_flight,
        "pages_per_s": round(found.rate, 2),
        "pages_per_s_per_worker": round(found.each, 2) if found.each is not None else None,
        "pages_per_s_allowed": None if math.isinf(found.allowed) else round(found.allowed, 2),
        "target_drain_s": round(found.target),
        "reason": reason(found),
    }


def reason(found: Capacity) -> str:
    """Why so many workers."""
    target = lasting(found.target)
    if not found.open:
        return "nothing is open in runs that workers could go on with"
    fetchable = count(found.fetchable, "page")
    if found.each is None and found.current:
        return f"hosts allow {fetchable} in the next {target}; nobody knows yet how quick a worker is"
    if not found.current:
        return f"hosts allow {fetchable} in the next {target}, and nobody is at work"
    if found.used and found.desired == found.current:
        return f"hosts allow {pace(found.allowed)} pages/s together, and {pace(found.rate)} are fetched"
    now = f"{count(found.current, 'worker')} {'needs' if found.current == 1 else 'need'}"
    needs = f"{now} {lasting(found.needs)} at {pace(found.each or GUESS)} pages/s each"
    if found.desired == found.current:
        return f"hosts allow {fetchable} in the next {target}; {needs}"
    then = lasting(found.fetchable / (found.desired * (found.each or GUESS)))
    return f"hosts allow {fetchable} in the next {target}; {needs}, {count(found.desired)} would need {then}"
