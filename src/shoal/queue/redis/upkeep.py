"""Upkeep: reap, and the registry of workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shoal.core.lane import Mark
from shoal.queue.base import FIGURES_CAP, Reaped
from shoal.queue.redis.engine import Engine

CALLS = 50  # of reap in a row; the rest is for the next time
_Told = tuple[str, str, int, str, int, int, str, str, tuple[str, ...], str, int, int, int]
_FIELDS = (
    "name", "host", "pid", "version", "started_at", "seen_at", "state", "doing",
    "serves", "code", "done", "failed", "memory",
)  # fmt: skip
_unpack_mark = msgspec.msgpack.Decoder(_Told).decode


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


async def register(engine: Engine, mark: Mark) -> str:
    told: _Told = (
        mark.name, mark.host, mark.pid, mark.version, mark.started_at, 0, mark.state, mark.doing,
        mark.serves, mark.code, mark.done, mark.failed, mark.memory,
    )  # fmt: skip
    figures = mark.figures if len(mark.figures) <= FIGURES_CAP else b""
    asked: bytes = await engine.run("register", mark.id, msgspec.msgpack.encode(told), figures)
    return asked.decode()


async def ask(engine: Engine, worker: str, wanted: str) -> bool:
    return bool(await engine.run("ask_worker", worker, wanted))


async def workers(engine: Engine) -> list[Mark]:
    leases, known, asked, counted = await asyncio.gather(
        *(engine.read("HGETALL", key) for key in ("leases", "workers", "asked", "figures"))
    )
    sizes = await asyncio.gather(*(engine.read("HLEN", f"lease:{name.decode()}") for name in leases[::2]))
    leased: Counter[str] = Counter()
    for about, size in zip(leases[1::2], sizes, strict=True):
        leased[msgspec.msgpack.decode(about)[0]] += size
    words = {id.decode(): word.decode() for id, word in zip(asked[::2], asked[1::2], strict=True)}
    figures = dict(zip(counted[::2], counted[1::2], strict=True))
    marks = []
    for name, told in zip(known[::2], known[1::2], strict=True):
        id = name.decode()
        mark: dict[str, Any] = dict(zip(_FIELDS, _unpack_mark(told), strict=True))
        about = figures.get(name, b"")
        marks.append(Mark(id=id, leased=leased[id], asked=words.get(id, ""), figures=about, **mark))
    return sorted(marks, key=lambda mark: (mark.started_at, mark.id))


async def forget(engine: Engine, worker: str) -> None:
    await engine.run("forget", worker, 0)
