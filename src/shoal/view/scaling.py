"""Scaling: whether more or fewer workers would help, and if not, what decides."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal.control.history import Series
from shoal.core.scaling import Capacity
from shoal.runs.identity import is_server_run, is_single_process
from shoal.view.capacity import autoscale_document, explain_capacity, fleet_runs
from shoal.view.formatting import ago, clean, count, format_duration, format_host_forecast, format_rate
from shoal.view.recommendation import Recommendation, RecommendedStep, host_step, run_step, worker_step
from shoal.view.run_state import fleet_workers
from shoal.view.snapshot import RunSnapshot, Snapshot
from shoal.view.workers import worker_state

MIN_CLAIMABLE = 20  # pages that wait for workers, below which nobody starts one
MIN_BACKLOG_SECONDS = 30.0  # and seconds that what is there would last
IDLE_FOR = 120.0  # seconds of history in which a worker must have been idle to be one too many
MAX_SHOWN = 5  # runs of which it is said what decides


def scaling_recommendations(snapshot: Snapshot, series: Series, found: Capacity) -> Iterator[Recommendation]:
    yield from _unserved_runs(snapshot)
    yield from _scaler_problems(snapshot)
    # Where a scaler acts, it starts and stops workers itself.
    up = [] if snapshot.scale.is_acting else list(_scale_up(snapshot, found))
    yield from up
    if not snapshot.scale.is_acting:
        yield from _scale_down(snapshot, series, found)
    if not up:
        yield from _bottlenecks(snapshot, found)


def _unserved_runs(snapshot: Snapshot) -> Iterator[Recommendation]:
    """Runs with work that nobody does."""
    for one in [it for it in snapshot.runs if it.stats.open][: 10 * MAX_SHOWN]:
        name, pages = clean(one.run.name), count(one.stats.open, "page")
        figures = {"open": one.stats.open, "workers": one.workers, "display_state": one.display_state}
        if one.display_state == "waiting" and not is_server_run(one.run):
            alive = len(fleet_workers(snapshot.alive))
            others = f"none of the {count(alive, 'worker')} has its code" if alive else "no worker is alive"
            yield Recommendation(
                "not_served",
                "act",
                f'No worker can run "{clean(one.run.scraper)}"',
                f"run {name} has {pages} open and {others}",
                figures | {"alive": alive},
                run=one.run.name,
                actions=(RecommendedStep(one.hint, _command(one)),),
            )
        elif one.display_state == "stopped":
            yield Recommendation(
                "abandoned",
                "watch",
                f"Run {name} was abandoned",
                f"{pages} of {count(one.stats.seen)} are open and no process works on it",
                figures,
                run=one.run.name,
                actions=(RecommendedStep(one.hint, _command(one)),),
            )
        elif one.display_state == "paused":
            yield Recommendation(
                "paused",
                "watch",
                f"Run {name} is paused",
                f"{pages} waiting until it is resumed; more workers will not help",
                figures,
                run=one.run.name,
                actions=(run_step("resume it", one.run.name, "resume"),),
            )


def _scaler_problems(snapshot: Snapshot) -> Iterator[Recommendation]:
    """What keeps the scaler from having as many workers as it takes."""
    status, state = snapshot.scale, snapshot.scale.state
    if state is not None and status.is_silent:
        yield Recommendation(
            "scaler_silent",
            "act",
            "The scaler has died, or hangs",
            f"it last looked at the queue {ago(state.at, status.at)}, on {clean(state.host)}, and did not say that it"
            f" stops; every {format_duration(state.limits.interval)} was agreed",
            {"driver": state.driver, "host": state.host, "silent_s": round(status.silent_seconds or 0.0)},
            actions=(RecommendedStep("look at its process, and start it again", "shoal scale status"),),
        )
    if state is None or not status.is_acting:
        return
    decision = state.decision
    figures = {
        "driver": state.driver,
        "workers": state.replicas.count if state.replicas else None,
        "wanted": decision.wanted if decision else None,
        "needed": decision.needed if decision else None,
        "max_workers": state.limits.maximum,
    }
    if state.problem:
        yield Recommendation(
            "scaler_failing",
            "act",
            "The scaler cannot do what it decides",
            clean(state.problem),
            figures,
            actions=(RecommendedStep(clean(state.hint) or "see what it says", "shoal scale status"),),
        )
    elif decision is not None and decision.needed > state.limits.maximum <= decision.wanted:
        yield Recommendation(
            "scaler_at_maximum",
            "watch",
            f"The scaler may start {count(state.limits.maximum, 'worker')}, and {count(decision.needed)} are needed",
            clean(decision.reason),
            figures,
            actions=(RecommendedStep("allow more", f"shoal scale auto --max-workers {decision.needed}"),),
        )


def _command(one: RunSnapshot) -> str:
    return one.hint.partition(": ")[2]


def _scale_up(snapshot: Snapshot, found: Capacity) -> Iterator[Recommendation]:
    if not found.work.workers or found.rate_per_worker is None or found.desired <= found.work.workers:
        return
    # Slots of hosts come and go: only what waits for workers themselves counts.
    enough = found.work.claimable >= max(MIN_CLAIMABLE, found.work.in_flight)
    if not enough or found.drain_seconds < MIN_BACKLOG_SECONDS:
        return
    more = found.desired - found.work.workers
    waiting = max(
        (one for one in fleet_runs(snapshot) if one.display_state == "running"),
        key=lambda one: one.stats.claimable,
        default=None,
    )
    yield Recommendation(
        "scale_up",
        "act",
        f"Start {count(more, 'more worker')}",
        f"{count(found.work.claimable, 'page')} could be fetched now; {explain_capacity(found)}",
        autoscale_document(found),
        run=waiting.run.name if waiting else "",
        actions=(_add_workers_step(waiting, found),) if waiting else (),
    )


def _add_workers_step(one: RunSnapshot, found: Capacity) -> RecommendedStep:
    if is_single_process(one.run):
        words = f"stop it and run its command again with --workers {found.desired}"
        command = clean(one.run.spec.get("command") or "")
        return RecommendedStep(words, f"{command} --workers {found.desired}" if command else "")
    more = found.desired - found.work.workers
    words = f"start {more} more, on any machine that reaches the queue"
    return RecommendedStep(words, f"{_command(one)} --workers {more}")


def _scale_down(snapshot: Snapshot, series: Series, found: Capacity) -> Iterator[Recommendation]:
    at, stale_after = snapshot.at, snapshot.stale_after
    idle = [it for it in fleet_workers(snapshot.workers) if worker_state(it, at, stale_after) == "idle"]
    samples = series.last(IDLE_FOR)
    long = bool(samples) and series.now - series.samples[0].at >= IDLE_FOR * 0.9
    least = min((one.workers.get("idle", 0) for one in samples), default=0)
    spare = min(len(idle), least, found.work.workers - found.desired)
    if not long or spare < 1:
        return
    work = f"{count(found.work.open, 'page')} open" if found.work.open else "nothing open"
    yield Recommendation(
        "scale_down",
        "watch",
        f"{count(spare, 'worker')} of {found.work.workers} can go",
        f"{count(least, 'worker')} idle for {format_duration(IDLE_FOR)}, with {work}; {count(found.desired)} would do",
        autoscale_document(found) | {"idle_throughout": least},
        worker=idle[0].id if spare == 1 else "",
        actions=tuple(worker_step("drain it", status.id, "drain") for status in idle[:spare][:MAX_SHOWN]),
    )


def _bottlenecks(snapshot: Snapshot, found: Capacity) -> Iterator[Recommendation]:
    """What decides where workers do not: one host, the pace of all of them."""
    going = [it for it in fleet_runs(snapshot) if it.display_state == "running" and it.workers and it.stats.open]
    for one in going[:MAX_SHOWN]:
        if one.forecast.lane:
            yield _host_bottleneck(one)
        elif one.stats.ready - one.stats.delayed > one.stats.claimable and (words := _pace_limit(one)):
            yield _pace_bottleneck(one, words, found)


def _pace_limit(one: RunSnapshot) -> str:
    return next((words for kind, words in one.limits if kind == "pace"), "")


def _host_bottleneck(one: RunSnapshot) -> Recommendation:
    ahead = one.forecast
    others = f"; everything else is done in {format_duration(ahead.others)}" if ahead.others else ""
    rate = 2 / ahead.lane_spacing if ahead.lane_spacing else 0.0
    steps = (
        host_step(
            "raise its limit, if its owner agrees",
            ahead.lane,
            "pace",
            f"shoal hosts set {clean(ahead.lane)} --rate {format_rate(rate)}",
            {"rate": round(rate, 3)},
        ),
    )
    return Recommendation(
        "host_bottleneck",
        "watch",
        f"More workers will not help run {clean(one.run.name)}: {clean(ahead.lane)} is the bottleneck",
        f"{format_host_forecast(ahead)}{others}",
        {
            "seconds_left": None if ahead.seconds is None else round(ahead.seconds, 1),
            "at_least": ahead.at_least,
            "left_on_host": ahead.lane_left,
            "spacing": ahead.lane_spacing,
            "held_seconds": round(ahead.lane_held, 1),
            "others_seconds": ahead.others,
            "workers": one.workers,
            "pages_per_s": round(one.rate, 2),
        },
        run=one.run.name,
        host=ahead.lane,
        actions=steps if rate else (),
    )


def _pace_bottleneck(one: RunSnapshot, words: str, found: Capacity) -> Recommendation:
    return Recommendation(
        "rate_limited",
        "watch",
        f"More workers will not help run {clean(one.run.name)}: its hosts are at their rate limits",
        words,
        {
            "ready": one.stats.ready,
            "claimable": one.stats.claimable,
            "pages_per_s": round(one.rate, 2),
            "pages_per_s_allowed": None if math.isinf(found.work.allowed) else round(found.work.allowed, 2),
            "workers": one.workers,
        },
        run=one.run.name,
        actions=(RecommendedStep("raise their limits, if their owners agree", "shoal hosts set HOST --rate N"),),
    )
