"""`shoal cache`: what runs share can be listed, shown byte by byte, and cleared; how much it helped is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.cache import cache
from shoal.core.lane import LaneState
from shoal.core.page import Response
from shoal.core.run_counters import CacheUsage
from shoal.errors import UsageError
from shoal.fetch.cached_response import pack_response
from shoal.queue.base import NewCacheEntry
from shoal.queue.sqlite import SqliteQueue
from shoal.view.cache import describe_usage
from shoal.view.why import _host_reason

URL = "http://shop.test/"
HEADERS = (("content-type", "text/html"), ("x-odd", "a\x1b[31mb"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_QUEUE", raising=False)
    return tmp_path / ".shoal"


@pytest.fixture
def filled(place: Path) -> Path:
    async def fill() -> None:
        queue = await SqliteQueue.open(str(place / "shoal.db"))
        for number, (host, body) in enumerate((("shop.test", b"old"), ("shop.test", b"\xffnew"), ("b.test", b"b"))):
            url = f"http://{host}/"
            data = pack_response(Response(url, 200, HEADERS, body))
            await queue.cache_put(NewCacheEntry(bytes([number]) * 16, host, url, data, 30.0 * number), 1_000_000)
        await queue.close()

    asyncio.run(fill())
    return place


def shoal_cache(*args: str) -> Any:
    return cache.main(args, standalone_mode=False)


def test_nothing_stored_is_no_error_for_a_list_and_no_file_is_made(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shoal_cache("list", "--json")
    assert json.loads(capsys.readouterr().out) == {"entries": 0, "bytes": 0, "oldest": 0.0, "responses": []}
    assert not place.exists()


def test_responses_are_listed_newest_first_and_by_host(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shoal_cache("list")
    assert "3 responses in all" in capsys.readouterr().out
    shoal_cache("list", "--json", "--host", "shop.test")
    listed = json.loads(capsys.readouterr().out)
    assert listed["entries"] == 3 and [it["fresh_for"] for it in listed["responses"]] == [30.0, 0.0]
    assert {it["host"] for it in listed["responses"]} == {"shop.test"}


def test_the_newest_response_of_a_url_is_shown_as_it_came(filled: Path, capfdbinary: Any) -> None:
    shoal_cache("show", URL)
    assert capfdbinary.readouterr().out == b"\xffnew"
    shoal_cache("show", URL, "--headers")
    told = capfdbinary.readouterr().out
    assert b"200 http://shop.test/" in told and b"\x1b" not in told
    shoal_cache("show", URL, "--json")
    assert json.loads(capfdbinary.readouterr().out)["status"] == 200


def test_what_is_not_there_is_said_with_what_to_do(filled: Path) -> None:
    with pytest.raises(UsageError, match=r"no response of http://shop\.test/x is in the cache") as told:
        shoal_cache("show", "http://shop.test/x")
    assert "shoal cache list" in told.value.hint
    with pytest.raises(UsageError, match="both"):
        shoal_cache("clear", URL, "--host", "b.test")


@pytest.mark.parametrize(
    ("args", "gone"), [((URL,), 2), (("http://shop.test/x",), 0), (("--host", "b.test"), 1), ((), 3)]
)
def test_responses_are_cleared(
    filled: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], gone: int
) -> None:
    shoal_cache("clear", "--json", *args)
    assert json.loads(capsys.readouterr().out) == {"count": gone}
    shoal_cache("list", "--json")
    assert json.loads(capsys.readouterr().out)["entries"] == 3 - gone


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (CacheUsage(3, 0, 1, 2_000), "3 of 4 requests (75 %) answered from the cache, 2.0 kB saved"),
        (CacheUsage(0, 2, 0, 0), "0 of 2 requests (0 %) answered from the cache, 0 B saved, 2 unchanged"),
        (CacheUsage(1, 0, 0, 5), "1 of 1 request (100 %) answered from the cache, 5 B saved"),
    ],
)
def test_how_much_the_cache_helped_is_told_in_words(usage: CacheUsage, words: str) -> None:
    assert describe_usage(usage) == words


def test_why_says_that_a_page_in_the_cache_waits_for_no_slot() -> None:
    lane = LaneState("cache:a.test", 0, 0.0, 0.0, 0.0, 0, 0, 5)
    assert "in the cache" in _host_reason(lane, 10, 4, 100) and "4 before it" in _host_reason(lane, 10, 4, 100)
