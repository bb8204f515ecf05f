"""Status: how a run goes, what limits it, when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from shoal.config import Settings
from shoal.control.home import moved_to
from shoal.control.runs import being_seeded, version_of
from shoal.core.forecast import Forecast, forecast
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadGroup, Queue, TaskView
from shoal.view.standing import again_hint, alive, living, standing
from shoal.view.words import again_words, clean, count, lane_sum, lane_words, lasting, pace
from shoal.view.workers import versions_of

SAMPLE = 1.0  # seconds between the two looks that pages/s are measured by
LANES = 1_000  # hosts of a run that are looked at
HELD = 50  # and of those that get no requests, wherever they stand
AGAIN_SHOWN = 3
BELOW = 1.5  # hosts allow so many times what is fetched: then their pace is not what limits


class Status(msgspec.Struct, frozen=True):
    """Everything there is to know of how a run goes."""

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
    more_lanes: bool = False  # it has more hosts than were looked at


async def gather(
    queue: Queue,
    settings: Settings,
    run: Run,
    *,
    rate: float | None = None,
    marks: Sequence[Mark] | None = None,
    lanes: int = LANES,
    dead: bool = True,
) -> Status:
    """All of it in a few questions. Without a rate from elsewhere it takes SAMPLE seconds to measure one.

    marks: workers that are alive, where they are known already.
    """
    open_ = run.state in ("running", "paused")
    marks = await alive(queue, settings) if marks is None else marks
    workers = await living(queue, settings, run, marks) if open_ else []
    stats = await queue.stats(run.id)
    if rate is None and stats.leased and workers:
        before = stats.done
        await asyncio.sleep(SAMPLE)
        stats = await queue.stats(run.id)
        rate = max(0, stats.done - before) / SAMPLE
    now = await queue.now()
    hosts = await _lanes(queue, run, lanes) if stats.open else []
    again = await queue.look(run.id, state="delayed", limit=AGAIN_SHOWN) if dead and stats.delayed else []
    return Status(
        run=run,
        state=await standing(queue, settings, run, marks),
        stats=stats,
        now=now,
        lanes=[lane for lane in hosts if lane.ready or lane.in_flight],
        workers=workers,
        dead=await queue.dead_groups(run.id) if dead and stats.dead else [],
        again=again,
        rate=rate,
        seeding=run.state == "running" and await being_seeded(queue, run),
        hint=again_hint(settings, run),
        ahead=forecast(stats, hosts, rate=rate or 0.0, now=now, max_pages=run.max_pages),
        moved=await moved_to(queue, run) if run.state == "cancelled" else "",
        more_lanes=len(hosts) >= lanes,
    )


async def _lanes(queue: Queue, run: Run, limit: int) -> list[LaneState]:
    """Those with the most waiting; where there are more, also those that get no requests at all."""
    found = await queue.lanes(run=run.id, limit=limit)
    if len(found) < limit:
        return found
    known = {lane.name for lane in found}
    held = await queue.lanes(run=run.id, only="held", limit=HELD)
    return found + [lane for lane in held if lane.name not in known]


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
    elif words := _pace_words(found):
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


def _pace_words(found: Status) -> str:
    """What the hosts that have work allow together, where every one of them has a pace."""
    busy = [lane for lane in found.lanes if lane.ready and lane.held_until <= found.now]
    if not busy or not all(lane.spacing for lane in busy):
        return ""
    together = sum(1 / lane.spacing for lane in busy)
    if found.stats.claimable > found.stats.leased and found.rate and together > BELOW * found.rate:
        return ""  # more could be fetched now: it is workers that are too few
    more = "more than " if found.more_lanes else ""
    return f"pace: {more}{count(len(busy), 'host')} at {pace(together)} pages/s together (--delay, --rate)"


def other_code(run: Run, marks: Sequence[Mark]) -> Iterator[str]:
    """Which of a run's workers have other code than it was started with."""
    begun = version_of(run)
    for mark in marks:
        has = versions_of(mark).get(run.scraper, "")
        if begun and has and has != begun:
            yield f"worker {clean(mark.id)} has version {clean(has)}, the run was started with {clean(begun)}"
