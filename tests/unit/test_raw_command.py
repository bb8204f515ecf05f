"""`shoal raw`: what is kept can be listed, shown byte by byte, and removed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.raw import raw
from shoal.core.page import Response
from shoal.core.url import request_digest
from shoal.errors import UsageError
from shoal.store.raw.page_store import RawPageStore

URL = "http://shop.test/"
HEADERS = (("content-type", "text/html"), ("x-odd", "a\x1b[31mb"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_QUEUE", raising=False)
    return tmp_path / ".shoal" / "raw"


@pytest.fixture
def filled(place: Path) -> Path:
    store = RawPageStore(place)
    for run, body in (("7KQ2", b"\xff<h1>old</h1>"), ("8ABC", b"\xff<h1>new</h1>")):
        store.put(run, request_digest(URL), Response(URL, 200, HEADERS, body))
        store.put(run, request_digest(URL + "b"), Response(URL + "b", 404, (), b"x" * 5_000))
        asyncio.run(store.sync())
    store.close()
    return place


def shoal_raw(*args: str) -> Any:
    return raw.main(args, standalone_mode=False)


def test_nothing_kept_is_no_error_for_a_list_and_no_file_is_made(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shoal_raw("list")
    shoal_raw("list", "--json")
    told, listed = capsys.readouterr().out.split("\n", 1)
    assert "No responses are saved here" in told and json.loads(listed) == {"runs": [], "disk": 0}
    for args in (("show", URL), ("remove", "7KQ2")):
        with pytest.raises(UsageError, match="no responses are saved here"):
            shoal_raw(*args)
    assert not place.exists()


def test_runs_are_listed_with_their_pages(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shoal_raw("list")
    assert "7KQ2" in (out := capsys.readouterr().out) and "4 pages" in out
    shoal_raw("list", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [(run["run"], run["pages"], run["bytes"]) for run in listed["runs"]] == [
        ("7KQ2", 2, 5_013),
        ("8ABC", 2, 5_013),
    ]
    assert (listed["bytes"], listed["different"]) == (10_026, 5_026)


@pytest.mark.parametrize(("args", "body"), [((), b"\xff<h1>new</h1>"), (("--run", "7kq2"), b"\xff<h1>old</h1>")])
def test_a_page_is_shown_as_it_came(
    filled: Path, args: tuple[str, ...], body: bytes, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    shoal_raw("show", "http://SHOP.test", *args)
    assert capsysbinary.readouterr().out == body


def test_headers_are_shown_harmless(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shoal_raw("show", URL, "--headers")
    out = capsys.readouterr().out
    assert out.startswith(f"200 {URL}\ncontent-type: text/html\n") and "\x1b" not in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("show", URL + "c"), "no response of http://shop.test/c is saved here"),
        (("show", URL, "--run", "ZZZZ"), "no responses of run ZZZZ are saved here"),
        (("remove", "ZZZZ"), "no responses of run ZZZZ are saved here"),
    ],
)
def test_what_is_not_kept_is_said(filled: Path, args: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shoal_raw(*args)


def test_a_removed_run_is_gone_and_the_other_stays(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shoal_raw("remove", "7kq2")
    assert capsys.readouterr().out.startswith("Removed 2 pages; ")
    store = RawPageStore(filled)
    assert [run.name for run in store.runs()] == ["8ABC"]
    assert store.get("8ABC", request_digest(URL + "b")) is not None
    store.close()
