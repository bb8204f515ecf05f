"""Start URLs that are in the cache wait in lanes without a pace, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import load
from shoal.core.cache_rules import cache_key
from shoal.core.page import Request
from shoal.core.run import NewRun
from shoal.core.task import RequestOptions
from shoal.queue.base import NewCacheEntry
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.cached_starts import free_cached_of, free_cached_starts
from shoal.runs.start import add_tasks, in_batches
from shoal.sources.start_task import start_task

A, B = "http://a.test/a", "http://a.test/b"


@pytest.fixture
async def queue(tmp_path: Path) -> Any:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"))
    agent = load({}, env={}).user_agent
    await queue.cache_put(NewCacheEntry(cache_key(Request(A), agent), "a.test", A, b"x", fresh_for=10.0), 1_000_000)
    yield queue
    await queue.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cache": "60s"}, ["cache:a.test", "a.test"]),
        ({"cache": "http"}, ["cache:a.test", "a.test"]),
        ({}, ["a.test", "a.test"]),
        ({"cache": "60s", "user_agent": "other"}, ["a.test", "a.test"]),
        ({"cache": "60s", "header": ["Accept-Language: de"]}, ["a.test", "a.test"]),
        ({"cache": "60s", "header": ["Cookie: a=b"]}, ["a.test", "a.test"]),
        ({"cache": "60s", "auth": "shop"}, ["a.test", "a.test"]),
        ({"cache": "60s", "proxy": "http://p.test"}, ["a.test", "a.test"]),
    ],
)
async def test_only_what_the_run_would_take_from_the_cache_is_freed(
    queue: SqliteQueue, given: dict[str, Any], expected: list[str]
) -> None:
    free = free_cached_starts(queue, load(given, env={}))
    assert [task.lane for task in await free([start_task(A), start_task(B)])] == expected


async def test_other_ways_to_ask_for_a_page_are_not_freed(queue: SqliteQueue) -> None:
    import msgspec

    posted = msgspec.structs.replace(start_task(A), request_options=RequestOptions(method="POST"))
    (task,) = await free_cached_starts(queue, load({"cache": "60s"}, env={}))([posted])
    assert task.lane == "a.test"


async def test_tasks_of_a_run_that_is_submitted_are_freed_by_what_it_says(queue: SqliteQueue) -> None:
    run = await queue.start_run(NewRun("s", "k", "r1", {"settings": {"cache": "60s"}}))
    await add_tasks(queue, run, in_batches([start_task(A), start_task(B)], {}))
    claimed = await queue.claim("w", 10)
    assert {task.url: (task.lane, task.spacing) for task in claimed.tasks} == {
        A: ("cache:a.test", 0.0),
        B: ("a.test", 1.0),
    }
    assert free_cached_of(queue, await queue.start_run(NewRun("s", "k2", "r2", {}))) is None
