"""Takeover: what workers held that died on this machine goes back at once, not after a lease."""

from __future__ import annotations

from pathlib import Path

from shoal.queue.base import Queue
from shoal.worker.note import dead_notes, discard


async def take_over(queue: Queue, folder: Path) -> None:
    """Give back what the dead left behind, as their notes tell it. Doing it twice is harmless."""
    dead = dead_notes(folder)
    await queue.reap(dead)
    for worker in dead:
        await queue.forget_worker(worker)
        discard(folder / worker)
