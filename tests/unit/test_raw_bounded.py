"""Pages kept within a bound: the oldest go first, and nothing that happens there stops a run."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

import pytest

from shoal import app
from shoal.config.load import load
from shoal.core.page import Request, Response
from shoal.core.url import request_digest
from shoal.errors import QueueRefused
from shoal.fetch.raw_pages import RecordingFetcher
from shoal.queue.base import Queue
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.saved_pages import find_saved_pages
from shoal.store.raw.bounded import BoundedPageStore
from shoal.store.raw.file import FILE_NAME
from shoal.store.raw.page_store import RawPageStore

PAGE = 20_000  # bytes that do not shrink
MB = 1_000_000


def url(number: int) -> str:
    return f"http://shop.test/{number}"


def page(number: int, body: bytes | None = None) -> Response:
    return Response(url(number), 200, (), os.urandom(PAGE) if body is None else body)


def bounded(folder: Path, *, most: int = 10 * MB, free: int = 1_000 * MB) -> BoundedPageStore:
    return BoundedPageStore(folder, max_bytes=most, free_bytes=lambda _: free)


async def fill(store: BoundedPageStore, run: str, numbers: range) -> None:
    for number in numbers:
        store.put(run, request_digest(url(number)), page(number))
        if number % 10 == 9:
            await store.sync()
    await store.sync()


def kept(folder: Path, run: str) -> list[int]:
    reader = RawPageStore(folder)
    try:
        return [int(one.response.url.rpartition("/")[2]) for one in reader.pages(run)]
    finally:
        reader.close()


async def test_the_oldest_pages_make_room_and_the_newest_stay(tmp_path: Path) -> None:
    store = bounded(tmp_path, most=4 * MB)
    await fill(store, "first", range(100))
    await fill(store, "second", range(300))
    left = kept(tmp_path, "second")
    assert kept(tmp_path, "first") == []
    assert left == list(range(left[0], 300)), "the newest ones, without a gap"
    assert 100 < len(left) < 200
    store.close()
    assert (tmp_path / FILE_NAME).stat().st_size < 6 * MB, "space that was freed is used again"


async def test_a_tenth_of_the_free_disk_is_the_limit_where_that_is_less(tmp_path: Path) -> None:
    store = bounded(tmp_path, free=20 * MB)
    await fill(store, "run", range(300))
    store.close()
    assert 1.2 * MB < len(kept(tmp_path, "run")) * PAGE < 2.5 * MB


def used(folder: Path) -> int:
    return sum(place.stat().st_size for place in folder.glob(FILE_NAME))


async def test_a_disk_that_becomes_full_gets_its_space_back(tmp_path: Path) -> None:
    store = bounded(tmp_path)
    await fill(store, "run", range(400))
    store.close()
    before = used(tmp_path)
    store = bounded(tmp_path, free=MB)
    await fill(store, "run", range(400, 410))
    store.close()
    assert used(tmp_path) < before / 4


async def test_a_page_that_two_runs_have_stays_as_long_as_one_of_them_has_it(tmp_path: Path) -> None:
    store = bounded(tmp_path, most=4 * MB)
    same = os.urandom(PAGE)
    store.put("first", request_digest(url(1)), page(1, same))
    store.put("second", request_digest(url(1)), page(1, same))
    await store.sync()
    await fill(store, "second", range(2, 150))
    assert 1 not in kept(tmp_path, "first") or kept(tmp_path, "second")[0] == 1
    reader = RawPageStore(tmp_path)
    assert all(one.response.body for one in reader.pages("second"))
    reader.close()
    store.close()


def damage(folder: Path) -> None:
    (folder / FILE_NAME).write_bytes(b"not a database" * 1_000)


def newer(folder: Path) -> None:
    RawPageStore(folder).close()
    with sqlite3.connect(folder / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize("spoil", [damage, newer])
async def test_a_store_that_cannot_be_used_is_said_and_does_without(
    tmp_path: Path, spoil: object, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(tmp_path)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        store = bounded(tmp_path)
    assert [record.message for record in caplog.records] == ["pages_not_kept"]
    store.put("run", b"k", page(1))
    await store.sync()
    store.close()


async def test_a_store_that_another_process_locks_costs_pages_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.store.raw.bounded.LOCK_TIMEOUT", 0.05)
    store = bounded(tmp_path)
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("BEGIN IMMEDIATE")
    store.put("run", b"k", page(1))
    await store.sync()
    other.close()
    store.put("run", b"l", page(2))
    await store.sync()
    assert kept(tmp_path, "run") == []
    store.close()


@pytest.mark.parametrize("spoil", [damage, newer])
def test_pages_of_lists_that_cannot_be_read_are_as_good_as_none(tmp_path: Path, spoil: object) -> None:
    settings = load({"queue": str(tmp_path / "shoal.db")}, env={})
    folder = app.bounded_raw_folder(settings)
    RawPageStore(folder).close()
    spoil(folder)  # type: ignore[operator]
    assert app.open_saved_pages(settings) == []
    with pytest.raises(QueueRefused):
        app.open_saved_pages(settings, strict=True)


async def test_pages_that_cannot_be_removed_stop_no_run(tmp_path: Path, queue: Queue) -> None:
    settings = load({"queue": str(tmp_path / "shoal.db")}, env={})
    store = bounded(app.bounded_raw_folder(settings))
    await fill(store, "gone", range(30))
    store.close()
    place = app.bounded_raw_folder(settings) / FILE_NAME
    with sqlite3.connect(place) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.execute("DROP TABLE body")  # as good as damaged
    db.close()
    await remove_leftovers(queue, settings)
    assert find_saved_pages(settings, ["gone"]) is None


class Web:
    async def fetch(self, request: Request) -> Response:
        return Response(request.url, 200, (("set-cookie", "session=1"),), b"<h1>yours</h1>")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("headers", "is_kept"),
    [
        ((), True),
        ((("accept-language", "de"),), True),
        ((("cookie", "visitor=7"),), True),  # the site's own, given to whoever comes
        ((("authorization", "Bearer x"),), False),
        ((("X-Api-Key", "x"),), False),
        ((("x-session", "x"), ("accept", "*/*")), False),
    ],
)
async def test_nothing_that_was_fetched_with_a_login_is_kept(
    tmp_path: Path, headers: tuple[tuple[str, str], ...], is_kept: bool
) -> None:
    store = bounded(tmp_path)
    fetcher = RecordingFetcher(Web(), store, "run", anonymous_only=True)
    await fetcher.fetch(Request(url(1), headers=headers))
    await store.sync()
    store.close()
    assert kept(tmp_path, "run") == ([1] if is_kept else [])
    assert b"session=1" not in (tmp_path / FILE_NAME).read_bytes()
