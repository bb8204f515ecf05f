"""The response cache: what one run has fetched, others need not, within a bound of bytes and age."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.harness import QueueHarness
from shoal.queue.base import CACHE_ENTRY_BYTES, CACHE_KEPT_SECONDS, MAX_CACHE_BODIES, MAX_CACHE_KEYS, NewCacheEntry

BOUND = 100_000


def entry(number: int, data: bytes = b"body", host: str = "a.test", **more: Any) -> NewCacheEntry:
    return NewCacheEntry(key(number), host, f"http://{host}/{number}", data, **more)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def put(harness: QueueHarness, *entries: NewCacheEntry, bound: int = BOUND) -> list[bool]:
    return [await harness.queue.cache_put(it, bound) for it in entries]


async def known(harness: QueueHarness) -> list[int]:
    """What is in the cache, oldest first."""
    return [int.from_bytes(it.key, "big") for it in reversed(await harness.queue.cache_list())]


async def test_what_was_put_is_there_for_every_handle(harness: QueueHarness) -> None:
    data = bytes(range(256)) * 3
    await put(harness, entry(1, data, fresh_for=60.5))
    await harness.advance(5)
    found = await (await harness.open()).cache_get([key(2), key(1)])
    assert found[0] is None and found[1] is not None
    assert (found[1].data, found[1].url, found[1].host) == (data, "http://a.test/1", "a.test")
    assert (found[1].age, found[1].fresh_for) == (5.0, 60.5)
    await harness.reopen()
    assert [it is not None for it in await harness.queue.cache_get([key(1), key(1)])] == [True, True]


async def test_without_bodies_only_what_is_known_of_entries_comes(harness: QueueHarness) -> None:
    await put(harness, entry(1, b"x" * 1000))
    (found,) = await harness.queue.cache_get([key(1)], bodies=False)
    assert found is not None and found.data == b"" and found.url == "http://a.test/1"
    assert found.size == 1000 + len("http://a.test/1") + len("a.test") + CACHE_ENTRY_BYTES


async def test_a_put_replaces_what_its_key_had_and_is_the_newest(harness: QueueHarness) -> None:
    await put(harness, entry(1), entry(2), entry(1, b"newer"))
    (found,) = await harness.queue.cache_get([key(1)])
    assert found is not None and found.data == b"newer"
    assert await known(harness) == [2, 1]
    assert (await harness.queue.cache_stats()).entries == 2


async def test_the_oldest_go_first_when_there_is_no_room(harness: QueueHarness) -> None:
    for number in range(40):
        await put(harness, entry(number, b"x" * 4_000))
        assert (await harness.queue.cache_stats()).bytes <= BOUND
    left = await known(harness)
    assert left == list(range(40 - len(left), 40)) and len(left) == BOUND // (4_000 + 22 + CACHE_ENTRY_BYTES)


async def test_the_account_is_the_sum_of_what_is_there(harness: QueueHarness) -> None:
    for number in range(60):
        await put(harness, entry(number % 25, b"x" * (number * 97 % 5_000), host=f"{number % 3}.test"))
    await harness.queue.cache_clear(host="1.test")
    await harness.queue.cache_clear(keys=[key(3), key(99)])
    stats, listed = await harness.queue.cache_stats(), await harness.queue.cache_list()
    assert (stats.entries, stats.bytes) == (len(listed), sum(it.size for it in listed))


async def test_one_entry_takes_no_more_than_a_part_of_the_bound(harness: QueueHarness) -> None:
    most = BOUND // 16 - 21 - CACHE_ENTRY_BYTES
    assert await put(harness, entry(1, b"x" * most), entry(2)) == [True, True]
    assert await put(harness, entry(3, b"x" * (most + 1)), entry(1, b"x" * (most + 1))) == [False, False]
    assert await known(harness) == [2]


async def test_a_lower_bound_is_reached_with_the_next_put(harness: QueueHarness) -> None:
    await put(harness, *(entry(number, b"x" * 1_000) for number in range(30)))
    await put(harness, entry(99), bound=10_000)
    assert (await harness.queue.cache_stats()).bytes <= 10_000
    assert (await known(harness))[-1] == 99


async def test_nothing_is_there_for_longer_than_a_week(harness: QueueHarness) -> None:
    await put(harness, entry(1))
    await harness.advance(CACHE_KEPT_SECONDS - 10)
    await put(harness, entry(2))
    assert await known(harness) == [1, 2]
    await harness.advance(11)
    assert [it is not None for it in await harness.queue.cache_get([key(1), key(2)])] == [False, True]
    assert await known(harness) == [2]
    await harness.queue.reap()
    stats = await harness.queue.cache_stats()
    assert (stats.entries, stats.oldest) == (1, 11.0)


async def test_entries_are_listed_newest_first_and_by_host(harness: QueueHarness) -> None:
    await put(harness, *(entry(number, host=f"{number % 2}.test") for number in range(6)))
    first = await harness.queue.cache_list(limit=2)
    assert [it.url for it in first] == ["http://1.test/5", "http://0.test/4"]
    rest = await harness.queue.cache_list(before=first[-1].seq, limit=10)
    assert [int(it.url[-1]) for it in rest] == [3, 2, 1, 0]
    assert [int(it.url[-1]) for it in await harness.queue.cache_list(host="1.test")] == [5, 3, 1]
    assert await harness.queue.cache_list(host="no.test") == []


async def test_entries_are_cleared_by_key_by_host_and_all(harness: QueueHarness) -> None:
    await put(harness, *(entry(number, host=f"{number % 2}.test") for number in range(8)))
    assert await harness.queue.cache_clear(keys=[key(0), key(77)]) == 1
    assert await harness.queue.cache_clear(keys=[key(2)], host="1.test") == 0
    assert await harness.queue.cache_clear(host="1.test") == 4
    assert await harness.queue.cache_clear(limit=2) == 2
    assert await known(harness) == [6]
    assert await harness.queue.cache_clear() == 1
    assert await harness.queue.cache_clear() == 0
    stats = await harness.queue.cache_stats()
    assert (stats.entries, stats.bytes, stats.oldest) == (0, 0, 0.0)


async def test_odd_texts_and_bytes_come_back_as_they_were(harness: QueueHarness) -> None:
    host = "xn--caf-dma.test:8080"
    odd = NewCacheEntry(b"\x00\xff" * 8, host, f"http://{host}/%00?q=ä\U0001f600", b"\x00\xff")
    await put(harness, odd)
    (found,) = await harness.queue.cache_get([odd.key])
    assert found is not None
    assert (found.key, found.host, found.url, found.data) == (odd.key, odd.host, odd.url, odd.data)


@pytest.mark.parametrize(("count", "bodies"), [(MAX_CACHE_BODIES + 1, True), (MAX_CACHE_KEYS + 1, False)])
async def test_too_many_at_once_are_refused(harness: QueueHarness, count: int, bodies: bool) -> None:
    with pytest.raises(ValueError, match="at most"):
        await harness.queue.cache_get([key(number) for number in range(count)], bodies=bodies)
    assert await harness.queue.cache_get([key(n) for n in range(count - 1)], bodies=bodies) == [None] * (count - 1)


async def test_many_that_put_at_once_keep_the_account(harness: QueueHarness) -> None:
    others = [await harness.open() for _ in range(3)]
    await asyncio.gather(
        *(queue.cache_put(entry(number % 30, b"x" * 2_000), BOUND) for number in range(60) for queue in others)
    )
    stats, listed = await harness.queue.cache_stats(), await harness.queue.cache_list()
    assert (stats.entries, stats.bytes) == (len(listed), sum(it.size for it in listed))
    assert stats.entries == 30
