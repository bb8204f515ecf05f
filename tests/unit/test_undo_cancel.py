"""Undo of a cancel, as people ask for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from shoal.core.run import NewRun, Run
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import UNDO_SECONDS, Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.queue_identity import MoveRecord
from shoal.runs.undo_cancel import is_undoable, undo_cancel

HOUR = round(UNDO_SECONDS * 1_000_000)


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:")
    yield opened
    await opened.close()


@pytest.fixture
async def cancelled(queue: Queue) -> Run:
    run = await queue.start_run(NewRun(scraper="books", key="books", name="books-1"))
    return await queue.set_run(run.id, "cancel")


async def test_a_cancelled_run_goes_on(queue: Queue, cancelled: Run) -> None:
    assert (await undo_cancel(queue, cancelled)).state == "running"


async def test_a_run_that_was_not_cancelled_has_nothing_to_undo(queue: Queue, cancelled: Run) -> None:
    running = await undo_cancel(queue, cancelled)
    with pytest.raises(UsageError, match="books-1 is running: there is no cancel to undo"):
        await undo_cancel(queue, running)


async def test_a_run_that_was_moved_goes_on_where_it_is_now(queue: Queue, cancelled: Run) -> None:
    moved = MoveRecord("other", "redis://there", "running", gone=True)
    await queue.compare_and_swap(kinds.MOVING, cancelled.name, msgspec.json.encode(moved).decode(), 0)
    with pytest.raises(UsageError, match="was moved to redis://there"):
        await undo_cancel(queue, cancelled)
    assert [run.state for run in await queue.runs()] == ["cancelled"]


async def test_why_undo_is_refused_is_said_with_what_to_do(queue: Queue, cancelled: Run) -> None:
    await queue.start_run(NewRun(scraper="books", key="books", name="books-2"))
    with pytest.raises(UsageError, match="run books-2 goes on in its place") as refused:
        await undo_cancel(queue, cancelled)
    assert refused.value.hint == "cancel that one first: shoal cancel books-2"


def test_undo_is_offered_for_an_hour() -> None:
    run = Run(1, "books-1", "books", "books", "cancelled", 1, 1, finished_at=5)
    assert [is_undoable(run, now) for now in (5, 4 + HOUR, 5 + HOUR)] == [True, True, False]
    assert not is_undoable(msgspec.structs.replace(run, state="finished"), 5)
