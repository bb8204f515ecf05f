"""A queue for unit tests: a file of its own; a module with a `clock` gives it that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shoal.queue.sqlite import SqliteQueue


@pytest.fixture
def clock() -> Callable[[], int] | None:
    return None


@pytest.fixture
async def queue(tmp_path: Path, clock: Callable[[], int] | None) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), clock=clock, synchronous="normal")
    yield opened
    await opened.close()
