"""Checks of the work itself: what waits and why nobody does it, what failed, and where results are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from shoal.config.load import Settings
from shoal.control.history import History
from shoal.errors import StoreRefused, StoreUnavailable
from shoal.queue.base import DeadLetterGroup, Finding, Queue
from shoal.runs.progress import describe_cause
from shoal.runs.result_location import ResultFinder
from shoal.view.advice import dead_groups_by_run, recommend
from shoal.view.capacity import RECENT_SECONDS
from shoal.view.dead_letters import count_by_cause
from shoal.view.formatting import clean, count
from shoal.view.recommendation import Recommendation
from shoal.view.run_state import fleet_workers
from shoal.view.snapshot import FleetMonitor, Snapshot

# How many workers there should be is said by `shoal advice`; dead letters are told below, also single ones.
NO_PROBLEM = frozenset(("scale_up", "scale_down", "host_bottleneck", "rate_limited", "code_error", "common_cause"))
MAX_FINDINGS = 20


async def work_findings(queue: Queue, settings: Settings) -> AsyncIterator[Finding]:
    snapshot = await FleetMonitor(queue, settings).snapshot()
    series = await History(queue, stale_after=settings.stale_after).read(RECENT_SECONDS)
    dead = await dead_groups_by_run(queue, snapshot)
    problems = [one for one in recommend(snapshot, series, dead=dead) if one.level != "good"]
    for one in [it for it in problems if it.kind not in NO_PROBLEM][:MAX_FINDINGS]:
        yield _finding(one)
    for finding in _paused_workers(snapshot):
        yield finding
    for run, groups in dead.items():
        yield _dead_letters(run, groups)
    unopened = await _unopened_results(queue, settings)
    if unopened is not None:
        yield unopened


def _finding(one: Recommendation) -> Finding:
    step = one.actions[0] if one.actions else None
    fix = "" if step is None else step.command or step.words
    return Finding("work", "warning" if one.level == "act" else "note", f"{one.title}: {one.why}", fix)


def _paused_workers(snapshot: Snapshot) -> Iterator[Finding]:
    """A worker that was paused lives and takes nothing, which looks like one that is stuck."""
    alive = fleet_workers(snapshot.alive)
    paused = [status for status in alive if status.command == "pause" or status.state == "paused"]
    if paused:
        is_all = len(paused) == len(alive) and snapshot.unfinished_totals.open
        words = f"{count(len(paused))} of {count(len(alive), 'worker')} paused by a person: they take no tasks"
        fix = f"shoal drain {clean(paused[0].id)} --resume"
        yield Finding("work", "warning" if is_all else "note", words, fix)


def _dead_letters(run: str, groups: Sequence[DeadLetterGroup]) -> Finding:
    counts = count_by_cause(groups)
    cause, _ = max(counts.items(), key=lambda pair: pair[1])
    words = f"{count(sum(counts.values()), 'task')} of run {clean(run)} failed for good and left no result"
    words += f", mostly {describe_cause(cause)} ({clean(cause)})"
    return Finding("results", "note", words, f"shoal dead {clean(run)}")


async def _unopened_results(queue: Queue, settings: Settings) -> Finding | None:
    """Results that went to a store which this machine cannot open, or does not trust."""
    if settings.store:
        return None  # it is looked at by itself
    finder = ResultFinder(queue, settings)
    try:
        await finder.find()
    except (StoreRefused, StoreUnavailable) as error:
        return Finding("results", "warning", str(error), error.hint)
    finally:
        await finder.close()
    return None
