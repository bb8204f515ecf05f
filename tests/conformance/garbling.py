"""A vandal: somebody who can write to the store, past the queue, and writes what nobody can read."""

from __future__ import annotations

import struct
from typing import Any, Protocol

import msgspec
import pytest

from conformance.harness import QueueHarness
from conformance.http_backend import ServedHttpQueue
from shoal.core.run import run_of
from shoal.queue.postgres import PostgresQueue
from shoal.queue.redis import RedisQueue
from shoal.queue.sqlite import SqliteQueue

TASK_CELLS = ["meta", "request_options", "history"]
_HEAD = 13  # bytes of an item before its body


class Vandal(Protocol):
    async def garble_task(self, task: int, cell: str, text: str) -> None: ...

    async def garble_spec(self, run: int, text: str) -> None: ...

    async def garble_worker(self, worker: str, text: str) -> None: ...

    async def garble_lease(self, lease: int, text: str) -> None: ...


class SqliteVandal:
    def __init__(self, queue: SqliteQueue) -> None:
        self._db = queue._engine.db

    async def garble_task(self, task: int, cell: str, text: str) -> None:
        self._db.execute(f"UPDATE tasks SET {cell} = ? WHERE id = ?", (text, task))

    async def garble_spec(self, run: int, text: str) -> None:
        self._db.execute("UPDATE runs SET spec = ? WHERE id = ?", (text, run))

    async def garble_worker(self, worker: str, text: str) -> None:
        self._db.execute("UPDATE workers SET details = ? WHERE id = ?", (text, worker))

    async def garble_lease(self, lease: int, text: str) -> None:
        self._db.execute("UPDATE leases SET started = ? WHERE number = ?", (text, lease))

    def garble_counters(self, run: int, text: str) -> None:
        self._db.execute("UPDATE run_counters SET counts = ? WHERE run = ?", (text, run))


class PostgresVandal:
    def __init__(self, queue: PostgresQueue) -> None:
        self._engine = queue._engine

    async def garble_task(self, task: int, cell: str, text: str) -> None:
        await self._engine.value(f"UPDATE {{s}}.ready SET {cell} = $1 WHERE id = $2", text, task)

    async def garble_spec(self, run: int, text: str) -> None:
        await self._engine.value("UPDATE {s}.runs SET spec = $1 WHERE id = $2", text, run)

    async def garble_worker(self, worker: str, text: str) -> None:
        pytest.skip("its columns have types of their own")

    async def garble_lease(self, lease: int, text: str) -> None:
        pytest.skip("its columns have types of their own")


class RedisVandal:
    def __init__(self, queue: RedisQueue) -> None:
        self._engine = queue._engine

    async def garble_task(self, task: int, cell: str, text: str) -> None:
        """Redis keeps one text for what only workers need; what people see is another."""
        key = f"ready:{run_of(task)}:1:5"
        for place, item in enumerate(await self._engine.read("LRANGE", key, 0, -1)):
            _, number, _ = struct.unpack_from(">BId", item)
            if number == task & 0xFFFFFFFF:
                await self._engine.read("LSET", key, place, _garbled_item(item, cell, text.encode()))

    async def garble_spec(self, run: int, text: str) -> None:
        await self._engine.read("HSET", f"run:{run}", "spec", text)

    async def garble_worker(self, worker: str, text: str) -> None:
        await self._engine.read("HSET", "workers", worker, text)

    async def garble_lease(self, lease: int, text: str) -> None:
        await self._engine.read("HSET", "leases", lease, text)


def _garbled_item(item: bytes, cell: str, garbage: bytes) -> bytes:
    (size,) = struct.unpack_from(">I", item, _HEAD)
    view = item[_HEAD + 4 : _HEAD + 4 + size]
    if cell == "history":
        return item[:_HEAD] + struct.pack(">I", len(garbage)) + garbage
    work = {"meta": b"[%b,null]", "request_options": b"[null,%b]"}[cell] % garbage
    assert msgspec.msgpack.decode(view)
    return item[:_HEAD] + struct.pack(">I", size) + view + work


def vandal_for(harness: QueueHarness) -> Vandal:
    queue: Any = harness.queue
    if isinstance(queue, ServedHttpQueue):
        queue = queue.backing
    for kind, vandal in ((SqliteQueue, SqliteVandal), (PostgresQueue, PostgresVandal), (RedisQueue, RedisVandal)):
        if isinstance(queue, kind):
            return vandal(queue)  # type: ignore[no-any-return]
    pytest.skip("it keeps objects, not texts")
