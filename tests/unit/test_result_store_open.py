"""Opening a result store that others are making at the same moment."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shoal.errors import StoreUnavailable
from shoal.files import sqlite as module
from shoal.store.results import sqlite as results
from shoal.store.results.sqlite import SqliteResultBackend


@pytest.fixture
def other(tmp_path: Path) -> sqlite3.Connection:
    """Another process that is about to write to the new file."""
    db = sqlite3.connect(tmp_path / "results.db", isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    return db


async def test_a_new_store_that_another_is_making_is_waited_for(
    other: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def slept(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 3:
            other.close()

    monkeypatch.setattr(module.time, "sleep", slept)
    store = await SqliteResultBackend.open(str(tmp_path / "results.db"))
    assert len(tries) == 3
    assert await store.count() == 0
    await store.close()


def test_a_store_that_stays_locked_is_given_up_when_its_time_is_over(
    other: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0

    def slept(seconds: float) -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(module.time, "sleep", slept)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with pytest.raises(StoreUnavailable, match="locked by another program for 30 s"):
        results._open(str(tmp_path / "results.db"))
    assert now >= 130.0
    other.close()
