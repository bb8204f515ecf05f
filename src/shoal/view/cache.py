"""The response cache as people look at it: what is in it, and how much it helped."""

from __future__ import annotations

from typing import Any

from shoal.core.run_counters import CacheUsage
from shoal.core.url import lane_of
from shoal.errors import ShoalError
from shoal.queue.base import Cache, CacheEntry, CacheStats
from shoal.view.formatting import count, format_share, size

PAGE_SIZE = 1_000
MAX_LOOKED_AT = 100_000  # entries of one host, for those of one URL


async def read_stats(queue: Cache) -> CacheStats:
    """What is in the cache; nothing where it is out of order, or a server does not know of one."""
    try:
        return await queue.cache_stats()
    except ShoalError:
        return CacheStats(0, 0)


async def entries_of_url(queue: Cache, url: str) -> list[CacheEntry]:
    """The entries of a canonical URL, newest first: requests that differ in their headers have their own."""
    found: list[CacheEntry] = []
    before = looked_at = 0
    while looked_at < MAX_LOOKED_AT:
        page = await queue.cache_list(host=lane_of(url), before=before, limit=PAGE_SIZE)
        found += [entry for entry in page if entry.url == url]
        looked_at += len(page)
        if len(page) < PAGE_SIZE:
            break
        before = page[-1].seq
    return found


async def clear_cache(queue: Cache, *, host: str = "", url: str = "") -> int:
    """Remove what is of a host, of a URL, or everything; says how many entries that were."""
    if url:
        keys = [entry.key for entry in await entries_of_url(queue, url)]
        return await queue.cache_clear(keys=keys) if keys else 0
    gone = 0
    while some := await queue.cache_clear(host=host):
        gone += some
    return gone


def describe_usage(usage: CacheUsage) -> str:
    """How much the cache helped a run."""
    requests = usage.hits + usage.revalidated + usage.misses  # for pages and sitemaps
    unchanged = f", {count(usage.revalidated)} unchanged" if usage.revalidated else ""
    share = format_share(usage.hits, requests)
    return (
        f"{count(usage.hits)} of {count(requests, 'request')} ({share}) answered from the cache,"
        f" {size(usage.bytes)} saved{unchanged}"
    )


def entry_document(entry: CacheEntry) -> dict[str, Any]:
    return {
        "url": entry.url,
        "host": entry.host,
        "age": round(entry.age, 3),
        "fresh_for": round(entry.fresh_for, 3),
        "bytes": entry.size,
    }


def stats_document(stats: CacheStats) -> dict[str, Any]:
    return {"entries": stats.entries, "bytes": stats.bytes, "oldest": round(stats.oldest, 3)}


def usage_document(usage: CacheUsage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "hits": usage.hits,
        "revalidated": usage.revalidated,
        "misses": usage.misses,
        "bytes": usage.bytes,
        "hit_rate": round(usage.hit_rate, 4),
    }
