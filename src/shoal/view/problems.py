"""Problems: failing hosts, stalled runs, silent workers, and dead letters with one cause."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from shoal.control.history import Series
from shoal.control.history_sample import Sample
from shoal.core.counters import CODE_ERRORS, decode
from shoal.core.lane import LaneState, WorkerStatus
from shoal.queue.base import MAX_OUTBOX_PER_RUN, DeadLetterGroup
from shoal.runs.missing_capabilities import find_missing
from shoal.runs.progress import describe_cause
from shoal.view.blocks import blocked_pages, noticed_pages
from shoal.view.common_causes import common_causes
from shoal.view.formatting import ago, clean, count, describe_reason, first_and_more, format_duration, local_time, size
from shoal.view.hosts import hold_reason
from shoal.view.recommendation import Recommendation, RecommendedStep, host_step
from shoal.view.run_state import workers_for_run
from shoal.view.sessions import waits_for
from shoal.view.snapshot import Snapshot
from shoal.view.status import code_version_warnings
from shoal.view.workers import mixed_code_warnings, worker_state

RECENT_SECONDS = 600.0  # seconds
FAILURE_SHARE, MIN_FAILURES = 0.2, 5  # a host fails that fails so large a share, and so often
STALLED_AFTER = 180.0  # seconds without any progress
MEMORY_SHARE = 0.85  # of the memory a worker may have
MAX_LAG = 1.0  # seconds
OUTBOX_SHARE = 0.5  # of the records that may wait for the store, or of the entries that may wait in an outbox
MAX_SHOWN = 5


def find_problems(
    snapshot: Snapshot, series: Series, dead: Mapping[str, Sequence[DeadLetterGroup]]
) -> Iterator[Recommendation]:
    yield from _failing_hosts(snapshot, series)
    yield from blocked_pages(snapshot, series)
    yield from noticed_pages(snapshot, series)
    yield from _stalled_runs(snapshot, series)
    yield from _missing_capabilities(snapshot)
    yield from _parked_hosts(snapshot)
    yield from _waiting_sessions(snapshot)
    yield from _stale_workers(snapshot)
    yield from _code_differences(snapshot)
    yield from _waiting_records(snapshot)
    yield from _full_outboxes(snapshot)
    yield from _shards_away(snapshot)
    yield from common_causes(snapshot, dead)
    yield from _memory_pressure(snapshot, series)


def _failing_hosts(snapshot: Snapshot, series: Series) -> Iterator[Recommendation]:
    samples = series.last(RECENT_SECONDS)
    done, failed = _by_host(samples)
    all_failed = sum(failed.values())
    classes = Counter[str]()
    for one in samples:
        classes.update({name: number for name, number in one.failed.items() if name not in CODE_ERRORS})
    parked = {lane.name for lane in snapshot.parked}
    for host, number in failed.most_common(MAX_SHOWN):
        tries = number + done[host]
        if number < MIN_FAILURES or number / tries < FAILURE_SHARE:
            continue
        share = round(100 * number / tries)
        since = _failing_since(samples, host)
        # Only where nearly all that failed was at this host do the classes of all errors speak of it.
        kind = classes.most_common(1)[0][0] if classes and number >= 0.8 * all_failed else ""
        kind_words = f", mostly {describe_cause(kind)}" if kind else ""
        yield Recommendation(
            "host_failing",
            "act",
            f"{clean(host)} fails {share} % of requests",
            f"{count(number)} of {count(tries)} attempts failed in the last"
            f" {format_duration(RECENT_SECONDS)}{kind_words},"
            f" since {local_time(since * 1_000_000)}",
            {
                "failed": number,
                "tries": tries,
                "share": round(number / tries, 3),
                "since": since,
                "class": kind or None,
                "parked": host in parked,
            },
            host=host,
            actions=_failing_host_steps(host, parked=host in parked),
        )


def _failing_host_steps(host: str, *, parked: bool) -> tuple[RecommendedStep, ...]:
    see = RecommendedStep("see its responses", f"shoal dead --list --where {shlex.quote('host=' + clean(host))}")
    if parked:
        return (see,)
    body = {"seconds": 3600, "reason": "it fails"}
    rest = host_step("park it for an hour", host, "park", f"shoal hosts park {clean(host)} --for 1h", body)
    return see, rest


def _by_host(samples: Sequence[Sample]) -> tuple[Counter[str], Counter[str]]:
    """Requests that a host answered well, and that it failed: an error in the code that reads a page is not its own."""
    done, failed = Counter[str](), Counter[str]()
    for one in samples:
        for host, point in one.hosts.items():
            done[host] += point.done + point.code_errors
            failed[host] += point.failed - point.code_errors
    return done, failed


def _failing_since(samples: Sequence[Sample], host: str) -> int:
    """When the failing began that has not ended: the first of the last samples in a row that fail."""
    since = 0
    for one in reversed(samples):
        point = one.hosts.get(host)
        if point is None or not point.done + point.failed:
            continue
        if point.failed - point.code_errors < FAILURE_SHARE * (point.done + point.failed):
            break
        since = one.at - int(one.span)
    return since or (samples[-1].at if samples else 0)


def _stalled_runs(snapshot: Snapshot, series: Series) -> Iterator[Recommendation]:
    samples = series.last(STALLED_AFTER)
    if not samples or series.now - series.samples[0].at < STALLED_AFTER * 0.9:
        return
    for one in snapshot.runs:
        if one.display_state != "running" or one.rate or not (one.stats.leased or one.stats.claimable):
            continue
        points = [it.runs.get(one.run.name) for it in samples]
        known = [point for point in points if point is not None]
        if len(known) < len(samples) * 0.8 or any(it.done or it.dead or it.retries for it in known):
            continue
        stats = one.stats
        yield Recommendation(
            "run_stalled",
            "act",
            f"Run {clean(one.run.name)} is stalled",
            f"no page finished for {format_duration(STALLED_AFTER)},"
            f" with {count(stats.claimable)} ready to fetch and"
            f" {count(stats.leased)} in progress at {count(one.workers, 'worker')}",
            {"claimable": stats.claimable, "leased": stats.leased, "open": stats.open, "workers": one.workers},
            run=one.run.name,
            actions=(
                RecommendedStep("see what limits it", f"shoal status {clean(one.run.name)}"),
                RecommendedStep("see what its workers do", "shoal workers"),
            ),
        )


def _missing_capabilities(snapshot: Snapshot) -> Iterator[Recommendation]:
    for one in snapshot.runs:
        if one.run.state != "running":
            continue
        for missing in find_missing(one.stats.needs, workers_for_run(snapshot.alive, one.run))[:MAX_SHOWN]:
            yield Recommendation(
                "capability_missing",
                "act",
                f"No worker of run {clean(one.run.name)} has {' and '.join(missing.names)}",
                str(missing),
                {"needs": list(missing.names), "tasks": missing.tasks, "workers": one.workers},
                run=one.run.name,
                actions=(
                    RecommendedStep("start a worker that has it", f"shoal worker FILE.py {missing.flags}".rstrip()),
                ),
            )


def _parked_hosts(snapshot: Snapshot) -> Iterator[Recommendation]:
    waiting = sorted((lane for lane in snapshot.parked if lane.ready), key=lambda lane: -lane.ready)
    for lane in waiting[:MAX_SHOWN]:
        yield _parked_host_problem(lane, snapshot.at)
    if len(waiting) > MAX_SHOWN:
        rest = waiting[MAX_SHOWN:]
        pages = sum(lane.ready for lane in rest)
        yield Recommendation(
            "hosts_parked",
            "watch",
            f"{count(len(rest), 'more host')} parked",
            f"{count(pages, 'page')} waiting for them",
            {"hosts": len(rest), "ready": pages},
            actions=(RecommendedStep("see them", "shoal hosts"),),
        )


def _parked_host_problem(lane: LaneState, now: int) -> Recommendation:
    person = lane.is_held_indefinitely(now)
    until = "until it is released" if person else "then one request is tried"
    return Recommendation(
        "host_parked",
        "act" if person else "watch",
        f"{clean(lane.name)} is parked",
        f"{clean(hold_reason(lane, now))}; {count(lane.ready, 'page')} waiting, {until}",
        {
            "ready": lane.ready,
            "seconds": None if person else round(max(0.0, (lane.held_until - now) / 1e6), 1),
            "reason": describe_reason(lane),
        },
        host=lane.name,
        actions=(host_step("release it", lane.name, "release", f"shoal hosts release {clean(lane.name)}"),),
    )


def _waiting_sessions(snapshot: Snapshot) -> Iterator[Recommendation]:
    lanes = (*snapshot.hosts, *snapshot.parked)
    for name, state in list(snapshot.sessions.items())[:MAX_SHOWN]:
        pages = waits_for({lane.name: lane for lane in lanes}.values(), [name])
        tried = f"{count(state.failures, 'login')} in a row failed" if state.failures else "nobody is logged in"
        yield Recommendation(
            "session_needs_person",
            "act",
            f"Session {clean(name)} needs a person",
            f"{tried}{f': {clean(state.error)}' if state.error else ''}; {count(pages, 'page')} waiting, at no cost",
            {"session": name, "failures": state.failures, "error": state.error, "waiting": pages},
            actions=(
                RecommendedStep("see what is wrong", f"shoal session show {clean(name)}"),
                RecommendedStep("log in anew when it is mended", f"shoal session renew {clean(name)}"),
                RecommendedStep("or go on as your browser", f"shoal session import {clean(name)} FILE"),
            ),
        )


def _stale_workers(snapshot: Snapshot) -> Iterator[Recommendation]:
    silent = [it for it in snapshot.workers if worker_state(it, snapshot.at, snapshot.stale_after) == "stale"]
    if not silent:
        return
    last = max(silent, key=lambda status: status.seen_at)
    held = sum(status.leased for status in silent)
    given = f"; {count(held, 'page')} returned to the queue" if held else ""
    yield Recommendation(
        "worker_stale",
        "act" if held else "watch",
        f"{count(len(silent), 'worker')} went silent",
        f"{clean(first_and_more([status.id for status in silent]))} on {clean(last.host)}: last seen"
        f" {ago(last.seen_at, snapshot.at)}{given}",
        {"workers": [it.id for it in silent[:MAX_SHOWN]], "leased": held, "last_seen_at": last.seen_at},
        worker=silent[0].id if len(silent) == 1 else "",
        actions=(RecommendedStep("see them", "shoal workers"),),
    )


def _code_differences(snapshot: Snapshot) -> Iterator[Recommendation]:
    alive = snapshot.alive
    differences = mixed_code_warnings(alive)
    for one in snapshot.runs:
        if one.display_state == "running":
            differences += [f"Run {clean(one.run.name)}: {words}" for words in code_version_warnings(one.run, alive)]
    if differences:
        yield Recommendation(
            "code_differs",
            "watch",
            "Workers have different code",
            differences[0] + (f"; and {count(len(differences) - 1, 'more')}" if len(differences) > 1 else ""),
            {"differences": differences[:MAX_SHOWN]},
            actions=(RecommendedStep("see who has which", "shoal workers --json"),),
        )


def _waiting_records(snapshot: Snapshot) -> Iterator[Recommendation]:
    limit = snapshot.outbox_limit
    if not limit:
        return
    for one in snapshot.runs:
        waiting = one.stats.records - one.stats.trimmed
        if waiting < OUTBOX_SHARE * limit:
            continue
        yield Recommendation(
            "records_waiting",
            "act" if waiting >= limit else "watch",
            f"{count(waiting)} records of run {clean(one.run.name)} wait for the store",
            f"at {count(limit)} workers wait, too; the store is down or too slow",
            {"waiting": waiting, "limit": limit},
            run=one.run.name,
            actions=(RecommendedStep("check that the store responds", "shoal doctor"),),
        )


def _full_outboxes(snapshot: Snapshot) -> Iterator[Recommendation]:
    for one in snapshot.runs:
        if one.stats.outbox < OUTBOX_SHARE * MAX_OUTBOX_PER_RUN:
            continue
        yield Recommendation(
            "outbox_waiting",
            "act" if one.stats.outbox >= MAX_OUTBOX_PER_RUN else "watch",
            f"{count(one.stats.outbox)} entries in the outbox of run {clean(one.run.name)} wait to be drained",
            f"at {count(MAX_OUTBOX_PER_RUN)} nothing more of it is handed out; a worker or server drains them",
            {"waiting": one.stats.outbox, "limit": MAX_OUTBOX_PER_RUN},
            run=one.run.name,
            actions=(RecommendedStep("see whether one is alive", "shoal workers"),),
        )


def _shards_away(snapshot: Snapshot) -> Iterator[Recommendation]:
    away = sorted({name for one in snapshot.runs for name in one.stats.away})
    for name in away:
        runs = sum(name in one.stats.away for one in snapshot.runs)
        yield Recommendation(
            "shard_away",
            "act",
            f"shard {clean(name)} is away",
            f"its hosts wait, in {count(runs, 'run')}; all others go on, and nothing is lost",
            {"shard": name, "runs": runs},
            actions=(RecommendedStep("start it, and see whether it answers", "shoal shards status"),),
        )


def _memory_pressure(snapshot: Snapshot, series: Series) -> Iterator[Recommendation]:
    limit = snapshot.worker_memory
    near = [status for status in snapshot.alive if limit and status.memory >= MEMORY_SHARE * limit]
    if near:
        most = max(near, key=lambda status: status.memory)
        yield Recommendation(
            "memory_near_limit",
            "watch",
            f"{count(len(near), 'worker')} near the memory limit",
            f"{clean(most.id)} has {size(most.memory)} of {size(limit)}; it is replaced when it has more",
            {"worker": most.id, "memory": most.memory, "limit": limit, "workers": len(near)},
            worker=most.id,
            actions=(RecommendedStep("allow more, or fewer pages at once", "--worker-memory 2GB, --concurrency 8"),),
        )
    yield from _limited_workers(snapshot.alive)
    yield from _blocked_workers(snapshot.alive, series)


def _limited_workers(alive: Sequence[WorkerStatus]) -> Iterator[Recommendation]:
    """Workers that claim less, or nothing, because their machine is running out of something."""
    limited = {
        status.id: figures for status in alive if (figures := decode(status.counters)).pressure in ("slow", "stop")
    }
    if not limited:
        return
    stopped = [name for name, figures in limited.items() if figures.pressure == "stop"]
    named = stopped or list(limited)
    worst, verb = named[0], "claims" if len(named) == 1 else "claim"
    yield Recommendation(
        "resources_low",
        "act" if stopped else "watch",
        f"{count(len(named), 'worker')} {verb} {'nothing' if stopped else 'less'} for lack of resources",
        f"{clean(worst)}: {clean(limited[worst].pressure_reason)}; they go on by themselves when there is room again",
        {"worker": worst, "slow": len(limited) - len(stopped), "stopped": len(stopped)},
        worker=worst,
        actions=(RecommendedStep("see what is short there", "shoal resources"),),
    )


def _blocked_workers(alive: Sequence[WorkerStatus], series: Series) -> Iterator[Recommendation]:
    samples = series.last(RECENT_SECONDS)[-3:]
    here = {status.id for status in alive}
    slow = {
        name: point.lag
        for one in samples
        for name, point in one.by_worker.items()
        if point.lag >= MAX_LAG and name in here
    }
    if slow:
        worst = max(slow, key=lambda name: slow[name])
        yield Recommendation(
            "worker_blocked",
            "watch",
            f"{count(len(slow), 'worker')} blocked by {'its' if len(slow) == 1 else 'their'} own code",
            f"the event loop of {clean(worst)} was blocked for {format_duration(slow[worst])}",
            {"worker": worst, "lag": slow[worst], "workers": len(slow)},
            worker=worst,
            actions=(RecommendedStep("run slow handlers in threads, or fewer at once", ""),),
        )
