"""Trouble: hosts that fail, runs that stand still, workers that fell silent, letters with one cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from shoal.control.history import Series
from shoal.control.report import cause_words
from shoal.control.sample import Sample
from shoal.core.figures import error_class
from shoal.core.lane import LaneState, Mark
from shoal.queue.base import DeadGroup
from shoal.view.hosts import why_held
from shoal.view.letters import by_cause
from shoal.view.snapshot import RunLook, Snapshot
from shoal.view.status import other_code
from shoal.view.suggestion import Advice, Step, host_step, run_step
from shoal.view.words import ago, clean, count, lasting, moment, size, some
from shoal.view.workers import mixed_code, state_of

LATELY = 600.0  # seconds
FAILING, FAILED = 0.2, 5  # a host fails that fails so large a share, and so often
STANDS = 180.0  # seconds without any progress
NEAR = 0.85  # of the memory a worker may have
LAG = 1.0  # seconds
FULL = 0.5  # of the records that may wait for the store
ONE_CAUSE, LETTERS = 0.5, 5  # dead letters have one cause when so large a share has it, and so many
SHOWN = 5
PASSING = ("timeout", "connect", "dns", "http.5xx", "http.429", "tls", "worker_lost")
GONE = ("http.404", "robots", "refused")


def trouble(snapshot: Snapshot, series: Series, dead: Mapping[str, Sequence[DeadGroup]]) -> Iterator[Advice]:
    yield from _failing(snapshot, series)
    yield from _standing(snapshot, series)
    yield from _parked(snapshot)
    yield from _silent(snapshot)
    yield from _code(snapshot)
    yield from _waiting_records(snapshot)
    yield from _letters(snapshot, dead)
    yield from _memory(snapshot, series)


def _failing(snapshot: Snapshot, series: Series) -> Iterator[Advice]:
    samples = series.last(LATELY)
    done, failed = _by_host(samples)
    all_failed = sum(failed.values())
    classes = Counter[str]()
    for one in samples:
        classes.update(one.failed)
    parked = {lane.name for lane in snapshot.parked}
    for host, number in failed.most_common(SHOWN):
        tries = number + done[host]
        if number < FAILED or number / tries < FAILING:
            continue
        share = round(100 * number / tries)
        since = _since(samples, host)
        # Only where nearly all that failed was at this host do the classes of all errors speak of it.
        kind = classes.most_common(1)[0][0] if classes and number >= 0.8 * all_failed else ""
        kind_words = f", mostly {cause_words(kind)}" if kind else ""
        yield Advice(
            "host_fails",
            "act",
            f"{clean(host)} fails {share} % of requests",
            f"{count(number)} of {count(tries)} attempts failed in the last {lasting(LATELY)}{kind_words},"
            f" since {moment(since * 1_000_000)}",
            {
                "failed": number,
                "tries": tries,
                "share": round(number / tries, 3),
                "since": since,
                "class": kind or None,
                "parked": host in parked,
            },
            host=host,
            actions=_about_failing(host, parked=host in parked),
        )


def _about_failing(host: str, *, parked: bool) -> tuple[Step, ...]:
    see = Step("see what it answers", f"shoal dead --list --where host={clean(host)}")
    if parked:
        return (see,)
    body = {"seconds": 3600, "reason": "it fails"}
    rest = host_step("let it rest", host, "park", f"shoal hosts park {clean(host)} --for 1h", body)
    return see, rest


def _by_host(samples: Sequence[Sample]) -> tuple[Counter[str], Counter[str]]:
    done, failed = Counter[str](), Counter[str]()
    for one in samples:
        for host, point in one.hosts.items():
            done[host] += point.done
            failed[host] += point.failed
    return done, failed


def _since(samples: Sequence[Sample], host: str) -> int:
    """When the failing began that has not ended: the first of the last samples in a row that fail."""
    since = 0
    for one in reversed(samples):
        point = one.hosts.get(host)
        if point is None or not point.done + point.failed:
            continue
        if point.failed < FAILING * (point.done + point.failed):
            break
        since = one.at - int(one.span)
    return since or (samples[-1].at if samples else 0)


def _standing(snapshot: Snapshot, series: Series) -> Iterator[Advice]:
    samples = series.last(STANDS)
    if not samples or series.now - series.samples[0].at < STANDS * 0.9:
        return
    for one in snapshot.runs:
        if one.standing != "running" or one.rate or not (one.stats.leased or one.stats.claimable):
            continue
        points = [it.runs.get(one.run.name) for it in samples]
        known = [point for point in points if point is not None]
        if len(known) < len(samples) * 0.8 or any(it.done or it.dead or it.retries for it in known):
            continue
        stats = one.stats
        yield Advice(
            "stands_still",
            "act",
            f"Run {clean(one.run.name)} stands still",
            f"no page ended for {lasting(STANDS)}, with {count(stats.claimable)} that could be fetched and"
            f" {count(stats.leased)} under way at {count(one.workers, 'worker')}",
            {
                "claimable": stats.claimable,
                "leased": stats.leased,
                "open": stats.open,
                "workers": one.workers,
            },
            run=one.run.name,
            actions=(
                Step("see what limits it", f"shoal status {clean(one.run.name)}"),
                Step("see what its workers do", "shoal workers"),
            ),
        )


def _parked(snapshot: Snapshot) -> Iterator[Advice]:
    waiting = sorted((lane for lane in snapshot.parked if lane.ready), key=lambda lane: -lane.ready)
    for lane in waiting[:SHOWN]:
        yield _parked_host(lane, snapshot.at)
    if len(waiting) > SHOWN:
        rest = waiting[SHOWN:]
        pages = sum(lane.ready for lane in rest)
        yield Advice(
            "hosts_parked",
            "watch",
            f"{count(len(rest), 'more host')} parked",
            f"{count(pages, 'page')} wait for them",
            {"hosts": len(rest), "ready": pages},
            actions=(Step("see them", "shoal hosts"),),
        )


def _parked_host(lane: LaneState, now: int) -> Advice:
    person = lane.for_good(now)
    until = "until somebody releases it" if person else "then one request finds out"
    return Advice(
        "host_parked",
        "act" if person else "watch",
        f"{clean(lane.name)} is parked",
        f"{clean(why_held(lane, now))}; {count(lane.ready, 'page')} wait, {until}",
        {
            "ready": lane.ready,
            "seconds": None if person else round(max(0.0, (lane.held_until - now) / 1e6), 1),
            "reason": lane.reason,
        },
        host=lane.name,
        actions=(host_step("release it", lane.name, "release", f"shoal hosts release {clean(lane.name)}"),),
    )


def _silent(snapshot: Snapshot) -> Iterator[Advice]:
    silent = [
        mark for mark in snapshot.workers if state_of(mark, snapshot.at, snapshot.stale_after) == "stale"
    ]
    if not silent:
        return
    last = max(silent, key=lambda mark: mark.seen_at)
    held = sum(mark.leased for mark in silent)
    given = f"; {count(held, 'page')} it had are given back" if held else ""
    yield Advice(
        "worker_stale",
        "act" if held else "watch",
        f"{count(len(silent), 'worker')} fell silent",
        f"{clean(some([mark.id for mark in silent]))} on {clean(last.host)}: last heard of"
        f" {ago(last.seen_at, snapshot.at)}{given}",
        {"workers": [mark.id for mark in silent[:SHOWN]], "leased": held, "last_seen_at": last.seen_at},
        worker=silent[0].id if len(silent) == 1 else "",
        actions=(Step("see them", "shoal workers"),),
    )


def _code(snapshot: Snapshot) -> Iterator[Advice]:
    alive = snapshot.alive
    said = mixed_code(alive)
    for one in snapshot.runs:
        if one.standing == "running":
            said += [f"Run {clean(one.run.name)}: {words}" for words in other_code(one.run, alive)]
    if said:
        yield Advice(
            "code_differs",
            "watch",
            "Workers have different code",
            said[0] + (f"; and {count(len(said) - 1, 'more')}" if len(said) > 1 else ""),
            {"differences": said[:SHOWN]},
            actions=(Step("see who has which", "shoal workers --json"),),
        )


def _waiting_records(snapshot: Snapshot) -> Iterator[Advice]:
    limit = snapshot.outbox_limit
    if not limit:
        return
    for one in snapshot.runs:
        waiting = one.stats.records - one.stats.trimmed
        if waiting < FULL * limit:
            continue
        yield Advice(
            "records_wait",
            "act" if waiting >= limit else "watch",
            f"{count(waiting)} records of run {clean(one.run.name)} wait for the store",
            f"from {count(limit)} on workers wait, too; the store is away, or too slow",
            {"waiting": waiting, "limit": limit},
            run=one.run.name,
            actions=(Step("see whether the store answers", "shoal doctor"),),
        )


def _letters(snapshot: Snapshot, dead: Mapping[str, Sequence[DeadGroup]]) -> Iterator[Advice]:
    for one in snapshot.runs:
        groups = dead.get(one.run.name, ())
        causes = by_cause(groups)
        if not causes:
            continue
        cause, number = max(causes.items(), key=lambda pair: pair[1])
        looked, total = sum(causes.values()), max(one.stats.dead, sum(causes.values()))
        number = round(number * total / looked)  # of very many only some were looked at
        if number < LETTERS or number < ONE_CAUSE * total:
            continue
        yield _one_cause(one, cause, number, total, [group for group in groups if group.cause == cause])


def _one_cause(one: RunLook, cause: str, number: int, total: int, groups: Sequence[DeadGroup]) -> Advice:
    name, kind = clean(one.run.name), error_class(cause)
    hosts = sorted({group.lane for group in groups})
    where = clean(hosts[0]) if len(hosts) == 1 else count(len(hosts), "host")
    message = next((group.message for group in groups if group.message not in ("", cause)), "")
    said = f": {clean(message)}" if message else ""
    steps = [Step("see them", f"shoal dead {name} --list --where cause={clean(cause)}")]
    if kind not in GONE:
        when = "when it answers again" if kind in PASSING else "when the cause is gone"
        more = f" --where cause={clean(cause)}"
        steps.append(
            run_step(f"put them back to work {when}", one.run.name, "revive", {"cause": cause}, more)
        )
    about = "" if sum(group.count for group in groups) == number else "about "
    return Advice(
        "one_cause",
        "watch" if kind in GONE or one.run.state != "running" else "act",
        f"{about.capitalize()}{count(number, 'page')} of run {name} failed for one reason",
        f"{cause_words(cause)} at {where}{said}; {count(total)} failed in all",
        {
            "cause": cause,
            "count": number,
            "dead": total,
            "hosts": hosts[:SHOWN],
            "sample": groups[0].sample,
            "last_at": max(group.last_at for group in groups),
        },
        run=one.run.name,
        host=hosts[0] if len(hosts) == 1 else "",
        actions=tuple(steps),
    )


def _memory(snapshot: Snapshot, series: Series) -> Iterator[Advice]:
    limit = snapshot.worker_memory
    near = [mark for mark in snapshot.alive if limit and mark.memory >= NEAR * limit]
    if near:
        most = max(near, key=lambda mark: mark.memory)
        yield Advice(
            "memory_near_limit",
            "watch",
            f"{count(len(near), 'worker')} near the memory limit",
            f"{clean(most.id)} has {size(most.memory)} of {size(limit)}; it is replaced when it has more",
            {"worker": most.id, "memory": most.memory, "limit": limit, "workers": len(near)},
            worker=most.id,
            actions=(Step("allow more, or fewer pages at once", "--worker-memory 2GB, --concurrency 8"),),
        )
    yield from _held_up(snapshot.alive, series)


def _held_up(alive: Sequence[Mark], series: Series) -> Iterator[Advice]:
    samples = series.last(LATELY)[-3:]
    here = {mark.id for mark in alive}
    slow = {
        name: point.lag
        for one in samples
        for name, point in one.by_worker.items()
        if point.lag >= LAG and name in here
    }
    if slow:
        worst = max(slow, key=lambda name: slow[name])
        yield Advice(
            "worker_held_up",
            "watch",
            f"{count(len(slow), 'worker')} held up by {'its' if len(slow) == 1 else 'their'} own code",
            f"the event loop of {clean(worst)} stood still for {lasting(slow[worst])}",
            {"worker": worst, "lag": slow[worst], "workers": len(slow)},
            worker=worst,
            actions=(Step("let slow handlers run in threads, or use fewer at once", ""),),
        )
