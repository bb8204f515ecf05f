"""The shelf of kept answers: what is put there is there, once, whole, and gives its space back."""

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

from shoal.core.page import Response
from shoal.core.url import request_digest
from shoal.errors import QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.store import raw_file
from shoal.store.raw import BIG, FULL, RawShelf
from shoal.store.raw_block import PLAIN, ZSTD, Block, Damaged, Packer, unpack

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
def shelf(tmp_path: Path) -> Iterator[RawShelf]:
    shelf = RawShelf(tmp_path)
    yield shelf
    shelf.close()


async def filled(shelf: RawShelf, run: str, numbers: range, batch: int = 10) -> None:
    for number in numbers:
        shelf.put(run, key(number), answer(number))
        if number % batch == batch - 1:
            await shelf.sync()
    await shelf.sync()


def blocks(folder: Path, what: str = "count(*)") -> int:
    with sqlite3.connect(folder / raw_file.NAME) as db:
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
        answer(1, b"<p>much</p>" * BIG),
        answer(1, os.urandom(BIG + 1)),
        answer(1, redirects=("http://shop.test/old", "http://shop.test/older")),
        Response(url(1), 404, (), b"gone"),
        Response(url(1), 301, (("location", "/there"),), b""),
        Response(url(1), 200, (("x-odd", "\x80ÿ"), ("x-odd", "twice")), b"\0\xff"),
    ],
)
async def test_an_answer_comes_back_as_it_was(tmp_path: Path, shelf: RawShelf, response: Response) -> None:
    shelf.put("A", key(1), response)
    await shelf.sync()
    assert shelf.get("A", key(1)) == response
    other = RawShelf(tmp_path)
    assert other.get("A", key(1)) == response
    assert other.get("B", key(1)) is None and other.get("A", key(2)) is None
    assert other.has("A", key(1)) and not other.has("B", key(1)) and not other.has("A", key(2))
    other.close()


async def test_answers_are_read_in_the_order_in_which_they_came(shelf: RawShelf) -> None:
    await filled(shelf, "A", range(1_200))
    await filled(shelf, "B", range(5))
    assert [kept.response for kept in shelf.pages("A")] == [answer(number) for number in range(1_200)]
    assert [kept.digest for kept in shelf.pages("B")] == [key(number) for number in range(5)]
    assert list(shelf.pages("C")) == []


async def test_what_says_who_we_are_is_not_kept(tmp_path: Path, shelf: RawShelf) -> None:
    secrets = ("set-cookie", "authorization", "proxy-authorization", "cookie", "x-csrf-token", "x-api-key")
    headers = tuple((name, "hush-hush") for name in secrets)
    shelf.put("A", key(1), Response(url(1), 200, (*HTML, *headers, ("x-author", "me")), b"x"))
    await shelf.sync()
    found = shelf.get("A", key(1))
    assert found is not None and found.headers == (*HTML, ("x-author", "me"))
    shelf.close()
    assert all(b"hush-hush" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_body_is_kept_once_however_often_it_comes(tmp_path: Path, shelf: RawShelf) -> None:
    body = os.urandom(3_000)
    for number in range(10):
        shelf.put("A", key(number), answer(number, body))
    await shelf.sync()
    other = RawShelf(tmp_path)
    other.put("B", key(99), answer(99, body))
    await other.sync()
    size = other.size()
    assert (size.answers, size.bodies, size.different, size.bytes) == (11, 1, 3_000, 33_000)
    assert blocks(tmp_path) == 1
    other.close()


async def test_the_same_body_kept_by_two_at_the_same_moment_is_kept_once(
    tmp_path: Path, shelf: RawShelf
) -> None:
    other = RawShelf(tmp_path)
    shelf.put("A", key(1), answer(1))
    other.put("A", key(1), answer(1))
    other.put("A", key(2), answer(2))
    packed = await other._packed(other._waiting)  # it has looked, and saw nobody
    await shelf.sync()
    await other._file.write(other._store, other._waiting, packed)
    assert shelf.size().bodies == 2
    assert shelf.get("A", key(1)) == answer(1) and shelf.get("A", key(2)) == answer(2)
    await shelf.remove("A")
    assert blocks(tmp_path) == 0
    other.close()


async def test_a_body_whose_run_is_removed_while_it_is_put_again_is_kept(
    tmp_path: Path, shelf: RawShelf
) -> None:
    await filled(shelf, "A", range(1))
    other = RawShelf(tmp_path)
    other.put("B", key(0), answer(0))
    packed = await other._packed(other._waiting)
    assert packed == []  # it is known
    await shelf.remove("A")
    await other._file.write(other._store, other._waiting, packed)
    assert shelf.get("B", key(0)) == answer(0)
    other.close()


async def test_a_page_fetched_again_takes_the_place_of_the_first(tmp_path: Path, shelf: RawShelf) -> None:
    await filled(shelf, "A", range(3))
    for body in (b"again" * 100, b"and again" * 100):
        shelf.put("A", key(1), answer(1, body))
    await shelf.sync()
    assert [kept.response.body[:5] for kept in shelf.pages("A")] == [b"<html", b"and a", b"<html"]
    assert shelf.size().bodies == 3
    await shelf.remove("A")
    assert blocks(tmp_path) == 0


async def test_the_newest_answer_is_found_whatever_the_run(tmp_path: Path) -> None:
    now = [100]
    shelf = RawShelf(tmp_path, wall=lambda: now[0])
    for run, at in (("A", 100), ("C", 300), ("B", 200)):
        now[0] = at
        shelf.put(run, key(1), answer(1, run.encode()))
        await shelf.sync()
    newest = shelf.latest(key(1))
    assert newest is not None
    assert (newest.run, newest.kept_at, newest.response.body) == ("C", 300, b"C")
    assert shelf.latest(key(2)) is None
    shelf.close()


async def test_pages_of_a_site_are_packed_together(tmp_path: Path, shelf: RawShelf) -> None:
    await filled(shelf, "A", range(300), batch=30)
    assert blocks(tmp_path) == 10
    assert blocks(tmp_path, "sum(length(data))") * 20 < blocks(tmp_path, "sum(size)")


@pytest.mark.parametrize(
    ("plain", "codec"),
    [
        (b"", PLAIN),
        (b"a" * 199, PLAIN),
        (b"a" * 200, ZSTD),
        (os.urandom(50_000), PLAIN),
        (b"ab" * 50_000, ZSTD),
    ],
)
def test_what_does_not_shrink_is_kept_plain(plain: bytes, codec: int) -> None:
    block = Packer().pack(plain)
    assert block.codec == codec and len(block.data) <= len(plain)
    assert unpack(block) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"size": 10},
        {"size": 1_000_000},
        {"crc": 1},
        {"codec": 7},
        {"codec": PLAIN},
        {"data": b"\x28\xb5\x2f\xfd"},
    ],
)
def test_a_damaged_block_is_noticed(change: dict[str, object]) -> None:
    good = Packer().pack(b"<p>text</p>" * 1000)
    whole = {"codec": good.codec, "size": good.size, "crc": good.crc, "data": good.data}
    with pytest.raises(Damaged):
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
    shelf = RawShelf(tmp_path)
    await filled(shelf, "A", range(1))
    shelf.close()
    db = sqlite3.connect(tmp_path / raw_file.NAME)
    with db:
        db.execute(damage)
    db.close()
    shelf = RawShelf(tmp_path)
    assert shelf.get("A", key(0)) is None
    assert list(shelf.pages("A")) == [] and shelf.latest(key(0)) is None
    assert "kept_page_damaged" in caplog.text
    shelf.close()


async def test_removing_a_run_gives_its_space_back_and_leaves_the_others_whole(
    tmp_path: Path, shelf: RawShelf
) -> None:
    for number in range(400):
        page = answer(number, os.urandom(4_000))
        shelf.put("A", key(number), page)
        if number % 5 == 0:
            shelf.put("B", key(number), page)
        if number % 20 == 19:
            await shelf.sync()
    before, kept = shelf.size(), list(shelf.pages("B"))
    assert len(kept) == 80 and before.disk > 1_600_000
    assert await shelf.remove("A") == 400
    after = shelf.size()
    assert after.different == 80 * 4_000
    assert after.disk < before.disk / 3
    assert blocks(tmp_path, "sum(size)") == 80 * 4_000
    assert list(shelf.pages("B")) == kept
    assert [run.name for run in shelf.runs()] == ["B"]
    await shelf.remove("B")
    assert shelf.size().disk < 100_000 and shelf.runs() == []
    assert await shelf.remove("B") == 0


async def test_a_reader_goes_on_while_the_run_beside_it_is_removed(tmp_path: Path, shelf: RawShelf) -> None:
    for number in range(100):
        for run in ("A", "B"):
            shelf.put(run, key(number), answer(number, b"%s %d" % (run.encode() * 500, number)))
    await shelf.sync()
    reader = RawShelf(tmp_path)
    reader._recent._most = 0  # nothing is remembered: every page is read from the file
    pages = reader.pages("B")
    first = [next(pages) for _ in range(3)]
    await shelf.remove("A")
    assert [kept.digest for kept in (*first, *pages)] == [key(number) for number in range(100)]
    reader.close()


def test_runs_say_what_they_hold(tmp_path: Path) -> None:
    shelf = RawShelf(tmp_path, wall=iter(range(100, 200)).__next__)
    for number in range(3):
        shelf.put("A", key(number), answer(number, b"four"))
    asyncio.run(shelf.sync())
    (run,) = shelf.runs()
    assert (run.name, run.pages, run.bytes, run.first_at, run.last_at) == ("A", 3, 12, 100, 102)
    shelf.close()


async def test_a_sync_also_waits_for_what_another_sync_is_writing(tmp_path: Path, shelf: RawShelf) -> None:
    other = RawShelf(tmp_path)
    shelf.put("A", key(1), answer(1))
    first = asyncio.create_task(shelf.sync())
    await asyncio.sleep(0)
    await shelf.sync()
    assert other.get("A", key(1)) is not None
    await first
    other.close()


async def test_a_sync_that_failed_can_be_repeated_and_loses_nothing(
    shelf: RawShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_file, "LOCK_PATIENCE", 0.05)
    shelf.put("A", key(1), answer(1))
    holder = sqlite3.connect(tmp_path / raw_file.NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueUnavailable, match="locked by another process"):
        await shelf.sync()
    assert shelf.get("A", key(1)) is None
    holder.execute("ROLLBACK")
    holder.close()
    await shelf.sync()
    assert shelf.get("A", key(1)) == answer(1)


async def test_what_is_put_during_a_sync_is_not_lost(shelf: RawShelf, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / raw_file.NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    shelf.put("A", key(1), answer(1))
    first = asyncio.create_task(shelf.sync())
    await asyncio.sleep(0)  # it waits for the lock
    shelf.put("A", key(2), answer(2))
    holder.execute("ROLLBACK")
    holder.close()
    await first
    await shelf.sync()
    assert shelf.has("A", key(1)) and shelf.has("A", key(2))


async def test_no_space_left_is_said_and_nothing_is_lost(shelf: RawShelf) -> None:
    pages = shelf._file.db.execute("PRAGMA page_count").fetchone()[0]
    shelf._file.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    shelf.put("A", key(1), answer(1, os.urandom(50_000)))
    with pytest.raises(QueueFull, match="no space left"):
        await shelf.sync()
    shelf._file.db.execute("PRAGMA max_page_count = 1000000")
    await shelf.sync()
    assert shelf.has("A", key(1))


async def test_a_shelf_says_when_too_much_waits_in_memory(shelf: RawShelf) -> None:
    assert not shelf.full
    shelf.put("A", key(1), answer(1, b"x" * (FULL + 1)))
    assert shelf.full
    await shelf.sync()
    assert not shelf.full


def test_a_newer_format_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    RawShelf(tmp_path).close()
    db = sqlite3.connect(tmp_path / raw_file.NAME)
    db.execute(f"PRAGMA user_version = {raw_file.VERSION + 1}")
    db.close()
    with pytest.raises(QueueRefused, match="written by a newer shoal"):
        RawShelf(tmp_path)


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / raw_file.NAME)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = (tmp_path / raw_file.NAME).read_bytes()
    with pytest.raises(QueueRefused, match="another program"):
        RawShelf(tmp_path)
    assert (tmp_path / raw_file.NAME).read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / raw_file.NAME).write_bytes(b"not a database at all" * 100)
    with pytest.raises(QueueRefused, match="damaged"):
        RawShelf(tmp_path)


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(QueueReadOnly, match="cannot be opened"):
        RawShelf(tmp_path / "taken")


KEEPER = """
import asyncio, sys
from pathlib import Path
from shoal.core.page import Response
from shoal.core.url import request_digest
from shoal.store.raw import RawShelf

async def main(folder, first, last):
    shelf = RawShelf(Path(folder))
    for number in range(int(first), int(last)):
        url = f"http://shop.test/{number}"
        body = (f"<h1>Book {number % 50}</h1>" * 100).encode()
        shelf.put("A", request_digest(url), Response(url, 200, (), body))
        if number % 7 == 6:
            await shelf.sync()
            print(number, flush=True)
    await shelf.sync()

asyncio.run(main(*sys.argv[1:]))
"""


def _keeper(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", KEEPER, str(folder), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_fill_a_new_shelf_at_once(tmp_path: Path) -> None:
    keepers = [_keeper(tmp_path / "raw", first, first + 280) for first in (0, 140, 280)]
    for keeper in keepers:
        keeper.communicate(timeout=30)
        assert keeper.returncode == 0
    shelf = RawShelf(tmp_path / "raw")
    assert {kept.digest for kept in shelf.pages("A")} == {key(number) for number in range(560)}
    assert (shelf.size().answers, shelf.size().bodies) == (560, 50)
    shelf.close()


def test_what_was_synced_survives_a_kill(tmp_path: Path) -> None:
    keeper = _keeper(tmp_path, 0, 1_000_000)
    assert keeper.stdout is not None
    for _ in range(20):
        last = int(keeper.stdout.readline())
    os.kill(keeper.pid, signal.SIGKILL)
    last = max([last, *map(int, keeper.stdout.read().split())])
    keeper.wait(10)
    keeper.stdout.close()
    shelf = RawShelf(tmp_path)
    assert all(shelf.get("A", key(number)) for number in range(last + 1))
    shelf.close()
