"""Seen-sets: what runs of one name have had between them, kept when the runs are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.core.seen_set import CLEAR_STEPS
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import DIGEST, SECOND
from shoal.queue.values import SeenSet

ENTRY_BYTES = 18  # of one in the server's memory, measured with a million of them
_FIELDS = ("marks", "seen_for", "created_at", "changed_at")
FORGOTTEN = 1_000  # per call


async def listing(engine: Engine) -> list[SeenSet]:
    known = await engine.read("HGETALL", "seen_sets")
    rows = await asyncio.gather(
        *(engine.read("HMGET", f"seen_set:{number.decode()}", *_FIELDS) for number in known[1::2])
    )
    found = []
    for name, row in zip(known[::2], rows, strict=True):
        entries, seen_for, created_at, changed_at = (int(value or 0) for value in row)
        found.append(SeenSet(name.decode(), entries, entries * ENTRY_BYTES, seen_for / SECOND, created_at, changed_at))
    return sorted(found, key=lambda it: it.name)


async def forget(engine: Engine, name: str, digests: Sequence[bytes]) -> int:
    gone = 0
    for first in range(0, len(digests), FORGOTTEN):
        some = [digest[:DIGEST] for digest in digests[first : first + FORGOTTEN]]
        gone += await engine.run_cached("forget_seen", name, *some)
    return gone


async def clear(engine: Engine, name: str) -> int:
    number, count = await engine.run_cached("clear_seen", name)
    for _ in range(CLEAR_STEPS):  # what is left is removed with maintenance
        if not number or not await engine.run("clear_seen_slice", number):
            break
    return int(count)


async def sweep(engine: Engine) -> None:
    """Remove a slice of what is remembered no more, and of what a clearing that died has left."""
    cleared = await engine.run("sweep_seen")
    if cleared:
        await engine.run("clear_seen_slice", cleared)
