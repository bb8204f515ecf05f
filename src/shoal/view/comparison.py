"""Comparison: a run beside the last one of the same scraper that finished."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.words import count, lasting

FINISHED: tuple[RunState, ...] = ("finished",)
LOOKED_AT = 200  # finished runs in which those before the runs of a list are looked for
FEWER = 0.05  # so large a loss of rows is worth a look
WORSE = 0.01  # and so large a loss of pages that went well


class Change(msgspec.Struct, frozen=True):
    """One figure of both, in words."""

    name: str  # "rows", "ok", "took"
    now: str
    was: str
    by: str = ""  # "+12 %", or nothing where that cannot be told
    worse: bool = False  # enough to be looked at


class Comparison(msgspec.Struct, frozen=True):
    before: Run
    changes: tuple[Change, ...]
    ended: bool  # else it is what there is so far

    @property
    def rows(self) -> Change:
        return self.changes[0]

    @property
    def worse(self) -> bool:
        return any(it.worse for it in self.changes)


async def compared(queue: Queue, run: Run, stats: Stats, now: int) -> Comparison | None:
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


async def all_compared(
    queue: Queue, runs: Sequence[Run], stats: Sequence[Stats], now: int
) -> dict[int, Comparison]:
    """The same for a list, newest first, in two questions; by the ids of runs."""
    if not runs:
        return {}
    known = await queue.runs(states=FINISHED, before=runs[0].id, limit=LOOKED_AT)
    pairs = {run.id: former for run in runs if run.state != "cancelled" and (former := _former(run, known))}
    ids = sorted({former.id for former in pairs.values()})
    was = dict(zip(ids, await queue.stats_of(ids), strict=True)) if ids else {}
    return {
        run.id: compare(run, counted, former, was[former.id], now)
        for run, counted in zip(runs, stats, strict=True)
        if (former := pairs.get(run.id))
    }


def _former(run: Run, known: Sequence[Run]) -> Run | None:
    return next((it for it in known if it.id < run.id and it.scraper == run.scraper), None)


def compare(run: Run, stats: Stats, before: Run, was: Stats, now: int) -> Comparison:
    ended = bool(run.finished_at)
    took, took_then = ((run.finished_at or now) - run.created_at) / 1e6, _took(before)
    changes = (
        Change(
            "rows",
            count(stats.records),
            count(was.records),
            signed(stats.records, was.records) if ended else share(stats.records, was.records),
            ended and stats.records < was.records * (1 - FEWER),
        ),
        Change("ok", _percent(stats), _percent(was), _points(stats, was), _ok(stats) < _ok(was) - WORSE),
        Change("took", lasting(took), lasting(took_then), signed(took, took_then) if ended else ""),
    )
    return Comparison(before, changes, ended)


def _took(run: Run) -> float:
    return max(0.0, (run.finished_at - run.created_at) / 1e6)


def _ok(stats: Stats) -> float:
    """Which share of what came to an end went well."""
    ended = stats.done + stats.dead
    return stats.done / ended if ended else 1.0


def _percent(stats: Stats) -> str:
    if not stats.done + stats.dead:
        return "–"
    least = 100 * _ok(stats)
    return "100 %" if not stats.dead else f"{min(least, 99.9):.1f} %"


def _points(stats: Stats, was: Stats) -> str:
    if not stats.done + stats.dead or not was.done + was.dead:
        return ""
    points = round(100 * (_ok(stats) - _ok(was)), 1)
    return f"{_sign(points)}{abs(points):g} points"


def signed(now: float, was: float) -> str:
    """How much more or less: "+12 %", "−3.4 %", "±0 %"; nothing where there was nothing."""
    if was <= 0:
        return "" if now else "±0 %"
    percent = 100 * (now - was) / was
    return f"{_sign(round(percent, 1))}{_short(abs(percent))} %"


def share(now: float, was: float) -> str:
    """How much of it there is already."""
    if 0 < was < now:
        return signed(now, was)
    return f"{_short(100 * now / was)} % of it" if was > 0 else ""


def _short(percent: float) -> str:
    return f"{percent:,.0f}" if percent >= 9.95 else f"{round(percent, 1):g}"


def _sign(number: float) -> str:
    return "+" if number > 0 else "\N{MINUS SIGN}" if number < 0 else "±"
