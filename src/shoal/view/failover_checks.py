"""Checks after a fail-over: what the server that took over lacked, and whether the accounts still add up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import NotBalanced
from shoal.queue.base import Finding, Queue
from shoal.queue.document_kinds import FAILOVER
from shoal.queue.failover import LOG, FailoverNote, read_notes
from shoal.runs.identity import checked_stats
from shoal.view.formatting import ago, clean, count

DAY = 86_400_000_000
TOLD_FOR, WARNED_FOR = 7 * DAY, DAY
MAX_NOTES = 3
MAX_RUNS, MAX_COUNTED = 20, 200_000  # runs, and tasks of a run, that are counted again
LOSS_FIX = (
    "look at what was started or changed just then (shoal runs), and write exports of that time again;"
    " ?replicas=1 (Redis) or synchronous_standby_names (PostgreSQL) lets nothing be lost: docs/fail-over.md"
)


async def failover_findings(queue: Queue, runs: Sequence[Run]) -> AsyncIterator[Finding]:
    notes, now = read_notes(await queue.document(FAILOVER, LOG)), await queue.now()
    recent = [note for note in notes if now - note.at < TOLD_FOR]
    for note in recent[-MAX_NOTES:]:
        yield _finding(note, now)
    if recent:
        for run in [run for run in runs if not run.finished_at][:MAX_RUNS]:
            if (found := await _account(queue, run)) is not None:
                yield found


def _finding(note: FailoverNote, now: int) -> Finding:
    words = f"another server took over {ago(note.at, now)} ({clean(note.before)[:20]} → {clean(note.after)[:20]})"
    words += f": {count(note.processes, 'client')} repeated {count(note.repeated, 'change')} of the last seconds"
    if not (note.missing or note.again or note.failed):
        return Finding("fail-over", "note", f"{words}, and none was missing")
    words += f"; {note.missing:,} were missing and are there again, {count(note.again, 'task')} run once more"
    if note.tasks:
        words += f" ({', '.join(map(str, note.tasks[:5]))}{', …' if note.again > 5 else ''})"
    if note.failed:
        words += f", {note.failed:,} could not be repeated"
    words += f". The last {note.window_ms:,} ms were not replicated: what others changed then may be missing"
    return Finding("fail-over", "warning" if now - note.at < WARNED_FOR else "note", words, LOSS_FIX)


async def _account(queue: Queue, run: Run) -> Finding | None:
    """Counters that differ from the tasks themselves, of a run that stands still meanwhile."""
    before = await queue.stats(run.id)
    if before.seen > MAX_COUNTED:
        return None
    try:
        await checked_stats(queue, run)
    except NotBalanced as error:
        if _counts(await queue.stats(run.id)) == _counts(before):
            fix = (
                f"let it finish, then look at shoal status {clean(run.name)}; if pages are missing, run it with --fresh"
            )
            return Finding("account", "wrong", str(error), fix)
    return None


def _counts(stats: Stats) -> tuple[int, ...]:
    return (stats.seen, stats.ready, stats.leased, stats.done, stats.dead, stats.cancelled, stats.records)
