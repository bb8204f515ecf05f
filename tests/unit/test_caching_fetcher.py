"""The caching fetcher: who may have what from the cache, and that equal requests are sent once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from wait import until

from shoal.core.cache_rules import HTTP_RULES
from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, QueueUnavailable
from shoal.fetch.cache import CacheStore, CachingFetcher
from shoal.fetch.cached_response import MAX_SIZE, pack_response, unpack_response
from shoal.fetch.single_flight import SingleFlight
from shoal.queue.sqlite import SqliteQueue
from shoal.queue.values import NewCacheEntry

URL = "http://a.test/"
PAGE = Response(URL, 200, (("content-type", "text/html"),), b"<p>one</p>" * 100, 0.5, "127.0.0.2")


@dataclass
class Site:
    """A fetcher that counts, and answers when it is told to."""

    response: Any = PAGE
    sent: list[Request] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self, request: Request) -> Response:
        self.sent.append(request)
        await self.may_answer.wait()
        if isinstance(self.response, BaseException):
            raise self.response
        if dict(request.headers).get("if-none-match") == self.response.header("etag", "none"):
            return Response(request.url, 304, (("etag", self.response.header("etag")), ("date", "now")), b"")
        return msgspec.structs.replace(self.response, url=request.url)

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Bench:
    def __init__(self, queue: SqliteQueue, site: Site, lock_file: Path) -> None:
        self.queue, self.site, self.lock_file = queue, site, lock_file
        self.turns = 0

    def fetcher(self, user_agent: str = "shoal", max_body: int = MAX_SIZE, **flight: Any) -> CachingFetcher:
        async def put(key: bytes, host: str, url: str, data: bytes, fresh_for: float) -> bool:
            return await self.queue.cache_put(NewCacheEntry(key, host, url, data, fresh_for), 1_000_000)

        async def look(keys: Sequence[bytes]) -> Any:
            return await self.queue.cache_get(keys, bodies=False)

        store = CacheStore(self.queue.cache_get, look, put)
        flights = SingleFlight(self.lock_file, **flight)
        return CachingFetcher(self.site, store, flights, user_agent=user_agent, max_body=max_body)

    async def turn(self) -> None:
        self.turns += 1

    async def get(self, fetcher: CachingFetcher | None = None, url: str = URL, **request: Any) -> Response:
        return await (fetcher or self.fetcher()).fetch_in_turn(Request(url, **{"cache": 60.0, **request}), self.turn)


@pytest.fixture
async def bench(tmp_path: Path) -> Any:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"))
    site = Site()
    site.may_answer.set()
    yield Bench(queue, site, tmp_path / "cache.lock")
    await queue.close()


async def test_a_hit_is_the_same_page_and_waits_for_no_turn(bench: Bench) -> None:
    first, second = await bench.get(), await bench.get()
    assert (first.cache, second.cache, first.from_cache, second.from_cache) == ("miss", "hit", False, True)
    assert (second.status, second.headers, second.body) == (PAGE.status, PAGE.headers, PAGE.body)
    assert (len(bench.site.sent), bench.turns) == (1, 1)


@pytest.mark.parametrize(
    "request_",
    [
        {"headers": (("cookie", "a=b"),)},
        {"headers": (("authorization", "x"),)},
        {"method": "POST", "body": b"q"},
        {"cache": 0.0},
        {"headers": (("range", "bytes=0-1"),)},
    ],
)
async def test_who_says_who_they_are_gets_nothing_from_the_cache_and_leaves_nothing(
    bench: Bench, request_: dict[str, Any]
) -> None:
    assert (await bench.get(**request_)).cache == ""
    assert (await bench.get()).cache == "miss"
    assert (await bench.get(**request_)).cache == ""
    assert (len(bench.site.sent), bench.turns) == (3, 3)


@pytest.mark.parametrize(
    "headers", [(("set-cookie", "a=b"),), (("cache-control", "private"),), (("cache-control", "no-store"),)]
)
async def test_what_a_site_keeps_for_one_visitor_is_not_kept(bench: Bench, headers: Any) -> None:
    bench.site.response = msgspec.structs.replace(PAGE, headers=headers)
    assert [(await bench.get()).cache for _ in range(2)] == ["miss", "miss"]
    assert (await bench.queue.cache_stats()).entries == 0


async def test_an_entry_that_has_become_private_is_used_no_more(bench: Bench) -> None:
    bench.site.response = msgspec.structs.replace(PAGE, headers=(("etag", '"1"'),))
    await bench.get()
    private = msgspec.structs.replace(PAGE, headers=(("etag", '"1"'), ("set-cookie", "a=b")))
    (entry,) = await bench.queue.cache_list()
    await bench.queue.cache_put(NewCacheEntry(entry.key, "a.test", URL, pack_response(private)), 1_000_000)
    assert (await bench.get()).cache == "miss"


async def test_a_stale_page_is_asked_for_only_if_it_has_changed(bench: Bench) -> None:
    bench.site.response = msgspec.structs.replace(PAGE, headers=(("etag", '"1"'), ("content-type", "text/html")))
    await bench.get(cache=HTTP_RULES)
    again = await bench.get(cache=HTTP_RULES)
    assert (again.cache, again.from_cache, again.status, again.body) == ("revalidated", True, 200, PAGE.body)
    assert again.header("date") == "now" and again.header("content-type") == "text/html"
    bench.site.response = msgspec.structs.replace(PAGE, body=b"new", headers=(("etag", '"2"'),))
    assert (await bench.get(cache=HTTP_RULES)).body == b"new"
    assert bench.turns == 3


async def test_runs_that_ask_differently_have_entries_of_their_own(bench: Bench) -> None:
    await bench.get()
    assert (await bench.get(bench.fetcher("other"))).cache == "miss"
    assert (await bench.get(headers=(("accept-language", "de"),))).cache == "miss"
    assert (await bench.get(proxy="http://p.test")).cache == "miss"
    assert (await bench.get()).cache == "hit"


GARBLED: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"\x02" + data[1:],
    lambda data: data[:-3],
    lambda data: data[:1] + b"\xff" * 50,
    lambda data: data + b"more",
    lambda data: pack_response(msgspec.structs.replace(PAGE, url="http://b.test/")),
]


@pytest.mark.parametrize("garble", GARBLED)
async def test_a_garbled_entry_is_a_miss(bench: Bench, garble: Callable[[bytes], bytes]) -> None:
    await bench.get()
    (entry,) = await bench.queue.cache_list()
    (whole,) = await bench.queue.cache_get([entry.key])
    assert whole is not None
    data = garble(whole.data)
    assert unpack_response(data, URL) is None
    await bench.queue.cache_put(NewCacheEntry(entry.key, "a.test", URL, data), 1_000_000)
    assert (await bench.get()).cache == "miss"


@pytest.mark.parametrize("size", [101, 50_000_000])  # a little, and what a few bytes unpack to
async def test_a_stored_response_that_is_larger_than_the_run_allows_is_a_miss(bench: Bench, size: int) -> None:
    await bench.get()
    (entry,) = await bench.queue.cache_list()
    data = pack_response(msgspec.structs.replace(PAGE, url=URL, body=b"x" * size))
    assert await bench.queue.cache_put(NewCacheEntry(entry.key, "a.test", URL, data), 1_000_000)
    assert (await bench.get(bench.fetcher(max_body=size))).cache == "hit"
    assert (await bench.get(bench.fetcher(max_body=100))).cache == "miss"


async def test_without_its_store_pages_are_fetched_as_if_there_were_no_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any, **named: Any) -> Any:
        raise QueueUnavailable("gone")

    monkeypatch.setattr(bench.queue, "cache_get", fail)
    monkeypatch.setattr(bench.queue, "cache_put", fail)
    fetcher = bench.fetcher()
    assert [(await bench.get(fetcher)).status for _ in range(2)] == [200, 200]
    assert await fetcher.would_answer([Request(URL, cache=60.0)]) == [False]
    assert bench.turns == 2


async def test_a_hundred_equal_requests_at_once_reach_the_site_once(bench: Bench) -> None:
    bench.site.may_answer.clear()
    fetcher = bench.fetcher()
    asking = [asyncio.create_task(bench.get(fetcher)) for _ in range(100)]
    await until(lambda: bench.site.sent)
    bench.site.may_answer.set()
    outcomes = [response.cache for response in await asyncio.gather(*asking)]
    assert (outcomes.count("miss"), outcomes.count("hit"), len(bench.site.sent), bench.turns) == (1, 99, 1, 1)


async def test_nobody_waits_for_what_is_not_shared(bench: Bench) -> None:
    bench.site.response = msgspec.structs.replace(PAGE, headers=(("set-cookie", "a=b"),))
    bench.site.may_answer.clear()
    fetcher = bench.fetcher()
    asking = [asyncio.create_task(bench.get(fetcher)) for _ in range(10)]
    await until(lambda: bench.site.sent)
    await asyncio.sleep(0)
    assert len(bench.site.sent) == 1
    bench.site.may_answer.set()
    await asyncio.gather(*asking)
    bench.site.may_answer.clear()
    more = [asyncio.create_task(bench.get(fetcher)) for _ in range(5)]
    await until(lambda: len(bench.site.sent) == 15)  # all of them at once
    bench.site.may_answer.set()
    await asyncio.gather(*more)


async def test_a_failure_is_for_whoever_asked_and_the_next_one_asks_again(bench: Bench) -> None:
    bench.site.response = FetchFailed("connect", "no")
    fetcher = bench.fetcher()
    failed = await asyncio.gather(*(bench.get(fetcher) for _ in range(3)), return_exceptions=True)
    assert [type(it) for it in failed] == [FetchFailed] * 3 and bench.turns == 3
    bench.site.response = PAGE
    assert (await bench.get(fetcher)).cache == "miss"


async def test_who_is_cancelled_while_waiting_leaves_the_turn_to_others(bench: Bench) -> None:
    bench.site.may_answer.clear()
    fetcher = bench.fetcher()
    asking = [asyncio.create_task(bench.get(fetcher)) for _ in range(3)]
    await until(lambda: bench.site.sent)
    asking[1].cancel()
    asking[0].cancel()
    await until(lambda: len(bench.site.sent) == 2)
    bench.site.may_answer.set()
    assert (await asking[2]).cache == "miss"


HOLDER = """
import asyncio, sys
from pathlib import Path
from shoal.fetch.single_flight import SingleFlight
async def hold():
    async with SingleFlight(Path(sys.argv[1])).turn(bytes.fromhex(sys.argv[2])):
        print("held", flush=True)
        sys.stdin.readline()
asyncio.run(hold())
"""


async def test_another_process_is_waited_for_and_a_dead_one_is_not(tmp_path: Path) -> None:
    lock_file, key, order = tmp_path / "cache.lock", b"k" * 16, list[str]()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock_file), key.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdin is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
        ours, impatient = SingleFlight(lock_file), SingleFlight(lock_file, max_wait=0.05)

        async def wait() -> None:
            async with ours.turn(key):
                order.append("ours")

        async with ours.turn(b"other" + key):  # another key is not held up
            order.append("other")
        async with impatient.turn(key):  # nor is anybody for ever
            order.append("impatient")
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        assert order == ["other", "impatient"]
        holder.kill()
        await waiting
        assert order[-1] == "ours"
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            if pipe is not None:
                pipe.close()


async def test_what_the_cache_would_answer_is_known_in_advance(bench: Bench) -> None:
    fetcher = bench.fetcher()
    await bench.get(fetcher)
    requests = [
        Request(URL, cache=60.0),
        Request(URL),
        Request(URL, cache=HTTP_RULES),
        Request("http://a.test/2", cache=60.0),
        Request(URL, cache=60.0, headers=(("cookie", "a=b"),)),
    ]
    assert await fetcher.would_answer(requests) == [True, False, False, False, False]
    assert await fetcher.would_answer([]) == []


async def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"))
    new = NewCacheEntry(b"k", "a.test", URL, b"data")
    try:
        assert await queue.cache_list() == [] and not (tmp_path / "queue.db-cache").exists()  # looking makes no file
        (tmp_path / "queue.db-cache").write_bytes(b"not a database at all" * 500)
        assert await queue.cache_get([b"k"]) == [None]
        assert await queue.cache_put(new, 1_000_000)
        assert (tmp_path / "queue.db-cache").stat().st_mode & 0o077 == 0
    finally:
        await queue.close()
