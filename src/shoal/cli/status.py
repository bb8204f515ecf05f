"""shoal status: how a run goes, what limits it, when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from shoal.cli.command import Command
from shoal.cli.console import STATE_COLOURS, paint, print_fields, print_json, print_line, print_table
from shoal.cli.find_run import RUN_HELP, find_run, run_argument, show_listing
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.cost import cost_of
from shoal.core.forecast import lane_seconds
from shoal.core.run import Run
from shoal.core.run_counters import (
    FetchUsage,
    FieldFill,
    auto_usage,
    cache_usage,
    fetch_usage,
    field_fill,
    sitemap_usage,
)
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.auto_fetch import describe_auto
from shoal.view.blocks import describe_blocks, describe_noticed
from shoal.view.budget import describe_budget, describe_cost, per_record
from shoal.view.cache import describe_usage
from shoal.view.dead_letters import count_by_cause
from shoal.view.documents import status_document
from shoal.view.formatting import (
    ago,
    clean,
    count,
    format_about,
    format_account,
    format_duration,
    format_in_flight,
    format_least_time,
    format_pace,
    format_share,
    local_time,
    sitemap_words,
    size,
)
from shoal.view.no_records import describe_no_records
from shoal.view.status import Status, code_version_warnings, gather_status, host_reason, limiting_factors

USAGE_SHOWN, FIELDS_SHOWN = 3, 8


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal status                 the newest run
    shoal status books --json    as one JSON document
    """,
)
@run_argument
@as_json
@click_options("look")
def status(settings: Settings, run: str | None, as_json: bool) -> int:
    """Show the progress of RUN, what limits it and when it ends."""

    async def job(queue: Queue) -> None:
        found = await gather_status(queue, settings, await find_run(queue, run))
        print_json(status_document(found)) if as_json else _show(found)

    return show_listing(settings, job, named=run, as_json=as_json, empty=None)


def _show(found: Status) -> None:
    run, stats, now = found.run, found.stats, found.now
    state = paint(found.state, STATE_COLOURS.get(found.state, "dim"))
    started = ago(run.created_at, now)
    print_line(f"{paint(run.name, 'bold')}  {clean(run.scraper)}  {state}  started {started}")
    print_line(format_account(stats))
    waiting = f"waiting {count(stats.ready - stats.delayed)} · in progress {count(stats.leased)}"
    later = f" · retrying {count(stats.delayed)}" if stats.delayed else ""
    pairs: list[tuple[str, object]] = [("records", f"{count(stats.records)}, {size(stats.bytes)} fetched")]
    if found.moved:
        pairs.append(("moved", f"to {clean(found.moved)}: see it there with --queue"))
    if found.over_time:
        pairs.append(("cause", f"it took longer than it may ({format_duration(found.over_time)})"))
    pairs += _about_spec(run)
    if stats.open:
        pairs.append(("open", f"{waiting}{later}"))
    if stats.in_transit:
        pairs.append(("in transit", f"{count(stats.in_transit, 'link')} between shards"))
    words = "its hosts wait; what it has is missing here, or as last known"
    pairs += [("shard away", f"{clean(name)}: {words}") for name in stats.away]
    if stats.outbox:
        pairs.append(("outbox", f"{count(stats.outbox)} waiting to be drained"))
    pairs += _cost(found)
    pairs += _counted(found.counters, stats)
    if found.rate is not None:
        pairs.append(("pages/s", f"{found.rate:.1f}"))
    if found.seeding:
        pairs.append(("adding", "URLs are still being added; if that stopped, run its command again"))
    if found.workers:
        pairs.append(("workers", f"{count(len(found.workers))} alive"))
    for words in code_version_warnings(found.run, found.workers):
        pairs.append(("code", words))
    if run.finished_at:
        pairs.append(("ended", f"{local_time(run.finished_at)}, {ago(run.finished_at, now)}"))
    elif stats.open and run.state == "running" and found.workers:
        left = format_about(found.forecast) if found.forecast.seconds else "unknown"
        pairs.append(("time left", left))
    if stats.skipped:
        reasons = sorted(stats.skipped.items(), key=lambda pair: -pair[1])
        pairs.append(("not followed", " · ".join(f"{clean(why)} {count(number)}" for why, number in reasons)))
    print_fields(pairs)
    _show_limits(found)
    _show_lanes(found)
    _show_dead(found)
    _show_no_records(found)


def _about_spec(run: Run) -> list[tuple[str, object]]:
    if run.garbled:
        return [("problem", clean(f"{run.garbled}; nobody serves it: shoal cancel {run.name}"))]
    return [("output", clean(run.spec["output"]))] if run.spec.get("output") else []


def _cost(found: Status) -> Iterator[tuple[str, str]]:
    """What the run has cost, and of what it may cost."""
    cost = cost_of(found.counters)
    if words := describe_cost(cost):
        yield "cost", words
    if (each := per_record(cost, found.stats.records)) and (words := describe_cost(each)):
        yield "per record", words
    if found.budget is not None:
        yield "budget", describe_budget(found.budget)


def _counted(counters: Mapping[str, int], stats: Stats) -> Iterator[tuple[str, str]]:
    """What the run counted: what its pages took, how many the cache had, how their records are filled."""
    if usage := fetch_usage(counters):
        yield "cpu", f"{sum(one.cpu_seconds for one in usage):.1f} s of workers for {_usage(usage)}"
    if sitemaps := sitemap_usage(counters, stats):
        yield "sitemaps", sitemap_words(sitemaps)
    if auto := auto_usage(counters):
        yield "fetch=auto", describe_auto(auto)
    if blocks := describe_blocks(counters):
        yield "blocked", blocks
    if noticed := describe_noticed(counters):
        yield "blocked?", noticed
    if cached := cache_usage(counters):
        yield "cache", describe_usage(cached)
    if fill := field_fill(counters):
        yield "filled", _filled(fill, stats.records)


def _usage(usage: Sequence[FetchUsage]) -> str:
    """What was fetched how, where there is more than one way."""
    words = [
        f"{count(one.responses, 'response')}" + (f" by {one.fetcher} {clean(one.exit)}" if len(usage) > 1 else "")
        for one in usage[:USAGE_SHOWN]
    ]
    return " · ".join(words)


def _filled(fill: Mapping[str, FieldFill], records: int) -> str:
    """How often the fields have values, the rarest first; and of how many records, if not of all."""
    rarest = sorted(fill.items(), key=lambda pair: pair[1].filled / pair[1].total)
    words = [
        f"{clean(name)} {format_share(one.filled, one.total)}"
        + (f" of the {count(one.total)} that have it" if one.total < records else "")
        for name, one in rarest[:FIELDS_SHOWN]
    ]
    more = len(rarest) - FIELDS_SHOWN
    return " · ".join(words) + (f" · {count(more)} more" if more > 0 else "")


def _show_limits(found: Status) -> None:
    factors = limiting_factors(found)
    if factors:
        print_line()
        print_line("What limits it")
        for _, words in factors:
            print_hint(f"  {words}")


def _show_lanes(found: Status) -> None:
    ranked = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))[:8]
    if not ranked or found.run.state not in ("running", "paused"):
        return
    print_line()
    rows = [
        (
            f"  {lane.name}",
            count(lane.ready),
            format_in_flight(lane),
            format_pace(lane.spacing),
            format_least_time(lane, found.now),
            host_reason(found, lane),
        )
        for lane in ranked
    ]
    print_table(("  host", "waiting", "in progress", "rate limit", "at least", "why"), rows, right="waiting")


def _show_no_records(found: Status) -> None:
    if found.no_records:
        print_line()
        for text in describe_no_records(found.no_records):
            print_line(text)


def _show_dead(found: Status) -> None:
    if not found.dead:
        return
    ranked = sorted(count_by_cause(found.dead).items(), key=lambda pair: -pair[1])
    print_line()
    print_line("Failed  " + " · ".join(f"{clean(cause)} {count(number)}" for cause, number in ranked[:6]))
    print_hint(f"  try: shoal dead {found.run.name}")
