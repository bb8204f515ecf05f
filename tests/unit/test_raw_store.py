"""The store of raw responses: what is put there is there, once, whole, and gives its space back."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wait import HANG

from shoal.core.page import Response
from shoal.core.url import request_digest
from shoal.errors import QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.store.raw import file
from shoal.store.raw.block import UNCOMPRESSED, ZSTD, Block, BlockPacker, DamagedBlock, unpack
from shoal.store.raw.page_store import LARGE_BODY, MAX_PENDING_BYTES, RawPageStore

HTML = (("content-type", "text/html"), ("etag", '"1"'))


def url(number: int) -> str:
    return f"http://shop.test/{number}"


def key(number: int) -> bytes:
    return request_digest(url(number))


def answer(number: int, body: bytes | None = None, **other: object) -> Response:
    text = f"<html><body><h1>Book {number}</h1>{'<p>All prices are made up.</p>' * 40}</body></html>"
    told = {"seconds": 0.25, "address": "127.0.0.1"} | other
    return Response(url(number), 200, HTML, text.encode() if body is None else body, **told)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RawPageStore]:
    store = RawPageStore(tmp_path)
    yield store
    store.close()


async def filled(store: RawPageStore, run: str, numbers: range, batch: int = 10) -> None:
    for number in numbers:
        store.put(run, key(number), answer(number))
        if number % batch == batch - 1:
            await store.sync()
    await store.sync()


def blocks(folder: Path, what: str = "count(*)") -> int:
    with sqlite3.connect(folder / file.FILE_NAME) as db:
        found = db.execute(f"SELECT {what} FROM block WHERE bodies = 1").fetchone()[0]
    db.close()
    return int(found)


@pytest.mark.parametrize(
    "response",
    [
        answer(1),
        answer(1, b""),
        answer(1, b"x"),
        answer(1, os.urandom(5_000)),
        answer(1, b"<p>much</p>" * LARGE_BODY),
        answer(1, os.urandom(LARGE_BODY + 1)),
        answer(1, redirects=("http://shop.test/old", "http://shop.test/older")),
        Response(url(1), 404, (), b"gone"),
        Response(url(1), 301, (("location", "/there"),), b""),
        Response(url(1), 200, (("x-odd", "\x80ÿ"), ("x-odd", "twice")), b"\0\xff"),
    ],
)
async def test_an_answer_comes_back_as_it_was(tmp_path: Path, store: RawPageStore, response: Response) -> None:
    store.put("A", key(1), response)
    await store.sync()
    assert store.get("A", key(1)) == response
    other = RawPageStore(tmp_path)
    assert other.get("A", key(1)) == response
    assert other.get("B", key(1)) is None and other.get("A", key(2)) is None
    assert other.has("A", key(1)) and not other.has("B", key(1)) and not other.has("A", key(2))
    other.close()


async def test_answers_are_read_in_the_order_in_which_they_came(store: RawPageStore) -> None:
    await filled(store, "A", range(1_200))
    await filled(store, "B", range(5))
    assert [kept.response for kept in store.pages("A")] == [answer(number) for number in range(1_200)]
    assert [kept.digest for kept in store.pages("B")] == [key(number) for number in range(5)]
    assert list(store.pages("C")) == []


async def test_what_says_who_we_are_is_not_kept(tmp_path: Path, store: RawPageStore) -> None:
    secrets = ("set-cookie", "authorization", "proxy-authorization", "cookie", "x-csrf-token", "x-api-key")
    headers = tuple((name, "hush-hush") for name in secrets)
    store.put("A", key(1), Response(url(1), 200, (*HTML, *headers, ("x-author", "me")), b"x"))
    await store.sync()
    found = store.get("A", key(1))
    assert found is not None and found.headers == (*HTML, ("x-author", "me"))
    store.close()
    assert all(b"hush-hush" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_body_is_kept_once_however_often_it_comes(tmp_path: Path, store: RawPageStore) -> None:
    body = os.urandom(3_000)
    for number in range(10):
        store.put("A", key(number), answer(number, body))
    await store.sync()
    other = RawPageStore(tmp_path)
    other.put("B", key(99), answer(99, body))
    await other.sync()
    size = other.size()
    assert (size.answers, size.bodies, size.different, size.bytes) == (11, 1, 3_000, 33_000)
    assert blocks(tmp_path) == 1
    other.close()


async def test_the_same_body_kept_by_two_at_the_same_moment_is_kept_once(tmp_path: Path, store: RawPageStore) -> None:
    other = RawPageStore(tmp_path)
    store.put("A", key(1), answer(1))
    other.put("A", key(1), answer(1))
    other.put("A", key(2), answer(2))
    packed = await other._pack_new_bodies(other._pending)  # it has looked, and saw nobody
    await store.sync()
    await other._file.write(other._store, other._pending, packed)
    assert store.size().bodies == 2
    assert store.get("A", key(1)) == answer(1) and store.get("A", key(2)) == answer(2)
    await store.remove("A")
    assert blocks(tmp_path) == 0
    other.close()


async def test_a_body_whose_run_is_removed_while_it_is_put_again_is_kept(tmp_path: Path, store: RawPageStore) -> None:
    await filled(store, "A", range(1))
    other = RawPageStore(tmp_path)
    other.put("B", key(0), answer(0))
    packed = await other._pack_new_bodies(other._pending)
    assert packed == []  # it is known
    await store.remove("A")
    await other._file.write(other._store, other._pending, packed)
    assert store.get("B", key(0)) == answer(0)
    other.close()


async def test_a_page_fetched_again_takes_the_place_of_the_first(tmp_path: Path, store: RawPageStore) -> None:
    await filled(store, "A", range(3))
    for body in (b"again" * 100, b"and again" * 100):
        store.put("A", key(1), answer(1, body))
    await store.sync()
    assert [kept.response.body[:5] for kept in store.pages("A")] == [b"<html", b"and a", b"<html"]
    assert store.size().bodies == 3
    await store.remove("A")
    assert blocks(tmp_path) == 0


async def test_the_newest_answer_is_found_whatever_the_run(tmp_path: Path) -> None:
    now = [100]
    store = RawPageStore(tmp_path, wall=lambda: now[0])
    for run, at in (("A", 100), ("C", 300), ("B", 200)):
        now[0] = at
        store.put(run, key(1), answer(1, run.encode()))
        await store.sync()
    newest = store.latest(key(1))
    assert newest is not None
    assert (newest.run, newest.kept_at, newest.response.body) == ("C", 300, b"C")
    assert store.latest(key(2)) is None
    store.close()


async def test_pages_of_a_site_are_packed_together(tmp_path: Path, store: RawPageStore) -> None:
    await filled(store, "A", range(300), batch=30)
    assert blocks(tmp_path) == 10
    assert blocks(tmp_path, "sum(length(data))") * 20 < blocks(tmp_path, "sum(size)")


@pytest.mark.parametrize(
    ("plain", "codec"),
    [
        (b"", UNCOMPRESSED),
        (b"a" * 199, UNCOMPRESSED),
        (b"a" * 200, ZSTD),
        (os.urandom(50_000), UNCOMPRESSED),
        (b"ab" * 50_000, ZSTD),
    ],
)
def test_what_does_not_shrink_is_kept_plain(plain: bytes, codec: int) -> None:
    block = BlockPacker().pack(plain)
    assert block.codec == codec and len(block.data) <= len(plain)
    assert unpack(block) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"size": 10},
        {"size": 1_000_000},
        {"crc": 1},
        {"codec": 7},
        {"codec": UNCOMPRESSED},
        {"data": b"\x28\xb5\x2f\xfd"},
    ],
)
def test_a_damaged_block_is_noticed(change: dict[str, object]) -> None:
    good = BlockPacker().pack(b"<p>text</p>" * 1000)
    whole = {"codec": good.codec, "size": good.size, "crc": good.crc, "data": good.data}
    with pytest.raises(DamagedBlock):
        unpack(Block(**whole | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE block SET data = zeroblob(length(data)) WHERE bodies = 1",
        "UPDATE block SET data = zeroblob(length(data)) WHERE bodies = 0",
        "UPDATE body SET start = start + 1",
        "UPDATE body SET hash = randomblob(16)",
        "UPDATE answer SET size = size - 1",
        "DELETE FROM block",
    ],
)
async def test_a_damaged_answer_is_missing_not_wrong(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RawPageStore(tmp_path)
    await filled(store, "A", range(1))
    store.close()
    db = sqlite3.connect(tmp_path / file.FILE_NAME)
    with db:
        db.execute(damage)
    db.close()
    store = RawPageStore(tmp_path)
    assert store.get("A", key(0)) is None
    assert list(store.pages("A")) == [] and store.latest(key(0)) is None
    assert "kept_page_damaged" in caplog.text
    store.close()


async def test_removing_a_run_gives_its_space_back_and_leaves_the_others_whole(
    tmp_path: Path, store: RawPageStore
) -> None:
    for number in range(400):
        page = answer(number, os.urandom(4_000))
        store.put("A", key(number), page)
        if number % 5 == 0:
            store.put("B", key(number), page)
        if number % 20 == 19:
            await store.sync()
    before, kept = store.size(), list(store.pages("B"))
    assert len(kept) == 80 and before.disk > 1_600_000
    assert await store.remove("A") == 400
    after = store.size()
    assert after.different == 80 * 4_000
    assert after.disk < before.disk / 3
    assert blocks(tmp_path, "sum(size)") == 80 * 4_000
    assert list(store.pages("B")) == kept
    assert [run.name for run in store.runs()] == ["B"]
    await store.remove("B")
    assert store.size().disk < 100_000 and store.runs() == []
    assert await store.remove("B") == 0


async def test_a_reader_goes_on_while_the_run_beside_it_is_removed(tmp_path: Path, store: RawPageStore) -> None:
    for number in range(100):
        for run in ("A", "B"):
            store.put(run, key(number), answer(number, b"%s %d" % (run.encode() * 500, number)))
    await store.sync()
    reader = RawPageStore(tmp_path)
    reader._block_cache._max_bytes = 0  # nothing is remembered: every page is read from the file
    pages = reader.pages("B")
    first = [next(pages) for _ in range(3)]
    await store.remove("A")
    assert [kept.digest for kept in (*first, *pages)] == [key(number) for number in range(100)]
    reader.close()


def test_runs_say_what_they_hold(tmp_path: Path) -> None:
    store = RawPageStore(tmp_path, wall=iter(range(100, 200)).__next__)
    for number in range(3):
        store.put("A", key(number), answer(number, b"four"))
    asyncio.run(store.sync())
    (run,) = store.runs()
    assert (run.name, run.pages, run.bytes, run.first_at, run.last_at) == ("A", 3, 12, 100, 102)
    store.close()


async def test_a_sync_also_waits_for_what_another_sync_is_writing(tmp_path: Path, store: RawPageStore) -> None:
    other = RawPageStore(tmp_path)
    store.put("A", key(1), answer(1))
    first = asyncio.create_task(store.sync())
    await asyncio.sleep(0)
    await store.sync()
    assert other.get("A", key(1)) is not None
    await first
    other.close()


async def test_a_sync_that_failed_can_be_repeated_and_loses_nothing(
    store: RawPageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._file, "_lock_timeout", 0.05)
    store.put("A", key(1), answer(1))
    holder = sqlite3.connect(tmp_path / file.FILE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueUnavailable, match="locked by another process"):
        await store.sync()
    assert store.get("A", key(1)) is None
    holder.execute("ROLLBACK")
    holder.close()
    await store.sync()
    assert store.get("A", key(1)) == answer(1)


async def test_what_is_put_during_a_sync_is_not_lost(store: RawPageStore, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / file.FILE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store.put("A", key(1), answer(1))
    first = asyncio.create_task(store.sync())
    await asyncio.sleep(0)  # it waits for the lock
    store.put("A", key(2), answer(2))
    holder.execute("ROLLBACK")
    holder.close()
    await first
    await store.sync()
    assert store.has("A", key(1)) and store.has("A", key(2))


async def test_no_space_left_is_said_and_nothing_is_lost(store: RawPageStore) -> None:
    pages = store._file.db.execute("PRAGMA page_count").fetchone()[0]
    store._file.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    store.put("A", key(1), answer(1, os.urandom(50_000)))
    with pytest.raises(QueueFull, match="no space left"):
        await store.sync()
    store._file.db.execute("PRAGMA max_page_count = 1000000")
    await store.sync()
    assert store.has("A", key(1))


async def test_a_raw_store_says_when_too_much_waits_in_memory(store: RawPageStore) -> None:
    assert not store.is_full
    store.put("A", key(1), answer(1, b"x" * (MAX_PENDING_BYTES + 1)))
    assert store.is_full
    await store.sync()
    assert not store.is_full


def test_a_newer_format_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    RawPageStore(tmp_path).close()
    db = sqlite3.connect(tmp_path / file.FILE_NAME)
    db.execute(f"PRAGMA user_version = {file.VERSION + 1}")
    db.close()
    with pytest.raises(QueueRefused, match="written by a newer shoal"):
        RawPageStore(tmp_path)


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / file.FILE_NAME)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = (tmp_path / file.FILE_NAME).read_bytes()
    with pytest.raises(QueueRefused, match="another program"):
        RawPageStore(tmp_path)
    assert (tmp_path / file.FILE_NAME).read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / file.FILE_NAME).write_bytes(b"not a database at all" * 100)
    with pytest.raises(QueueRefused, match="damaged"):
        RawPageStore(tmp_path)


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(QueueReadOnly, match="cannot be opened"):
        RawPageStore(tmp_path / "taken")


KEEPER = """
import asyncio, sys
from pathlib import Path
from shoal.core.page import Response
from shoal.core.url import request_digest
from shoal.store.raw.page_store import RawPageStore

async def main(folder, first, last):
    store = RawPageStore(Path(folder))
    for number in range(int(first), int(last)):
        url = f"http://shop.test/{number}"
        body = (f"<h1>Book {number % 50}</h1>" * 100).encode()
        store.put("A", request_digest(url), Response(url, 200, (), body))
        if number % 7 == 6:
            await store.sync()
            print(number, flush=True)
    await store.sync()

asyncio.run(main(*sys.argv[1:]))
"""


def _keeper(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", KEEPER, str(folder), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_fill_a_new_raw_store_at_once(tmp_path: Path) -> None:
    keepers = [_keeper(tmp_path / "raw", first, first + 280) for first in (0, 140, 280)]
    for keeper in keepers:
        keeper.communicate(timeout=HANG)
        assert keeper.returncode == 0
    store = RawPageStore(tmp_path / "raw")
    assert {kept.digest for kept in store.pages("A")} == {key(number) for number in range(560)}
    assert (store.size().answers, store.size().bodies) == (560, 50)
    store.close()


def test_what_was_synced_survives_a_kill(tmp_path: Path) -> None:
    keeper = _keeper(tmp_path, 0, 1_000_000)
    assert keeper.stdout is not None
    for _ in range(20):
        last = int(keeper.stdout.readline())
    os.kill(keeper.pid, signal.SIGKILL)
    last = max([last, *map(int, keeper.stdout.read().split())])
    keeper.wait(HANG)
    keeper.stdout.close()
    store = RawPageStore(tmp_path)
    assert all(store.get("A", key(number)) for number in range(last + 1))
    store.close()


def test_what_was_saved_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        RawPageStore(tmp_path).close()
    finally:
        os.umask(before)
    assert {place.stat().st_mode & 0o077 for place in tmp_path.iterdir()} == {0}
