"""The run log: what happened to a run, from what the queue keeps anyway: actions, history and dead letters.

Of the last day it also tells when much more failed or was tried again than usual, and when it stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from shoal.control.actions import LoggedAction
from shoal.control.history import Series
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.logs import redact
from shoal.queue.base import DeadLetterGroup
from shoal.runs.progress import describe_cause
from shoal.view.formatting import count, format_duration
from shoal.view.progress import ProgressPoint, progress_points

STALLED_AFTER = 300.0  # seconds without a page, though there is work, that are worth telling
# Failures in one point, and how many times the share that the run has of them.
MIN_BURST, BURST_FACTOR = 10, 3.0
POINTS, MINUTE = 300, 60.0  # older history has a sample a minute: finer, what was told would change
KNOWN_WITHIN = 60.0  # seconds after its beginning from which the history must know it, to know all of it

EntryKind = Literal["", "ok", "failed", "wait", "now"]  # the sign before it


class RunLogEntry(msgspec.Struct, frozen=True):
    at: int  # microseconds
    what: str
    kind: EntryKind = ""
    more: str = ""
    who: str = ""
    cause: str = ""  # dead letters it speaks of


class Period(msgspec.Struct):
    """Points of time in a row at which something was so."""

    last: float  # seconds since 1970
    number: int = 0
    seconds: float = 0.0


def build_run_log(
    run: Run, stats: Stats, actions: Iterable[LoggedAction], groups: Sequence[DeadLetterGroup], series: Series
) -> list[RunLogEntry]:
    """All there is, the newest first."""
    entries = [
        *_lifecycle_entries(run, stats),
        *(_action_entry(action) for action in actions if _concerns(action, run)),
        *_cause_entries(groups),
        *(_not_after_end(run, entry) for entry in _history_entries(run, series)),
    ]
    return sorted(entries, key=lambda entry: -entry.at)


def paginate(entries: Sequence[RunLogEntry], before: int, limit: int) -> tuple[list[RunLogEntry], int]:
    """Those older than a moment, and the moment to go on before; 0: that was all.

    What happened at one moment stays on one page.
    """
    left = [entry for entry in entries if not before or entry.at < before]
    size = limit
    while 0 < size < len(left) and left[size].at == left[size - 1].at:
        size += 1
    return left[:size], left[size - 1].at if size < len(left) else 0


def _lifecycle_entries(run: Run, stats: Stats) -> Iterator[RunLogEntry]:
    yield RunLogEntry(run.created_at, "started", "now", _origin(run))
    if not run.finished_at:
        return
    took = format_duration(max(0.0, (run.finished_at - run.created_at) / 1e6))
    what = "task" if stats.aside else "page"  # sitemaps are no pages
    failed = f", {count(stats.failed)} failed" if stats.failed else ""
    given_up = f", {count(stats.cancelled)} dropped" if stats.cancelled else ""
    details = f"after {took}: {count(stats.done, what)} done{failed}{given_up}, {count(stats.records, 'record')}"
    well = run.state == "finished"
    yield RunLogEntry(run.finished_at, run.state if well else f"ended: {run.state}", "ok" if well else "", details)


def _origin(run: Run) -> str:
    """Where it came from, as far as it says so."""
    if schedule := run.spec.get("schedule"):
        return f"by the schedule {schedule}"
    if command := run.spec.get("command"):
        return str(redact(f"by {command}"))
    return ""


def _concerns(action: LoggedAction, run: Run) -> bool:
    """Names are given again once they are free: what was done before it began was about another."""
    ours = action.more.get("run") == run.name or (action.about == run.name and action.what in _ACTION_TEXTS)
    return ours and action.at >= run.created_at


_ACTION_TEXTS = {
    "pause": "paused", "resume": "resumed", "cancel": "cancelled", "undo": "cancel undone",
    "revive": "dead letters requeued",
    "drop": "pages dropped", "purge": "removed", "submit": "submitted", "add": "URLs added",
    "run now": "started by hand", "run schedule": "started by hand",
}  # fmt: skip


def describe_actor(action: LoggedAction) -> str:
    """Who did it, and how."""
    how = {"command": "by command", "api": "through the API", "page": "on a page", "queue": "through a remote queue"}
    return f"{action.who}, {how[action.via]}" if action.via in how else action.who


def _action_entry(action: LoggedAction) -> RunLogEntry:
    facts = dict(action.more)
    facts.pop("run", None)
    what = _ACTION_TEXTS.get(action.what, action.what)
    if (number := facts.pop("count", None)) is not None:
        what = f"{what}: {number:,}" if isinstance(number, int) else what
    kind: EntryKind = "wait" if action.what == "pause" else "failed" if action.what in ("cancel", "drop") else "now"
    return RunLogEntry(
        action.at, what, kind, ", ".join(_format_detail(*pair) for pair in facts.items()), describe_actor(action)
    )


def _format_detail(name: str, value: Any) -> str:
    if name == "tasks" and isinstance(value, int):
        return f"among {count(value, 'selected row')}"
    if name == "state":
        return {"ready": "that waited", "dead": "that had failed"}.get(value, f"state {value}")
    return f"{name} {value}"


def _cause_entries(groups: Sequence[DeadLetterGroup]) -> Iterator[RunLogEntry]:
    """When each cause was first seen; what was revived since is not among them."""
    first: dict[str, DeadLetterGroup] = {}
    sums: dict[str, int] = {}
    for group in groups:
        sums[group.cause] = sums.get(group.cause, 0) + group.count
        known = first.get(group.cause)
        if known is None or group.first_at < known.first_at:
            first[group.cause] = group
    for cause, group in first.items():
        details = f"at {group.lane}; {count(sums[cause])} by now"
        words = f"first permanent failure: {describe_cause(cause)}"
        yield RunLogEntry(group.first_at, words, "failed", details, cause=cause)


def _history_entries(run: Run, series: Series) -> Iterator[RunLogEntry]:
    """How it went, of the last day."""
    found = progress_points(run, series, POINTS)
    if first := next((point for point in found if point.done), None):
        whole = series.samples[0].at <= run.created_at / 1e6 + KNOWN_WITHIN
        yield RunLogEntry(int(first.at * 1e6), "the first pages were done" if whole else "at work", "ok")
    minutes = progress_points(run, series, POINTS, MINUTE)
    for it in _periods(minutes, _burst_filter(minutes, lambda point: point.dead)):
        yield _period_entry(it, f"{count(it.number, 'page')} failed permanently, many more than usual", "failed")
    for it in _periods(minutes, _burst_filter(minutes, lambda point: point.retries)):
        yield _period_entry(it, f"{count(it.number, 'page')} to be retried, many more than usual", "wait")
    for it in _periods(found, lambda point: int(not point.done and bool(point.open))):
        if it.seconds >= STALLED_AFTER:
            yield _period_entry(it, f"no page for {format_duration(it.seconds)}, though there was work", "wait")


def _not_after_end(run: Run, entry: RunLogEntry) -> RunLogEntry:
    """A sample that knows of a run's end is taken after it."""
    late = run.finished_at and entry.at > run.finished_at
    return msgspec.structs.replace(entry, at=run.finished_at) if late else entry


def _burst_filter(
    found: Sequence[ProgressPoint], number: Callable[[ProgressPoint], int]
) -> Callable[[ProgressPoint], int]:
    """Lets pass what is far above its share in the whole run: more alone may come from more pages."""
    share = sum(map(number, found)) / max(1, sum(map(_attempts, found)))
    least = min(BURST_FACTOR * share, (1 + share) / 2)
    return lambda point: it if (it := number(point)) >= MIN_BURST and it > least * _attempts(point) else 0


def _attempts(point: ProgressPoint) -> int:
    return point.done + point.dead + point.retries


def _periods(found: Sequence[ProgressPoint], value: Callable[[ProgressPoint], int]) -> list[Period]:
    made: list[Period] = []
    going = False
    for point in found:
        number = value(point)
        if number and not going:
            made.append(Period(point.at))
        if number:
            made[-1].last = point.at
            made[-1].number += number
            made[-1].seconds += point.span
        going = bool(number)
    return made


def _period_entry(it: Period, what: str, kind: EntryKind) -> RunLogEntry:
    lasted = f"within {format_duration(it.seconds)}" if it.seconds else ""
    return RunLogEntry(int(it.last * 1e6), what, kind, lasted)
