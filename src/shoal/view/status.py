"""Status: how a run goes, what limits it, when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from shoal.config.load import Settings
from shoal.control.history import History
from shoal.control.recent_rates import recent_rates
from shoal.core.capability import BROWSER
from shoal.core.forecast import Forecast, forecast
from shoal.core.lane import LaneState, WorkerStatus
from shoal.core.run import Run
from shoal.core.run_counters import auto_usage
from shoal.core.stats import Stats
from shoal.queue.base import MAX_OUTBOX_PER_RUN, DeadLetterGroup, Queue, TaskView
from shoal.queue.glance import glance
from shoal.runs.discovery import last_found_at
from shoal.runs.host_limits import HostLimit, find_host_limits
from shoal.runs.identity import is_seeding, run_code_version
from shoal.runs.list_reader import load_report
from shoal.runs.missing_capabilities import find_missing
from shoal.runs.no_records import NoRecords, explain_no_records, is_without_records
from shoal.runs.queue_identity import moved_to
from shoal.runs.time_limit import time_limit, was_ended_by_time_limit
from shoal.view.auto_fetch import no_browser_words
from shoal.view.budget import BudgetUse, budget_use, describe_spent
from shoal.view.formatting import (
    clean,
    count,
    describe_reason,
    format_duration,
    format_held_host,
    format_host_forecast,
    format_host_limit,
    format_rate,
    format_retry,
    limit_reason,
)
from shoal.view.page_limit import describe_limit_end, was_ended_by_limit
from shoal.view.run_state import display_state, live_workers, live_workers_for_run, resume_hint
from shoal.view.workers import code_versions

SAMPLE_SECONDS = 1.0  # seconds between the two looks that pages/s are measured by
MAX_LANES = 1_000  # hosts of a run that are looked at
MAX_HELD_LANES = 50  # and of those that get no requests, wherever they stand
MAX_RETRIES_SHOWN = 3
MAX_MISSING_SHOWN = 3
PACE_HEADROOM = 1.5  # hosts allow so many times what is fetched: then their pace is not what limits


class Status(msgspec.Struct, frozen=True):
    """Everything there is to know of how a run goes."""

    run: Run
    state: str  # for people: "stopped" is a running run that nobody drives
    stats: Stats
    now: int
    lanes: list[LaneState]
    workers: list[WorkerStatus]
    dead: list[DeadLetterGroup]
    again: list[TaskView]  # some of what is to be tried again
    rate: float | None  # None where nobody works on it
    seeding: bool  # URLs are still being added
    hint: str  # how to go on with it where nobody works on it
    forecast: Forecast
    moved: str = ""  # the queue it has gone to
    budget: BudgetUse | None = None  # None: it has none
    over_time: float = 0.0  # seconds that it might take; not 0: it took longer and was cancelled for that
    counters: dict[str, int] = {}  # of the run, by name
    more_lanes: bool = False  # it has more hosts than were looked at
    no_records: NoRecords | None = None  # it has ended, and found nothing
    host_limits: tuple[HostLimit, ...] = ()  # what keeps hosts below the pace that it asks for
    beyond: int = 0  # lines of its list that are past the page limit which ended it


async def gather_status(
    queue: Queue, settings: Settings, run: Run, *, rate: float | None = None, lanes: int = MAX_LANES, dead: bool = True
) -> Status:
    """All of it in a few questions. Where the queue knows no rate, it takes SAMPLE_SECONDS to measure one."""
    open_ = run.state in ("running", "paused")
    statuses = await live_workers(queue, settings)
    workers = await live_workers_for_run(queue, settings, run, statuses) if open_ else []
    stats = await queue.stats(run.id)
    if rate is None and stats.open and workers:
        rate = await _recent_rate(queue, settings, run, stats)
    if rate is None and stats.leased and workers:
        before = stats.done
        await asyncio.sleep(SAMPLE_SECONDS)
        stats = await queue.stats(run.id)
        rate = max(0, stats.done - before) / SAMPLE_SECONDS
    now = await queue.now()
    seeding = run.state == "running" and await is_seeding(queue, run)
    found_at = await last_found_at(queue, run, stats) if stats.open else 0
    hosts = await _lanes(queue, run, lanes) if stats.open else []
    again: list[TaskView] = []
    if dead and stats.delayed:
        again = await glance(queue.list_tasks(run.id, state="delayed", limit=MAX_RETRIES_SHOWN))
    counters = await queue.run_counters(run.id)
    return Status(
        run=run,
        state=await display_state(queue, settings, run, statuses),
        stats=stats,
        now=now,
        lanes=[lane for lane in hosts if lane.ready or lane.in_flight],
        workers=workers,
        dead=await glance(queue.dead_groups(run.id)) if dead and stats.dead else [],
        again=again,
        rate=rate,
        seeding=seeding,
        hint=resume_hint(settings, run),
        forecast=forecast(
            stats, hosts, rate=rate or 0.0, now=now, max_pages=run.max_pages, found_at=found_at, seeding=seeding
        ),
        moved=await moved_to(queue, run) if run.state == "cancelled" else "",
        over_time=time_limit(run) if await was_ended_by_time_limit(queue, run) else 0.0,
        budget=await budget_use(queue, run, counters),
        counters=counters,
        more_lanes=len(hosts) >= lanes,
        no_records=await explain_no_records(queue, run, stats) if is_without_records(run, stats) else None,
        host_limits=await find_host_limits(queue, settings, run, hosts, now),
        beyond=load_report(settings.state_folder, run).beyond if was_ended_by_limit(run, stats) else 0,
    )


async def _recent_rate(queue: Queue, settings: Settings, run: Run, stats: Stats) -> float | None:
    """Pages per second of the last minute, as the fleet's history has it."""
    history = History(queue, stale_after=settings.stale_after)
    found = await recent_rates(queue, history, [(run, stats)], await queue.now())
    return found[run.id].pages if run.id in found else None


async def _lanes(queue: Queue, run: Run, limit: int) -> list[LaneState]:
    """Those with the most waiting; where there are more, also those that get no requests at all."""
    found = await queue.lanes(run=run.id, limit=limit)
    if len(found) < limit:
        return found
    known = {lane.name for lane in found}
    held = await queue.lanes(run=run.id, only="held", limit=MAX_HELD_LANES)
    return found + [lane for lane in held if lane.name not in known]


def limiting_factors(found: Status) -> list[tuple[str, str]]:
    """What keeps the run from going faster, most telling first: (kind, words)."""
    run, stats = found.run, found.stats
    if words := describe_limit_end(run, stats, found.now, left=found.beyond):
        return [("page_limit", words)]
    if run.state == "finished" or not stats.open:
        return [("outbox", words)] if (words := outbox_words(stats)) and run.state == "running" else []
    if found.budget is not None and found.budget.spent:
        return [("budget", describe_spent(found.budget, run))]
    if run.state != "running":
        return [("run", f"the run is {run.state}: shoal resume {run.name}")]
    if not found.workers:
        return [("workers", f"no worker serves it; {found.hint}")]
    full = [("outbox", outbox_words(stats))] if stats.outbox >= MAX_OUTBOX_PER_RUN else []
    return [*full, *_missing_factors(found), *_host_factors(found), *_work_factors(found)]


def outbox_words(stats: Stats) -> str:
    """Why a run waits for its outbox, if it does."""
    if stats.outbox >= MAX_OUTBOX_PER_RUN:
        return f"its outbox is full ({count(stats.outbox)} waiting): nothing is handed out until some of it is drained"
    return f"{count(stats.outbox)} waiting in its outbox: it is finished when that is drained" if stats.outbox else ""


def _missing_factors(found: Status) -> Iterator[tuple[str, str]]:
    for missing in find_missing(found.stats.needs, found.workers)[:MAX_MISSING_SHOWN]:
        yield "needs", str(missing)
    auto = auto_usage(found.counters)
    if auto is not None and auto.no_browser and not any(BROWSER in status.capabilities for status in found.workers):
        yield "needs", no_browser_words(auto)


def _host_factors(found: Status) -> Iterator[tuple[str, str]]:
    ahead = found.forecast
    if ahead.lane:
        others = f"; all others in {format_duration(ahead.others)}" if ahead.others else ""
        words = format_host_forecast(ahead)
        yield "host", f"{words}: this site is the bottleneck, more workers will not help{others}"
    elif words := _describe_pace(found):
        yield "pace", words
    for limit in found.host_limits:
        if limit.kind in ("override", "learned", "other_run"):
            yield "slower", format_host_limit(limit, found.now)
    held = [lane for lane in found.lanes if lane.held_until > found.now]
    for lane in held[:5]:
        yield "held", format_held_host(lane, found.now)
    full = [lane for lane in found.lanes if lane.max_in_flight and lane.in_flight >= lane.max_in_flight]
    if full and not ahead.lane:
        hosts = count(len(full), "host")
        yield "in_flight", f"{hosts} at their limit of requests in flight (--in-flight)"


def host_reason(found: Status, lane: LaneState) -> str:
    """Why a host gets fewer requests than the run asks for; empty where it does not."""
    for limit in found.host_limits:
        if limit.lane.name == lane.name and limit.kind != "held":
            return limit_reason(limit)
    return describe_reason(lane)


def _work_factors(found: Status) -> Iterator[tuple[str, str]]:
    stats = found.stats
    claimable = stats.claimable - sum(missing.tasks for missing in find_missing(stats.needs, found.workers))
    if claimable > max(100, stats.leased):
        pages = count(claimable, "page")
        yield "workers", f"workers: {pages} could be fetched now (--workers, --concurrency)"
    if stats.delayed:
        yield "retry", f"{count(stats.delayed, 'page')} retrying"
        for view in found.again:
            yield "retry", f"  {format_retry(view, found.now)}"
    robots = sum(number for why, number in stats.skipped.items() if why.startswith("robots"))
    if robots:
        yield "robots", f"{count(robots, 'link')} not followed because of robots.txt"


def _describe_pace(found: Status) -> str:
    """What the hosts that have work allow together, where every one of them has a pace."""
    busy = [lane for lane in found.lanes if lane.ready and lane.held_until <= found.now]
    if not busy or not all(lane.spacing for lane in busy):
        return ""
    together = sum(1 / lane.spacing for lane in busy)
    if found.stats.claimable > found.stats.leased and found.rate and together > PACE_HEADROOM * found.rate:
        return ""  # more could be fetched now: it is workers that are too few
    more = "more than " if found.more_lanes else ""
    return (
        f"rate limits: {more}{count(len(busy), 'host')} at {format_rate(together)} pages/s together (--delay, --rate)"
    )


def code_version_warnings(run: Run, statuses: Sequence[WorkerStatus]) -> Iterator[str]:
    """Which of a run's workers have other code than it was started with."""
    begun = run_code_version(run)
    for status in statuses:
        has = code_versions(status).get(run.scraper, "")
        if begun and has and has != begun:
            yield f"worker {clean(status.id)} has version {clean(has)}, the run started with {clean(begun)}"
