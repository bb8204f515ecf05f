"""shoal status: how a run goes, what limits it, when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import RUN_HELP, again_hint, listing, living, pick, run_argument, standing
from shoal.cli.progress import account, again_words, lane_sum, lane_words, least_words
from shoal.cli.runs import run_document
from shoal.cli.show import (
    STATES,
    ago,
    clean,
    count,
    document,
    fields,
    lasting,
    line,
    moment,
    paint,
    size,
    stamp,
    table,
)
from shoal.config import Settings
from shoal.control.home import moved_to
from shoal.control.runs import being_seeded, version_of
from shoal.core.forecast import Forecast, forecast, lane_seconds
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadGroup, Queue, TaskView

SAMPLE = 1.0  # seconds between the two looks that pages/s are measured by
MANY = 10_000
AGAIN_SHOWN = 3


class Status(msgspec.Struct, frozen=True):
    """Everything `shoal status` knows of a run."""

    run: Run
    state: str  # for people: "stopped" is a running run that nobody drives
    stats: Stats
    now: int
    lanes: list[LaneState]
    workers: list[Mark]
    dead: list[DeadGroup]
    again: list[TaskView]  # some of what is to be tried again
    rate: float | None  # None where nobody works on it
    seeding: bool  # addresses are still being added
    hint: str  # how to go on with it where nobody works on it
    ahead: Forecast
    moved: str = ""  # the queue it has gone to


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
    """Show how RUN goes, what limits it and when it ends."""

    async def job(queue: Queue) -> None:
        found = await gather(queue, settings, await pick(queue, run))
        document(status_document(found)) if as_json else _show(found)

    return listing(settings, job, named=run, as_json=as_json, empty=None)


async def gather(queue: Queue, settings: Settings, run: Run) -> Status:
    stats = await queue.stats(run.id)
    workers = await living(queue, settings, run) if run.state in ("running", "paused") else []
    rate = None
    if stats.leased and workers:
        before = stats.done
        await asyncio.sleep(SAMPLE)
        stats = await queue.stats(run.id)
        rate = max(0, stats.done - before) / SAMPLE
    now = await queue.now()
    lanes = [lane for lane in await queue.lanes(run=run.id, limit=MANY) if lane.ready or lane.in_flight]
    ahead = forecast(stats, lanes, rate=rate or 0.0, now=now, max_pages=run.max_pages)
    again = await queue.look(run.id, state="delayed", limit=AGAIN_SHOWN) if stats.delayed else []
    return Status(
        run=run,
        state=await standing(queue, settings, run),
        stats=stats,
        now=now,
        lanes=lanes,
        workers=workers,
        dead=await queue.dead_groups(run.id),
        again=again,
        rate=rate,
        seeding=run.state == "running" and await being_seeded(queue, run),
        hint=again_hint(settings, run),
        ahead=ahead,
        moved=await moved_to(queue, run) if run.state == "cancelled" else "",
    )


def limits(found: Status) -> list[tuple[str, str]]:
    """What keeps the run from going faster, most telling first: (kind, words)."""
    run, stats = found.run, found.stats
    if run.state == "finished" or not stats.open:
        return []
    if run.state != "running":
        return [("run", f"the run is {run.state}: shoal resume {run.name}")]
    if not found.workers:
        return [("workers", f"nobody works on it; {found.hint}")]
    said: list[tuple[str, str]] = []
    ahead = found.ahead
    if ahead.lane:
        others = f"; all others in {lasting(ahead.others)}" if ahead.others else ""
        words = f"{lane_sum(ahead)}: this site decides the end, more workers will not help{others}"
        said.append(("host", words))
    elif words := _pace_words(found.lanes, found.now):
        said.append(("pace", words))
    held = [lane for lane in found.lanes if lane.held_until > found.now]
    said += [("held", lane_words(lane, found.now)) for lane in held[:5]]
    full = [lane for lane in found.lanes if lane.max_in_flight and lane.in_flight >= lane.max_in_flight]
    if full and not ahead.lane:
        said.append(
            (
                "in_flight",
                f"{count(len(full), 'host')} with all requests under way they may have (--in-flight)",
            )
        )
    if stats.claimable > max(100, stats.leased):
        said.append(
            (
                "workers",
                f"workers: {count(stats.claimable)} pages could be fetched now (--workers, --concurrency)",
            )
        )
    if stats.delayed:
        said.append(("retry", f"{count(stats.delayed, 'page')} to be tried again later"))
        said += [("retry", f"  {again_words(view, found.now)}") for view in found.again]
    robots = sum(number for why, number in stats.skipped.items() if why.startswith("robots"))
    if robots:
        said.append(("robots", f"{count(robots, 'link')} not followed because robots.txt says no"))
    return said


def _pace_words(lanes: list[LaneState], now: int) -> str:
    """What the hosts that have work allow together, where every one of them has a pace."""
    busy = [lane for lane in lanes if lane.ready and lane.held_until <= now]
    if not busy or not all(lane.spacing for lane in busy):
        return ""
    together = sum(1 / lane.spacing for lane in busy)
    return f"pace: {count(len(busy), 'host')} at {together:.3g} pages/s together (--delay, --rate)"


def _show(found: Status) -> None:
    run, stats, now = found.run, found.stats, found.now
    state = paint(found.state, STATES.get(found.state, "dim"))
    line(f"{paint(run.name, 'bold')}  {clean(run.scraper)}  {state}  begun {ago(run.created_at, now)}")
    line(account(stats))
    waiting = f"waiting {count(stats.ready - stats.delayed)} · under way {count(stats.leased)}"
    later = f" · trying again later {count(stats.delayed)}" if stats.delayed else ""
    pairs: list[tuple[str, object]] = [("records", f"{count(stats.records)}, {size(stats.bytes)} fetched")]
    if found.moved:
        pairs.append(("moved", f"to {clean(found.moved)}: look there with --queue"))
    if run.spec.get("output"):
        pairs.append(("output", clean(run.spec["output"])))
    if stats.open:
        pairs.append(("open", f"{waiting}{later}"))
    if found.rate is not None:
        pairs.append(("pages/s", f"{found.rate:.1f}"))
    if found.seeding:
        pairs.append(("adding", "addresses are still being added; if that stopped, give its command again"))
    if found.workers:
        pairs.append(("workers", f"{count(len(found.workers))} alive"))
    for words in other_code(found.run, found.workers):
        pairs.append(("code", words))
    if run.finished_at:
        pairs.append(("ended", f"{moment(run.finished_at)}, {ago(run.finished_at, now)}"))
    elif stats.open and run.state == "running" and found.workers:
        left = f"about {lasting(found.ahead.seconds)}" if found.ahead.seconds else "unknown"
        pairs.append(("time left", left))
    if stats.skipped:
        reasons = sorted(stats.skipped.items(), key=lambda pair: -pair[1])
        pairs.append(("not followed", " · ".join(f"{clean(why)} {count(number)}" for why, number in reasons)))
    fields(pairs)
    _show_limits(found)
    _show_lanes(found)
    _show_dead(found)


def other_code(run: Run, marks: Sequence[Mark]) -> Iterator[str]:
    """Which of a run's workers have other code than it was started with."""
    begun = version_of(run)
    for mark in marks:
        has = dict(pair.split("=", 1) for pair in mark.code.split() if "=" in pair).get(run.scraper, "")
        if begun and has and has != begun:
            yield f"worker {clean(mark.id)} has version {clean(has)}, the run was started with {clean(begun)}"


def _show_limits(found: Status) -> None:
    said = limits(found)
    if said:
        line()
        line("What limits it")
        for _, words in said:
            line(f"  {words}")


def _show_lanes(found: Status) -> None:
    ranked = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))[:8]
    if not ranked or found.run.state not in ("running", "paused"):
        return
    line()
    rows = [
        (
            f"  {lane.name}",
            count(lane.ready),
            f"{lane.in_flight}/{lane.max_in_flight}" if lane.max_in_flight else str(lane.in_flight),
            f"{lane.spacing:g} s" if lane.spacing else "free",
            least_words(lane, found.now),
            lane.reason,
        )
        for lane in ranked
    ]
    table(("  host", "waiting", "under way", "spacing", "at least", "why"), rows, right="waiting")


def _show_dead(found: Status) -> None:
    if not found.stats.dead:
        return
    ranked = sorted(_by_cause(found.dead).items(), key=lambda pair: -pair[1])
    line()
    line("Failed  " + " · ".join(f"{clean(cause)} {count(number)}" for cause, number in ranked[:6]))
    line(f"  try: shoal dead {found.run.name}")


def status_document(found: Status) -> dict[str, Any]:
    return {
        **run_document(found.run, found.stats),
        "at": stamp(found.now),
        "pages_per_second": found.rate,
        "seconds_left": found.ahead.seconds,
        "decided_by": found.ahead.lane or None,
        "standing": found.state,
        "seeding": found.seeding,
        "code_version": version_of(found.run) or None,
        "limits": [{"kind": kind, "words": words} for kind, words in limits(found)],
        "workers": [
            {
                "name": mark.name,
                "host": mark.host,
                "pid": mark.pid,
                "state": mark.state,
                "leased": mark.leased,
                "done": mark.done,
                "failed": mark.failed,
                "doing": mark.doing,
                "seen_at": stamp(mark.seen_at),
            }
            for mark in found.workers
        ],
        "hosts": [
            {
                "name": lane.name,
                "ready": lane.ready,
                "in_flight": lane.in_flight,
                "max_in_flight": lane.max_in_flight,
                "spacing": lane.spacing,
                "learned": lane.learned,
                "held_until": stamp(lane.held_until),
                "parked": lane.parked,
                "reason": lane.reason,
            }
            for lane in found.lanes[:100]
        ],
        "dead_by_cause": _by_cause(found.dead),
    }


def _by_cause(groups: list[DeadGroup]) -> dict[str, int]:
    causes: dict[str, int] = {}
    for group in groups:
        causes[group.cause] = causes.get(group.cause, 0) + group.count
    return causes
