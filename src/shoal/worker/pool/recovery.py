"""Recovery: what crashed workers of this machine held goes back at once, not when leases expire."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from shoal.core.counters import WorkerCounters, decode
from shoal.core.lane import WorkerStatus
from shoal.queue.base import Queue
from shoal.worker.pool.crash_note import CrashNoteSnapshot, delete_note, find_dead_workers, read_note
from shoal.worker.pool.final_counts import counters_of, save_final_counts


async def recover_dead_workers(queue: Queue, folder: Path, dead: Mapping[str, Collection[int]] | None = None) -> None:
    """Give back what dead workers held, by their crash notes, or only these. Doing it twice is harmless."""
    dead = find_dead_workers(folder) if dead is None else dead
    await queue.reap(dead)
    statuses = {status.id: status for status in await queue.workers()} if dead else {}
    for worker in dead:
        if worker in statuses:  # else its final counts are saved
            await save_final_counts(queue, _final_counts(statuses[worker], read_note(folder / worker)))
        await queue.forget_worker(worker)
        delete_note(folder / worker)


def _final_counts(status: WorkerStatus, snapshot: CrashNoteSnapshot | None) -> WorkerCounters:
    """Its note is newer than its last heartbeat, but has no room for hosts."""
    if snapshot is None or snapshot.pages < status.done:
        return counters_of(status)
    counters = decode(snapshot.counters)
    return WorkerCounters(status.id, status.started_at, snapshot.pages, snapshot.failed, counters)
