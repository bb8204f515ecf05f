"""Chronicle: what happened to a run, from what the queue keeps anyway: actions, history and dead letters.

Of the last day it also tells when much more failed or was tried again than usual, and when it stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from shoal.control.acting import Action
from shoal.control.history import Series
from shoal.control.report import cause_words
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.logs import redact
from shoal.queue.base import DeadGroup
from shoal.view.progress import Point, points
from shoal.view.words import count, lasting

STILL = 300.0  # seconds without a page, though there is work, that are worth telling
BURST, USUAL = 10, 3.0  # failures in one point, and how many times the share that the run has of them
POINTS, MINUTE = 300, 60.0  # older history has a sample a minute: finer, what was told would change
WHOLE = 60.0  # seconds after its beginning from which the history must know it, to know all of it

Kind = Literal["", "ok", "failed", "wait", "now"]  # the sign before it


class Entry(msgspec.Struct, frozen=True):
    at: int  # microseconds
    what: str
    kind: Kind = ""
    more: str = ""
    who: str = ""
    cause: str = ""  # dead letters it speaks of


class Stretch(msgspec.Struct):
    """Points of time in a row at which something was so."""

    last: float  # seconds since 1970
    number: int = 0
    seconds: float = 0.0


def chronicle(
    run: Run, stats: Stats, actions: Iterable[Action], groups: Sequence[DeadGroup], series: Series
) -> list[Entry]:
    """All there is, the newest first."""
    entries = [
        *_own(run, stats),
        *(_act(action) for action in actions if _about(action, run)),
        *_causes(groups),
        *(_within(run, entry) for entry in _going(run, series)),
    ]
    return sorted(entries, key=lambda entry: -entry.at)


def paged(entries: Sequence[Entry], before: int, limit: int) -> tuple[list[Entry], int]:
    """Those older than a moment, and the moment to go on before; 0: that was all.

    What happened at one moment stays on one page.
    """
    left = [entry for entry in entries if not before or entry.at < before]
    size = limit
    while 0 < size < len(left) and left[size].at == left[size - 1].at:
        size += 1
    return left[:size], left[size - 1].at if size < len(left) else 0


def _own(run: Run, stats: Stats) -> Iterator[Entry]:
    yield Entry(run.created_at, "begun", "now", _origin(run))
    if not run.finished_at:
        return
    took = lasting(max(0.0, (run.finished_at - run.created_at) / 1e6))
    failed = f", {count(stats.dead)} failed" if stats.dead else ""
    given_up = f", {count(stats.cancelled)} given up" if stats.cancelled else ""
    told = (
        f"after {took}: {count(stats.done, 'page')} done{failed}{given_up}, {count(stats.records, 'record')}"
    )
    well = run.state == "finished"
    yield Entry(run.finished_at, run.state if well else f"ended: {run.state}", "ok" if well else "", told)


def _origin(run: Run) -> str:
    """Where it came from, as far as it says so."""
    if schedule := run.spec.get("schedule"):
        return f"by the schedule {schedule}"
    if command := run.spec.get("command"):
        return str(redact(f"by {command}"))
    return ""


def _about(action: Action, run: Run) -> bool:
    """Names are given again once they are free: what was done before it began was about another."""
    ours = action.more.get("run") == run.name or (action.about == run.name and action.what in _DONE)
    return ours and action.at >= run.created_at


_DONE = {
    "pause": "paused", "resume": "went on", "cancel": "cancelled", "revive": "dead letters put back to work",
    "drop": "pages given up", "purge": "removed", "submit": "submitted", "add": "addresses added",
    "run now": "started by hand", "run schedule": "started by hand",
}  # fmt: skip


def _act(action: Action) -> Entry:
    facts = dict(action.more)
    facts.pop("run", None)
    what = _DONE.get(action.what, action.what)
    if (number := facts.pop("count", None)) is not None:
        what = f"{what}: {number:,}" if isinstance(number, int) else what
    kind: Kind = (
        "wait" if action.what == "pause" else "failed" if action.what in ("cancel", "drop") else "now"
    )
    return Entry(action.at, what, kind, ", ".join(_fact(*pair) for pair in facts.items()), action.who)


def _fact(name: str, value: Any) -> str:
    if name == "tasks" and isinstance(value, int):
        return f"among {count(value, 'chosen row')}"
    if name == "state":
        return {"ready": "that waited", "dead": "that had failed"}.get(value, f"state {value}")
    return f"{name} {value}"


def _causes(groups: Sequence[DeadGroup]) -> Iterator[Entry]:
    """When each cause was first seen; what was revived since is not among them."""
    first: dict[str, DeadGroup] = {}
    sums: dict[str, int] = {}
    for group in groups:
        sums[group.cause] = sums.get(group.cause, 0) + group.count
        known = first.get(group.cause)
        if known is None or group.first_at < known.first_at:
            first[group.cause] = group
    for cause, group in first.items():
        told = f"at {group.lane}; {count(sums[cause])} of it by now"
        yield Entry(group.first_at, f"failed for good for the first time: {cause_words(cause)}", "failed",
                    told, cause=cause)  # fmt: skip


def _going(run: Run, series: Series) -> Iterator[Entry]:
    """How it went, of the last day."""
    found = points(run, series, POINTS)
    if first := next((point for point in found if point.done), None):
        whole = series.samples[0].at <= run.created_at / 1e6 + WHOLE
        yield Entry(int(first.at * 1e6), "the first pages came in" if whole else "at work", "ok")
    minutes = points(run, series, POINTS, MINUTE)
    for it in _stretches(minutes, _many(minutes, lambda point: point.dead)):
        yield _told(it, f"{count(it.number, 'page')} failed for good, many more than usual", "failed")
    for it in _stretches(minutes, _many(minutes, lambda point: point.retries)):
        yield _told(it, f"{count(it.number, 'page')} to be tried again, many more than usual", "wait")
    for it in _stretches(found, lambda point: int(not point.done and bool(point.open))):
        if it.seconds >= STILL:
            yield _told(it, f"no page for {lasting(it.seconds)}, though there was work", "wait")


def _within(run: Run, entry: Entry) -> Entry:
    """A sample that knows of a run's end is taken after it."""
    late = run.finished_at and entry.at > run.finished_at
    return msgspec.structs.replace(entry, at=run.finished_at) if late else entry


def _many(found: Sequence[Point], number: Callable[[Point], int]) -> Callable[[Point], int]:
    """Lets pass what is far above its share in the whole run: more alone may come from more pages."""
    share = sum(map(number, found)) / max(1, sum(map(_tried, found)))
    least = min(USUAL * share, (1 + share) / 2)
    return lambda point: it if (it := number(point)) >= BURST and it > least * _tried(point) else 0


def _tried(point: Point) -> int:
    return point.done + point.dead + point.retries


def _stretches(found: Sequence[Point], value: Callable[[Point], int]) -> list[Stretch]:
    made: list[Stretch] = []
    going = False
    for point in found:
        number = value(point)
        if number and not going:
            made.append(Stretch(point.at))
        if number:
            made[-1].last = point.at
            made[-1].number += number
            made[-1].seconds += point.span
        going = bool(number)
    return made


def _told(it: Stretch, what: str, kind: Kind) -> Entry:
    lasted = f"within {lasting(it.seconds)}" if it.seconds else ""
    return Entry(int(it.last * 1e6), what, kind, lasted)
