"""Takeover: what workers held that died on this machine goes back at once, not after a lease."""

from __future__ import annotations

from pathlib import Path

from shoal.core.figures import decode
from shoal.core.lane import Mark
from shoal.queue.base import Queue
from shoal.worker.farewell import Farewell, farewell_of, leave
from shoal.worker.note import Seen, dead_notes, discard, read


async def take_over(queue: Queue, folder: Path) -> None:
    """Give back what the dead left behind, as their notes tell it. Doing it twice is harmless."""
    dead = dead_notes(folder)
    await queue.reap(dead)
    marks = {mark.id: mark for mark in await queue.workers()} if dead else {}
    for worker in dead:
        if worker in marks:  # whoever is not has said farewell
            await leave(queue, _farewell(marks[worker], read(folder / worker)))
        await queue.forget_worker(worker)
        discard(folder / worker)


def _farewell(mark: Mark, seen: Seen | None) -> Farewell:
    """Its note is newer than its last heartbeat, but has no room for hosts."""
    if seen is None or seen.pages < mark.done:
        return farewell_of(mark)
    return Farewell(mark.id, mark.started_at, seen.pages, seen.failed, decode(seen.figures))
