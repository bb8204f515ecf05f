"""Whoever writes to a queue can say anything about where its results are: what is opened because of that."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import load
from shoal.errors import StoreRefused
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.result_location import ResultFinder, ResultLocation, announce_results, trusted_store
from shoal.store.results import base
from shoal.store.results.sqlite import SqliteResultBackend

HERE = socket.gethostname()
DATABASE = "postgresql://me:pw@db.internal/shoal?sslmode=require&namespace=crawl&listen=0"
SOCKET = "postgresql://me@/shoal?host=/run/postgresql"
FILE = "sqlite:///{folder}/q.db"

# Where the queue is, and what stands there.
HOSTILE_PLACES = [
    (DATABASE, "postgresql://evil.example/shoal"),
    (DATABASE, "postgresql://db.internal.evil.example/shoal"),
    (DATABASE, "postgresql://db.internal@evil.example/shoal"),
    (DATABASE, "postgresql://db.internal:5432@evil.example/shoal"),
    (DATABASE, "postgresql://evil.example,db.internal/shoal"),
    (DATABASE, "postgresql://db.internal,evil.example/shoal"),
    (DATABASE, "postgresql://db.internal:6432/shoal"),
    (DATABASE, "postgresql:///shoal?host=evil.example"),
    (DATABASE, "postgresql:///shoal?host=db.internal,evil.example"),
    (DATABASE, "postgresql:///shoal?host=/tmp/evil"),
    (DATABASE, "postgresql:///shoal?service=evil"),
    (DATABASE, "postgresql:////evil.example/shoal"),
    (DATABASE, "postgresql://db.internal//evil.example/shoal"),
    (DATABASE, "postgresql:shoal"),
    (DATABASE, "postgresql://[db.internal/shoal"),
    (DATABASE, "postgresql://10.0.0.1/shoal"),
    (DATABASE, "postgresql://127.0.0.1/shoal"),
    (DATABASE, "postgresql:///shoal"),
    (DATABASE, "postgresql+unix://db.internal/shoal"),
    (DATABASE, "http://db.internal/shoal"),
    (DATABASE, "mysql://db.internal/shoal"),
    (DATABASE, "redis://db.internal/0"),
    (DATABASE, "results.db"),
    (DATABASE, "/etc/results.db"),
    (DATABASE, "file:///etc/results.db"),
    (DATABASE, ""),
    (DATABASE, "://"),
    (DATABASE, "sqlite://evil/results.db"),
    (DATABASE, "SQLITE:///etc/results.db"),
    (SOCKET, "postgresql:///shoal?host=/tmp/evil"),
    (SOCKET, "postgresql:////evil.example/shoal?host=/run/postgresql"),
    (SOCKET, "postgresql:///shoal?host=/run/postgresql&port=6432"),
    (SOCKET, "postgresql://evil.example/shoal?host=/run/postgresql"),
    ("redis://queue.internal/0", "postgresql://queue.internal/0"),
    ("https://shoal.example", "postgresql://shoal.example/x"),
    (FILE, "postgresql://evil.example/x"),
    (FILE, "postgresql:///x"),
    (FILE, "sqlite:////etc/passwd"),
    (FILE, "sqlite:///results.db"),
    (FILE, "sqlite:///../results.db"),
    (FILE, "sqlite:///{folder}/results.db"),
    (FILE, "sqlite:///{folder}/q.db"),
    (FILE, "sqlite:///{folder}/q.db.d/../results.db"),
    (FILE, "sqlite:///{folder}/q.db.d/link/results.db"),
    (FILE, "sqlite:///{folder}/q.db.d/circle"),
    (FILE, "sqlite:///{folder}/q.db.dd/results.db"),
    (FILE, "sqlite:///{folder}/results.db?{folder}/q.db.d"),
    (FILE, "sqlite:///{folder}/q.db.d/x?mode=ro"),
    (FILE, "sqlite:///{folder}/q.db.d/\0"),
    (FILE, "sqlite:////dev/stdin"),
    (FILE, "sqlite:////proc/self/environ"),
    (FILE, "sqlite:///"),
    (FILE, "sqlite:///:memory:"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder with everything that could lead out of it."""
    inside = tmp_path / "q.db.d"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    (inside / "circle").symlink_to(inside / "circle")
    (tmp_path / "results.db").touch()
    return tmp_path


def settings_of(queue: str, folder: Path, **more: Any) -> Any:
    return load({"queue": queue.format(folder=folder)} | more, env={}, file=None)


@pytest.mark.parametrize(("queue_url", "place"), HOSTILE_PLACES)
def test_what_a_stranger_wrote_is_refused_and_the_setting_named(queue_url: str, place: str, folder: Path) -> None:
    found = ResultLocation(place.format(folder=folder), HERE)
    with pytest.raises(StoreRefused) as caught:
        trusted_store(found, settings_of(queue_url, folder))
    assert "SHOAL_STORE" in caught.value.hint
    assert str(caught.value).isprintable() and "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("queue_url", "place", "opened"),
    [
        (DATABASE, "postgresql://db.internal/shoal", "postgresql://me:pw@db.internal/shoal?sslmode=require"),
        (
            DATABASE,
            "postgresql://you@DB.internal:5432/other?namespace=results&sslmode=disable&passfile=/etc/x&host=evil.example",
            "postgresql://me:pw@db.internal/other?sslmode=require&namespace=results",
        ),
        (SOCKET, "postgresql:///x?host=/run/postgresql", "postgresql://me@/x?host=%2Frun%2Fpostgresql"),
    ],
)
def test_the_queue_s_own_server_is_asked_as_the_queue_is(queue_url: str, place: str, opened: str, folder: Path) -> None:
    assert trusted_store(ResultLocation(place), settings_of(queue_url, folder)) == opened


async def test_a_file_below_the_state_folder_is_opened_and_any_other_by_its_name(queue: Queue, folder: Path) -> None:
    inside, outside = folder / "q.db.d" / "results.db", folder / "elsewhere.db"
    for file in (inside, outside):
        store = await SqliteResultBackend.open(str(file))
        await announce_results(queue, store)
        await store.close()
        named = ResultFinder(queue, settings_of(FILE, folder, store=f"sqlite:///{file}"))
        finder = ResultFinder(queue, settings_of(FILE, folder))
        if file == inside:
            assert await finder.find() is not None
        else:
            with pytest.raises(StoreRefused, match="not below") as caught:
                await finder.find()
            assert "SHOAL_STORE" in caught.value.hint
        assert await named.find() is not None
        await finder.close()
        await named.close()


async def test_a_file_of_another_machine_is_not_looked_for_here(queue: Queue, folder: Path) -> None:
    place = folder / "q.db.d" / "results.db"
    place.touch()
    for host, file in (("other\x1b[2J", place), (HERE, place.with_name("gone.db"))):
        with pytest.raises(StoreRefused, match="which is not on this machine") as caught:
            trusted_store(ResultLocation(f"sqlite:///{file}", host), settings_of(FILE, folder))
        assert str(caught.value).isprintable()
    assert not place.with_name("gone.db").exists()


@pytest.mark.parametrize("text", ["", "[]", "5", '{"url": 5}', '{"host": "x"}', '{"url": ["x"]}', "{" * 1000, "\0"])
async def test_a_word_that_is_not_understood_is_said_so(
    queue: Queue, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "open_results", None)  # nothing is opened
    await queue.compare_and_swap(kinds.QUEUE, "results", text, 0)
    with pytest.raises(StoreRefused, match="not understood"):
        await ResultFinder(queue, settings_of(FILE, folder)).find()
