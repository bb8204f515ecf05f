"""Scaling: whether more or fewer workers would help, and if not, what decides."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal.control.history import Series
from shoal.control.runs import alone, here
from shoal.view.capacity import Capacity, autoscale_document, fleet_runs, reason
from shoal.view.snapshot import RunLook, Snapshot
from shoal.view.standing import fleets
from shoal.view.suggestion import Advice, Step, host_step, run_step, worker_step
from shoal.view.words import clean, count, lane_sum, lasting, pace
from shoal.view.workers import state_of

WORTH = 20  # pages that wait for workers, below which nobody starts one
WORTH_SECONDS = 30.0  # and seconds that what is there would last
IDLE_FOR = 120.0  # seconds of history in which a worker must have been idle to be one too many
SHOWN = 5  # runs of which it is said what decides


def scaling(snapshot: Snapshot, series: Series, found: Capacity) -> Iterator[Advice]:
    yield from _unserved(snapshot)
    up = list(_up(snapshot, found))
    yield from up
    yield from _down(snapshot, series, found)
    if not up:
        yield from _will_not_help(snapshot, found)


def _unserved(snapshot: Snapshot) -> Iterator[Advice]:
    """Runs with work that nobody does."""
    for one in [it for it in snapshot.runs if it.stats.open][: 10 * SHOWN]:
        name, pages = clean(one.run.name), count(one.stats.open, "page")
        figures = {"open": one.stats.open, "workers": one.workers, "standing": one.standing}
        if one.standing == "waiting" and not here(one.run):
            alive = len(fleets(snapshot.alive))
            others = f"none of the {count(alive, 'worker')} has its code" if alive else "no worker is alive"
            yield Advice(
                "not_served",
                "act",
                f"Nobody serves {clean(one.run.scraper)}",
                f"run {name} has {pages} open and {others}",
                figures | {"alive": alive},
                run=one.run.name,
                actions=(Step(one.hint, _command(one)),),
            )
        elif one.standing == "stopped":
            yield Advice(
                "left",
                "watch",
                f"Run {name} was left before its end",
                f"{pages} of {count(one.stats.seen)} are open and nobody drives it",
                figures,
                run=one.run.name,
                actions=(Step(one.hint, _command(one)),),
            )
        elif one.standing == "paused":
            yield Advice(
                "paused",
                "watch",
                f"Run {name} is paused",
                f"{pages} wait until somebody lets it go on; more workers will not help",
                figures,
                run=one.run.name,
                actions=(run_step("let it go on", one.run.name, "resume"),),
            )


def _command(one: RunLook) -> str:
    return one.hint.partition(": ")[2]


def _up(snapshot: Snapshot, found: Capacity) -> Iterator[Advice]:
    if not found.current or found.each is None or found.desired <= found.current:
        return
    # Slots of hosts come and go: only what waits for workers themselves counts.
    if found.claimable < max(WORTH, found.in_flight) or found.needs < WORTH_SECONDS:
        return
    more = found.desired - found.current
    waiting = max(
        (one for one in fleet_runs(snapshot) if one.standing == "running"),
        key=lambda one: one.stats.claimable,
        default=None,
    )
    yield Advice(
        "scale_up",
        "act",
        f"Start {count(more, 'more worker')}",
        f"{count(found.claimable, 'page')} could be fetched now; {reason(found)}",
        autoscale_document(found),
        run=waiting.run.name if waiting else "",
        actions=(_more_workers(waiting, found),) if waiting else (),
    )


def _more_workers(one: RunLook, found: Capacity) -> Step:
    if alone(one.run):
        words = f"stop it and give its command again with --workers {found.desired}"
        command = clean(one.run.spec.get("command") or "")
        return Step(words, f"{command} --workers {found.desired}" if command else "")
    more = found.desired - found.current
    words = f"start {more} more, on any machine that reaches the queue"
    return Step(words, f"{_command(one)} --workers {more}")


def _down(snapshot: Snapshot, series: Series, found: Capacity) -> Iterator[Advice]:
    at, stale_after = snapshot.at, snapshot.stale_after
    idle = [mark for mark in fleets(snapshot.workers) if state_of(mark, at, stale_after) == "idle"]
    samples = series.last(IDLE_FOR)
    long = bool(samples) and series.now - series.samples[0].at >= IDLE_FOR * 0.9
    least = min((one.workers.get("idle", 0) for one in samples), default=0)
    spare = min(len(idle), least, found.current - found.desired)
    if not long or spare < 1:
        return
    work = f"{count(found.open, 'page')} open" if found.open else "nothing open"
    yield Advice(
        "scale_down",
        "watch",
        f"{count(spare, 'worker')} of {found.current} can go",
        f"{count(least, 'worker')} had nothing to do for {lasting(IDLE_FOR)}, with {work};"
        f" {count(found.desired)} would do",
        autoscale_document(found) | {"idle_throughout": least},
        worker=idle[0].id if spare == 1 else "",
        actions=tuple(worker_step("let it end", mark.id, "drain") for mark in idle[:spare][:SHOWN]),
    )


def _will_not_help(snapshot: Snapshot, found: Capacity) -> Iterator[Advice]:
    """What decides where workers do not: one host, the pace of all of them."""
    going = [it for it in fleet_runs(snapshot) if it.standing == "running" and it.workers and it.stats.open]
    for one in going[:SHOWN]:
        if one.ahead.lane:
            yield _host_decides(one, found)
        elif one.stats.ready - one.stats.delayed > one.stats.claimable and (words := _pace(one)):
            yield _pace_decides(one, words, found)


def _pace(one: RunLook) -> str:
    return next((words for kind, words in one.limits if kind == "pace"), "")


def _host_decides(one: RunLook, found: Capacity) -> Advice:
    ahead = one.ahead
    others = f"; everything else is done in {lasting(ahead.others)}" if ahead.others else ""
    rate = 2 / ahead.lane_spacing if ahead.lane_spacing else 0.0
    steps = (
        host_step(
            "allow it more, if its owner agrees",
            ahead.lane,
            "pace",
            f"shoal hosts set {clean(ahead.lane)} --rate {pace(rate)}",
            {"rate": round(rate, 3)},
        ),
    )
    return Advice(
        "host_decides",
        "watch",
        f"More workers will not help run {clean(one.run.name)}: {clean(ahead.lane)} decides",
        f"{lane_sum(ahead)}{others}",
        {
            "seconds_left": None if ahead.seconds is None else round(ahead.seconds, 1),
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


def _pace_decides(one: RunLook, words: str, found: Capacity) -> Advice:
    return Advice(
        "pace_decides",
        "watch",
        f"More workers will not help run {clean(one.run.name)}: its hosts are at their pace",
        words,
        {
            "ready": one.stats.ready,
            "claimable": one.stats.claimable,
            "pages_per_s": round(one.rate, 2),
            "pages_per_s_allowed": None if math.isinf(found.allowed) else round(found.allowed, 2),
            "workers": one.workers,
        },
        run=one.run.name,
        actions=(Step("allow its hosts more, if their owners agree", "shoal hosts set HOST --rate N"),),
    )
