"""Recent rates: how fast runs go, from what the queue has, so that a single look can tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.control.history import History
from shoal.control.history_sample import Baseline, Sample
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.runs.time_limit import first_attempt_at

WINDOW = 60.0  # seconds that are looked back on
MIN_SECONDS = 1.0  # less than that tells nothing


class RunRate(msgspec.Struct, frozen=True, gc=False):
    """Per second, over the last minute or as long as the run is there."""

    pages: float
    failed: float  # attempts


async def recent_rates(
    queue: Queue, history: History, runs: Sequence[tuple[Run, Stats]], now: int
) -> dict[int, RunRate]:
    """By run; those of which the queue knows too little are left out. now: when the counts were read."""
    base, series = await history.baseline(), await history.read(WINDOW)
    rates: dict[int, RunRate] = {}
    for run, stats in runs:
        found = recent_progress(run, stats, base, series.samples, now / 1e6)
        if found is None or not stats.done + stats.failed + stats.retries:
            continue
        since = found.since
        if found.done + found.failed == stats.done + stats.failed + stats.retries:
            # It began in this time: how long it had waited for that says nothing of how fast it goes.
            since = max(since, await first_attempt_at(queue, run) / 1e6)
        seconds = now / 1e6 - since
        if seconds >= MIN_SECONDS:
            rates[run.id] = RunRate(found.done / seconds, found.failed / seconds)
    return rates


class RecentProgress(msgspec.Struct, frozen=True, gc=False):
    """What a run did since a moment."""

    since: float
    done: int
    failed: int


def recent_progress(
    run: Run, stats: Stats, base: Baseline, samples: Sequence[Sample], now: float
) -> RecentProgress | None:
    """What was counted since the last sample, and before that what the samples of the last minute have."""
    created, was = run.created_at / 1e6, base.runs.get(run.id)
    if now - base.at > WINDOW and now - created > WINDOW:
        return None  # nobody has looked for long: it may have stood still, or just begun to go on
    done, failed, since = stats.done, stats.failed + stats.retries, created
    if was is not None:
        done, failed, since = done - was.done, failed - was.dead - was.retries, base.at
    elif created < base.at:
        return None
    for sample in reversed(samples) if was is not None else ():
        if not sample.span or sample.at <= now - WINDOW:
            break
        point = sample.runs.get(run.name)
        if point is not None:
            done, failed = done + point.done, failed + point.dead + point.retries
        since -= sample.span
    return RecentProgress(max(since, created), max(0, done), max(0, failed))
