"""Capacity: the workload of a snapshot for core.scaling, and its decision in words."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from shoal.control.history import Series
from shoal.core.lane import LaneState
from shoal.core.scaling import ASSUMED_RATE, TARGET, Capacity, Workload, WorkSample, estimate_capacity, host_allowance
from shoal.runs.identity import is_server_run
from shoal.view.formatting import count, format_duration, format_rate
from shoal.view.run_state import fleet_workers
from shoal.view.snapshot import DETAILED_LANES, RunSnapshot, Snapshot
from shoal.view.workers import count_by_state

RECENT_SECONDS = 600.0  # seconds of history that tell how fast workers are
ACTIVE_STATES = ("working", "idle")  # states of workers that count


def capacity_of(snapshot: Snapshot, series: Series, target: float = TARGET) -> Capacity:
    states = count_by_state(fleet_workers(snapshot.workers), snapshot.at, snapshot.stale_after)
    running = fleet_runs(snapshot)
    others = [one for one in snapshot.runs if is_server_run(one.run)]
    fetchable, allowed = _host_allowance(snapshot, running, series, target)
    work = Workload(
        workers=sum(states[state] for state in ACTIVE_STATES),
        idle=states["idle"],
        open=sum(one.stats.open for one in running),
        waiting=sum(one.stats.ready - one.stats.delayed for one in running),
        claimable=sum(one.stats.claimable for one in running),
        in_flight=sum(one.stats.leased for one in running),
        rate=max(0.0, snapshot.rate - sum(one.rate for one in others)),
        failing=max(0.0, snapshot.failing - sum(one.failing for one in others)),
        fetchable=fetchable,
        allowed=allowed,
    )
    return estimate_capacity(work, work_samples(series), target)


def work_samples(series: Series) -> list[WorkSample]:
    """What workers of the fleet did lately, without what the server did itself."""
    return [
        WorkSample(
            seconds=one.span,
            workers=sum(one.workers.get(state, 0) for state in ACTIVE_STATES),
            attempts=max(0, one.done + one.retries + one.dead - one.own),
            is_full=one.ready - one.held > one.leased,
        )
        for one in series.last(RECENT_SECONDS)
    ]


def fleet_runs(snapshot: Snapshot) -> list[RunSnapshot]:
    """Runs in progress that more workers of the fleet would help.

    What servers do themselves needs none. A run that waits although there are workers waits for others
    than these: more of the same would not take it either.
    """
    idle = {"stopped", "waiting"} if fleet_workers(snapshot.alive) else {"stopped"}
    return [
        one
        for one in snapshot.runs
        if one.run.state == "running" and not is_server_run(one.run) and one.display_state not in idle
    ]


def _host_allowance(snapshot: Snapshot, running: list[RunSnapshot], series: Series, target: float) -> tuple[int, float]:
    lanes: dict[str, LaneState] = {}
    unseen = 0
    for one in running:
        own = snapshot.lanes.get(one.run.id, ())
        for lane in own:
            known = lanes.get(lane.name)
            ready = lane.ready + (known.ready if known else 0)
            lanes[lane.name] = msgspec.structs.replace(lane, ready=ready)
        if len(own) >= DETAILED_LANES or not own:
            unseen += max(0, one.stats.ready - one.stats.delayed - sum(lane.ready for lane in own))
    took = mean_attempt_seconds(series)
    return host_allowance(lanes.values(), unseen, attempt_seconds=took, target=target, now=snapshot.at)


def mean_attempt_seconds(series: Series) -> float:
    """Seconds that an attempt took lately; 0: nobody knows."""
    samples = series.last(RECENT_SECONDS)
    number = sum(sum(one.took) for one in samples)
    return sum(one.took_sum for one in samples) / number if number else 0.0


def error_rate(series: Series) -> float | None:
    """Which share of the last attempts failed, from 0 to 1; None: there was none."""
    samples = series.last(RECENT_SECONDS)
    failed = sum(one.retries + one.dead for one in samples)
    attempts = failed + sum(one.done for one in samples)
    return round(failed / attempts, 4) if attempts else None


def autoscale_document(found: Capacity) -> dict[str, Any]:
    """What an autoscaler reads; the reason is for people."""
    work, each = found.work, found.rate_per_worker
    return {
        "desired_workers": found.desired,
        "current_workers": work.workers,
        "idle_workers": work.idle,
        "fetchable_in_target": work.fetchable,
        "held_by_site_limits": found.held,
        "claimable": work.claimable,
        "in_flight": work.in_flight,
        "pages_per_s": round(work.rate, 2),
        "pages_per_s_per_worker": None if each is None else round(each, 2),
        "pages_per_s_allowed": None if math.isinf(work.allowed) else round(work.allowed, 2),
        "target_drain_s": round(found.target),
        "insufficient_data": found.is_unknown,
        "reason": explain_capacity(found),
    }


def explain_capacity(found: Capacity) -> str:
    """Why so many workers."""
    work, target, rate = found.work, format_duration(found.target), found.rate_per_worker or ASSUMED_RATE
    if not work.open:
        return "no run that workers can serve has open tasks"
    allowed = f"hosts allow {count(work.fetchable, 'page')} in the next {target}"
    if found.rate_per_worker is None and work.workers:
        return f"{allowed}; the speed of a worker is not known yet"
    if not work.workers:
        return f"{allowed}, and no worker is running"
    if found.is_saturated and found.desired == work.workers:
        allowed, fetched = format_rate(work.allowed), format_rate(work.rate)
        return f"hosts allow {allowed} pages/s together, and {fetched} are fetched"
    verb = "needs" if work.workers == 1 else "need"
    now = f"{count(work.workers, 'worker')} {verb} {format_duration(found.drain_seconds)}"
    needs = f"{allowed}; {now} at {format_rate(rate)} pages/s each"
    if found.desired == work.workers:
        return needs
    return f"{needs}, {count(found.desired)} would need {format_duration(found.seconds_with(found.desired))}"
