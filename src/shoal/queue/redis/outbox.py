"""Outbox: what settled tasks want done elsewhere, until whoever drains it says that it was done."""

from __future__ import annotations

from collections.abc import Collection

from shoal.queue.base import StoredEntry
from shoal.queue.redis.engine import Engine

SLICE = 500  # entries per call


async def listing(engine: Engine, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    while len(found) < limit:
        size = min(SLICE, limit - len(found))
        page = await engine.run("list_outbox", kind, after, size)
        found += [StoredEntry(seq, run, kind, key.decode(), data) for seq, run, key, data in page]
        if len(page) < size:
            break
        after = found[-1].seq
    if found:
        await engine.flush()
    return found


async def acknowledge(engine: Engine, seqs: Collection[int]) -> int:
    all_, gone = list(seqs), 0
    for at in range(0, len(all_), SLICE):
        gone += await engine.run_cached("acknowledge", *all_[at : at + SLICE])
    return gone
