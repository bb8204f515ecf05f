"""Reap, and the registry of workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shoal.core.lane import WorkerStatus
from shoal.queue.base import MAX_COUNTERS_BYTES, ReapResult
from shoal.queue.cells import UNREADABLE
from shoal.queue.redis import cache, failing, idle_lanes, seen_sets
from shoal.queue.redis.engine import Engine

CALLS = 50  # of reap in a row; the rest is for the next time
_StatusFields = tuple[str, str, int, str, int, int, str, str, tuple[str, ...], str, int, int, int, tuple[str, ...]]
_FIELDS = (
    "name", "host", "pid", "version", "started_at", "seen_at", "state", "activity",
    "serves", "code", "done", "failed", "memory", "capabilities",
)  # fmt: skip
_unpack_status = msgspec.msgpack.Decoder(_StatusFields).decode


async def reap(engine: Engine, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
    dead_workers = dead_workers or {}
    words: list[Any] = [len(dead_workers)]
    for worker, executing in dead_workers.items():
        words += (worker, len(executing), *executing)
    total = [0, 0, 0]
    for _ in range(CALLS):
        *counts, more = await engine.run("reap", *words)
        total = [have + new for have, new in zip(total, counts, strict=True)]
        if not more:
            break
    await seen_sets.sweep(engine)
    await failing.forget_old(engine)
    await idle_lanes.remove(engine)
    await cache.sweep(engine)
    return ReapResult(*total)


async def register(engine: Engine, status: WorkerStatus) -> str:
    fields: _StatusFields = (
        status.name, status.host, status.pid, status.version, status.started_at, 0, status.state,
        status.activity, status.serves, status.code, status.done, status.failed, status.memory, status.capabilities,
    )  # fmt: skip
    counters = status.counters if len(status.counters) <= MAX_COUNTERS_BYTES else b""
    command: bytes = await engine.run("register", status.id, msgspec.msgpack.encode(fields), counters)
    return command.decode()


async def set_command(engine: Engine, worker: str, command: str) -> bool:
    return bool(await engine.run("command_worker", worker, command))


async def workers(engine: Engine) -> list[WorkerStatus]:
    leases, known, command, counted = await asyncio.gather(
        *(engine.read("HGETALL", key) for key in ("leases", "workers", "commands", "counters"))
    )
    sizes = await asyncio.gather(*(engine.read("HLEN", f"lease:{name.decode()}") for name in leases[::2]))
    leased: Counter[str] = Counter()
    for about, size in zip(leases[1::2], sizes, strict=True):
        leased[_worker_of(about)] += size
    words = {id.decode(): word.decode() for id, word in zip(command[::2], command[1::2], strict=True)}
    counters = dict(zip(counted[::2], counted[1::2], strict=True))
    statuses = []
    for name, fields in zip(known[::2], known[1::2], strict=True):
        id = name.decode()
        try:
            status: dict[str, Any] = dict(zip(_FIELDS, _unpack_status(fields), strict=True))
        except UNREADABLE:
            continue  # it is written anew with its next heartbeat, or forgotten
        about = counters.get(name, b"")
        statuses.append(WorkerStatus(id=id, leased=leased[id], command=words.get(id, ""), counters=about, **status))
    return sorted(statuses, key=lambda status: (status.started_at, status.id))


def _worker_of(lease: bytes) -> str:
    try:
        return str(msgspec.msgpack.decode(lease)[0])
    except (*UNREADABLE, LookupError):
        return ""  # its tasks go back, see lua/leases.lua


async def forget(engine: Engine, worker: str) -> None:
    await engine.run("forget", worker, 0)
