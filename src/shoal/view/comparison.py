"""Comparison: a run beside the last one of the same scraper that finished."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.formatting import count, format_duration

FINISHED: tuple[RunState, ...] = ("finished",)
MAX_CANDIDATES = 200  # finished runs in which those before the runs of a list are looked for
ROWS_LOSS = 0.05  # so large a loss of rows is worth a look
SUCCESS_LOSS = 0.01  # and so large a loss of pages that went well


class FigureChange(msgspec.Struct, frozen=True):
    """One figure of both, in words."""

    name: str  # "rows", "ok", "took"
    now: str
    was: str
    by: str = ""  # "+12 %", or nothing where that cannot be told
    worse: bool = False  # enough to be looked at


class Comparison(msgspec.Struct, frozen=True):
    before: Run
    changes: tuple[FigureChange, ...]
    ended: bool  # else it is what there is so far

    @property
    def rows(self) -> FigureChange:
        return self.changes[0]

    @property
    def worse(self) -> bool:
        return any(it.worse for it in self.changes)


async def compare_with_previous(queue: Queue, run: Run, stats: Stats, now: int) -> Comparison | None:
    """With the last one that began earlier and has finished; None where there is none.

    What was cancelled stands for itself.
    """
    if run.state == "cancelled":
        return None
    found = await queue.runs(scraper=run.scraper, states=FINISHED, before=run.id, limit=1)
    if not found:
        return None
    (was,) = await queue.stats_of([found[0].id])
    return compare(run, stats, found[0], was, now)


async def compare_all_with_previous(
    queue: Queue, runs: Sequence[Run], stats: Sequence[Stats], now: int
) -> dict[int, Comparison]:
    """The same for a list, newest first, in two questions; by the ids of runs."""
    if not runs:
        return {}
    known = await queue.runs(states=FINISHED, before=runs[0].id, limit=MAX_CANDIDATES)
    pairs = {
        run.id: next((it for it in known if it.id < run.id and it.scraper == run.scraper), None)
        for run in runs
        if run.state != "cancelled"
    }
    ids = sorted({former.id for former in pairs.values() if former})
    was = dict(zip(ids, await queue.stats_of(ids), strict=True)) if ids else {}
    return {
        run.id: compare(run, counted, former, was[former.id], now)
        for run, counted in zip(runs, stats, strict=True)
        if (former := pairs.get(run.id))
    }


def compare(run: Run, stats: Stats, before: Run, was: Stats, now: int) -> Comparison:
    ended = bool(run.finished_at)
    took = ((run.finished_at or now) - run.created_at) / 1e6
    took_then = max(0.0, (before.finished_at - before.created_at) / 1e6)
    changes = (
        FigureChange(
            "rows",
            count(stats.records),
            count(was.records),
            percent_change(stats.records, was.records) if ended else percent_of(stats.records, was.records),
            ended and stats.records < was.records * (1 - ROWS_LOSS),
        ),
        FigureChange(
            "ok",
            _format_success_rate(stats),
            _format_success_rate(was),
            _format_point_change(stats, was),
            _success_rate(stats) < _success_rate(was) - SUCCESS_LOSS,
        ),
        FigureChange(
            "took", format_duration(took), format_duration(took_then), percent_change(took, took_then) if ended else ""
        ),
    )
    return Comparison(before, changes, ended)


def _success_rate(stats: Stats) -> float:
    """Which share of what came to an end went well."""
    ended = stats.done + stats.failed
    return stats.done / ended if ended else 1.0


def _format_success_rate(stats: Stats) -> str:
    if not stats.done + stats.failed:
        return "–"
    least = 100 * _success_rate(stats)
    return "100 %" if not stats.failed else f"{min(least, 99.9):.1f} %"


def _format_point_change(stats: Stats, was: Stats) -> str:
    if not stats.done + stats.failed or not was.done + was.failed:
        return ""
    points = round(100 * (_success_rate(stats) - _success_rate(was)), 1)
    return f"{_sign(points)}{abs(points):g} points"


def percent_change(now: float, was: float) -> str:
    """How much more or less: "+12 %", "−3.4 %", "±0 %"; nothing where there was nothing."""
    if was <= 0:
        return "" if now else "±0 %"
    percent = 100 * (now - was) / was
    return f"{_sign(round(percent, 1))}{_format_percent(abs(percent))} %"


def percent_of(now: float, was: float) -> str:
    """How much of it there is already."""
    if 0 < was < now:
        return percent_change(now, was)
    return f"{_format_percent(100 * now / was)} % of it" if was > 0 else ""


def _format_percent(percent: float) -> str:
    return f"{percent:,.0f}" if percent >= 9.95 else f"{round(percent, 1):g}"


def _sign(number: float) -> str:
    return "+" if number > 0 else "\N{MINUS SIGN}" if number < 0 else "±"
