"""Progress: how far a run had come by when, and when it will be done at its present pace."""

from __future__ import annotations

import msgspec

from shoal.control.history import SLOT, Series
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.view.series import STEPS

MAX_POINTS = 120
MAX_FORECAST = 100 * 365 * 86_400.0  # seconds; what is farther off has no date worth telling


class ProgressPoint(msgspec.Struct):
    """What a run did in a time that ended at a moment, and how it stood then."""

    at: float  # seconds since 1970
    span: float  # seconds
    done: int = 0
    dead: int = 0
    retries: int = 0
    open: int = 0


class ProgressCurve(msgspec.Struct, frozen=True):
    """Moments are seconds since 1970."""

    line: tuple[tuple[float, int], ...]  # (moment, pages that had come to an end), from 0 to now
    total: int  # pages it will come to
    ends: float = 0.0  # 0: nobody can tell, or it has ended

    @property
    def begun(self) -> float:
        return self.line[0][0]

    @property
    def last(self) -> float:
        return self.line[-1][0]


def progress_curve(run: Run, stats: Stats, series: Series, now: int, left: float | None) -> ProgressCurve | None:
    """Told backwards from what the store says now; None for what has hardly begun.

    left: seconds until it ends, as forecast.
    """
    ended = stats.done + stats.failed
    begun, last = run.created_at / 1e6, (run.finished_at or now) / 1e6
    if not ended or last - begun < 1.0:
        return None
    total = min(stats.seen, run.max_pages) if run.max_pages else stats.seen
    going = run.state == "running" and not run.finished_at
    ends = last + left if left and left < MAX_FORECAST and going else 0.0
    made = [(last, ended)]
    for point in reversed(progress_points(run, series)):
        if begun < point.at < made[-1][0]:
            made.append((point.at, ended))
        ended = max(0, ended - point.done - point.dead)
        before = point.at - point.span  # without a span nobody knows since when
        if point.span and begun < before < made[-1][0]:
            made.append((before, ended))
    return ProgressCurve(((begun, 0), *reversed(made)), max(total, stats.done + stats.failed), ends)


def progress_points(run: Run, series: Series, most: int = MAX_POINTS, least: float = SLOT) -> list[ProgressPoint]:
    """What the history has of one run, in so many points at most; nothing of when it was not looked at.

    least: seconds that a point stands for. Points begin at round times, so that they stay as they are.
    """
    begun = run.created_at / 1e6
    kept = [(one, one.runs[run.name]) for one in series.samples if one.at >= begun and run.name in one.runs]
    if not kept:
        return []
    wanted = max(least, (kept[-1][0].at - kept[0][0].at) / max(1, most - 1))
    width = next((step for step in STEPS if step >= wanted), wanted)
    made: list[ProgressPoint] = []
    for one, found in kept:
        if not made or one.at // width != made[-1].at // width:
            made.append(ProgressPoint(one.at, 0.0))
        last = made[-1]
        last.at, last.span = one.at, last.span + one.span
        last.done, last.dead = last.done + found.done, last.dead + found.dead
        last.retries += found.retries
        last.open = found.ready + found.delayed + found.leased
    return made
