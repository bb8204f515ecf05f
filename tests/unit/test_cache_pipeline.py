"""A task and the cache: a hit waits for no slot and teaches nothing of its host, a miss keeps to its pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.lane import CACHE_PREFIX, cache_lane, lane_without_cache
from shoal.core.page import Request
from shoal.core.run_counters import cache_usage
from shoal.core.sitemap import SITEMAP
from shoal.core.task import LeasedTask, Outcome, RequestOptions, is_plain
from shoal.core.url import request_digest
from shoal.errors import FetchFailed
from shoal.extract.page import Page
from shoal.fetch.cache import CacheStore, CachingFetcher
from shoal.fetch.single_flight import SingleFlight
from shoal.queue.values import CacheEntry
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.request_builder import RequestBuilder

FREE = cache_lane("a.test")


class CachedHarness(PipelineHarness):
    """The same with a run that uses a cache, which is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[bytes, CacheEntry] = {}
        self.disallowed: set[str] = set()
        store = CacheStore(self.get, self.get, self.put)
        self.caching = CachingFetcher(self, store, SingleFlight(), user_agent="shoal")

    async def get(self, keys: Sequence[bytes]) -> list[CacheEntry | None]:
        return [self.entries.get(key) for key in keys]

    async def put(self, key: bytes, host: str, url: str, data: bytes, fresh_for: float) -> bool:
        self.entries[key] = CacheEntry(1, key, host, url, 0.0, fresh_for, len(data), data)
        return True

    def peek(self, lane: str, url: str) -> bool | None:
        return False if url in self.disallowed else None

    def tools(self) -> WorkerContext:
        context = super().tools()
        build = context.build_run_context

        async def serve(run: int) -> RunContext:
            return replace(
                await build(run),
                request_builder=RequestBuilder(cache=60.0),
                fetcher=self.caching,
                cached=self.caching.would_answer,
            )

        context.build_run_context = serve
        return context

    async def page(self, lane: str = "a.test", url: str = HOME, **task: Any) -> Outcome:
        self.calls.clear()
        task = {"spacing": 1.0 if not lane.startswith(CACHE_PREFIX) else 0.0, **task}
        return await process_task(LeasedTask(id=7, lease=9, run=1, lane=lane, url=url, **task), self.tools(), 0.0)


def links(page: Page) -> Any:
    return [{"from_cache": page.from_cache}, page.follow(["/b", "/c"])]


async def cached() -> CachedHarness:
    """Home and /b are in the cache."""
    harness = CachedHarness()
    harness.handler(links)
    for url in (HOME, "http://a.test/b"):
        harness.answers[url] = html()
        assert (await harness.page(url=url)).result == "done"
    return harness


async def test_a_hit_takes_no_slot_and_sends_nothing() -> None:
    harness = await cached()
    outcome = await harness.page()
    assert (outcome.result, harness.calls, outcome.lanes) == ("done", [], ())
    assert outcome.records == (b'{"from_cache":true}',)


async def test_hits_and_misses_are_counted_and_only_what_was_fetched_is_fetched() -> None:
    harness = CachedHarness()
    harness.handler(links)
    harness.answers[HOME] = html("x" * 50)
    first, second = await harness.page(), await harness.page()
    one, other = cache_usage(first.counters), cache_usage(second.counters)
    assert one is not None and (one.hits, one.misses, one.bytes) == (0, 1, 0)
    assert other is not None and (other.hits, other.misses, other.bytes, other.hit_rate) == (1, 0, 50, 1.0)
    assert any(name.startswith("fetch.") for name in first.counters)
    assert not any(name.startswith("fetch.") for name in second.counters)
    assert cache_usage({"fetch.http.direct.responses": 3}) is None


async def test_links_to_pages_in_the_cache_wait_in_a_lane_without_a_pace() -> None:
    harness = await cached()
    outcome = await harness.page()
    assert [(task.url, task.lane) for task in outcome.found] == [
        ("http://a.test/b", FREE),
        ("http://a.test/c", "a.test"),
    ]
    assert outcome.found[0].digest == request_digest("http://a.test/b")


async def test_entries_of_a_sitemap_in_the_cache_wait_in_a_lane_without_a_pace() -> None:
    harness = await cached()
    harness.answers["http://a.test/s.txt"] = html("http://a.test/b\nhttp://a.test/c")
    outcome = await harness.page(url="http://a.test/s.txt", kind=SITEMAP)
    assert [(task.url, task.lane) for task in outcome.found] == [
        ("http://a.test/b", FREE),
        ("http://a.test/c", "a.test"),
    ]


async def test_what_has_gone_from_the_cache_takes_a_slot_of_its_host_and_no_attempt() -> None:
    harness = await cached()
    assert (await harness.page(FREE)).result == "done" and harness.calls == []
    harness.entries.clear()
    assert (await harness.page(FREE)).result == "done"
    assert harness.calls == ["slot a.test", HOME]


async def test_a_failure_of_such_a_page_is_its_hosts() -> None:
    harness = await cached()
    harness.entries.clear()
    harness.answers[HOME] = FetchFailed("connect", "no")
    outcomes = [await harness.page(FREE) for _ in range(3)]
    assert {outcome.result for outcome in outcomes} == {"retry"}
    assert {change.lane for outcome in outcomes for change in outcome.lanes} <= {"a.test"}


async def test_robots_txt_that_is_known_counts_for_pages_in_the_cache_too() -> None:
    harness = await cached()
    harness.disallowed.add(HOME)
    outcome = await harness.page()
    assert (outcome.result, outcome.cause, harness.calls) == ("dead", "robots", [])


async def test_a_login_a_session_or_a_page_asked_for_again_is_never_from_the_cache() -> None:
    builder = RequestBuilder(cache=60.0)
    assert builder.cache_age(None) == 60.0
    assert builder.cache_age(RequestOptions(cache=5.0)) == 5.0
    for options in (RequestOptions(session="a"), RequestOptions(auth="a", cache=5.0), RequestOptions(again=1)):
        assert builder.cache_age(options) == 0.0


def test_how_old_a_response_may_be_is_no_part_of_a_tasks_identity() -> None:
    assert request_digest(HOME, RequestOptions(cache=5.0)) == request_digest(HOME)
    assert is_plain(None) and is_plain(RequestOptions(cache=5.0))
    assert not is_plain(RequestOptions(cache=5.0, method="POST"))
    assert RequestBuilder().build(HOME, RequestOptions(cache=5.0), HOME) == Request(HOME, cache=5.0)


def test_the_lane_of_a_hosts_cached_pages_is_beside_its_own() -> None:
    assert (FREE, cache_lane(FREE), lane_without_cache(FREE)) == ("cache:a.test", FREE, "a.test")
    assert lane_without_cache("a.test@de") == "a.test@de"
