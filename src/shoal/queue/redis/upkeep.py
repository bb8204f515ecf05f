"""Upkeep: reap, and the registry of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shoal.core.lane import Mark
from shoal.queue.base import Reaped
from shoal.queue.redis.engine import Engine

_unpack_mark = msgspec.msgpack.Decoder(tuple[str, str, int, str, int, int, str, str]).decode
CALLS = 50  # of reap in a row; the rest is for the next time


async def reap(engine: Engine, dead_workers: Mapping[str, Collection[int]]) -> Reaped:
    words: list[Any] = [len(dead_workers)]
    for worker, executing in dead_workers.items():
        words += (worker, len(executing), *executing)
    total = [0, 0, 0]
    for _ in range(CALLS):
        *counts, more = await engine.run("reap", *words)
        total = [have + new for have, new in zip(total, counts, strict=True)]
        if not more:
            break
    return Reaped(*total)


async def register(engine: Engine, mark: Mark) -> None:
    told = (mark.name, mark.host, mark.pid, mark.version, mark.started_at, 0, mark.state, mark.doing)
    await engine.run("register", mark.id, msgspec.msgpack.encode(told))


async def workers(engine: Engine) -> list[Mark]:
    leased: Counter[str] = Counter()
    leases = await engine.read("HGETALL", "leases")
    for at in range(0, len(leases), 2):
        worker = msgspec.msgpack.decode(leases[at + 1])[0]
        leased[worker] += await engine.read("HLEN", f"lease:{leases[at].decode()}")
    known = await engine.read("HGETALL", "workers")
    marks = []
    for at in range(0, len(known), 2):
        id = known[at].decode()
        marks.append(Mark(id, *_unpack_mark(known[at + 1]), leased[id]))
    return sorted(marks, key=lambda mark: (mark.started_at, mark.id))


async def forget(engine: Engine, worker: str) -> None:
    await engine.read("HDEL", "workers", worker)
