"""Captures and what was learned of hosts are removed in time, and a capture that is too big is told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from shoal.control import kept_documents_gc
from shoal.control.document_gc import SHARDS
from shoal.control.kept_documents_gc import remove_some_kept_documents
from shoal.control.maintenance import Maintenance
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.queue.captures import KEPT_FOR, MAX_CAPTURE, MAX_CAPTURES, Capture, find_capture, save_capture
from shoal.queue.sqlite import SqliteQueue

PNG = Capture("image/png", b"picture")
WEEK = int(KEPT_FOR * 1e6)


class LaterQueue:
    """A queue some time later."""

    def __init__(self, queue: SqliteQueue, later: int) -> None:
        self._queue, self._later = queue, later

    async def now(self) -> int:
        return await self._queue.now() + self._later

    @property
    def documents(self) -> Callable[..., object]:
        return self._queue.documents

    @property
    def compare_and_swap(self) -> Callable[..., object]:
        return self._queue.compare_and_swap


async def all_captures(queue: SqliteQueue) -> list[Document]:
    return [one for n in range(SHARDS) for one in await queue.documents(f"{kinds.CAPTURE}{n:02x}")]


async def test_captures_are_kept_for_a_week_and_removed_by_commands(queue: SqliteQueue) -> None:
    for task in range(1, 9):
        assert await save_capture(queue, task, 0, PNG)
    for later, left in ((WEEK - 60_000_000, 8), (WEEK + 60_000_000, 0)):
        await remove_some_kept_documents(cast(Queue, LaterQueue(queue, later)), SHARDS)
        assert len(await all_captures(queue)) == left


async def test_a_fleet_without_a_server_removes_them_and_many_workers_do_not_do_it_more_often(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps = 0

    class Counted:
        async def sweep(self) -> int:
            nonlocal sweeps
            sweeps += 1
            return 0

    monkeypatch.setattr("shoal.control.maintenance.kept_documents_gc", lambda queue: Counted())
    maintenance = Maintenance(queue)
    await maintenance.run_once()
    assert sweeps == 1
    maintenance._workers = 10
    for luck, expected in ((0.099, 2), (0.1, 2), (0.9, 2)):
        monkeypatch.setattr("shoal.control.maintenance.random.random", lambda luck=luck: luck)
        await maintenance._remove_kept_documents()
        assert sweeps == expected


def test_what_workers_and_servers_remove_is_the_same(queue: SqliteQueue) -> None:
    swept = [it._kind for it in kept_documents_gc.kept_documents_gc(queue)._sweepers]
    assert swept == [kinds.CAPTURE, kinds.BLOCKS, kinds.BLOCK_EVIDENCE, kinds.FETCHING]


async def test_of_a_capture_that_is_too_big_its_size_is_kept(queue: SqliteQueue) -> None:
    assert await save_capture(queue, 1, 0, Capture("image/png", b"x" * (MAX_CAPTURE + 1)))
    assert await find_capture(queue, 1, 0) == Capture("image/png", b"", too_big=MAX_CAPTURE + 1)
    assert await save_capture(queue, 1, 0, PNG)  # of the next attempt
    assert await find_capture(queue, 1, 0) == PNG
    assert not await save_capture(queue, 1, MAX_CAPTURES, PNG)
