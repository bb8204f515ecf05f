"""The response cache: in the server's memory, bounded by its own account."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from shoal.queue.base import CACHE_KEPT_SECONDS, CacheEntry, CacheStats, NewCacheEntry
from shoal.queue.cache_limits import PUSHED_OUT, check_cache_keys, entry_size, is_too_large
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import SECOND

CLEARED = 1_000  # entries per call
_KEPT = round(CACHE_KEPT_SECONDS * SECOND)
_HEAD = struct.Struct(">dIHH")  # as lua/cache.lua has it: stored_at, size, length of host and URL
_FRESH_FOR = struct.Struct(">d")


async def get(engine: Engine, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
    check_cache_keys(keys, bodies)
    now, *found = await engine.run("cache_get", int(bodies), *keys)
    pairs = zip(keys, found[::2], found[1::2], strict=True)
    return [_entry(key, int(seq), value, int(now)) if value else None for key, seq, value in pairs]


async def put(engine: Engine, entry: NewCacheEntry, max_bytes: int) -> bool:
    is_taken = not is_too_large(entry, max_bytes)
    url = entry.url.encode("utf-8", "surrogatepass")
    rest = _FRESH_FOR.pack(entry.fresh_for) + url + entry.data if is_taken else b""
    await engine.run(
        "cache_put", entry.key, entry.host, entry_size(entry), len(url), rest, max_bytes, _KEPT, PUSHED_OUT
    )
    return is_taken


async def listing(engine: Engine, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
    keys = await engine.run("cache_list", host, before, limit)
    if not keys:
        return []
    now, *found = await engine.run("cache_get", 0, *keys)
    pairs = zip(keys, found[::2], found[1::2], strict=True)
    entries = [_entry(key, int(seq), value, int(now)) for key, seq, value in pairs if value]
    return [entry for entry in entries if entry is not None]


async def clear(engine: Engine, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
    gone = 0
    if keys:
        for at in range(0, min(len(keys), limit), CLEARED):
            gone += await engine.run("cache_clear", host, limit, *keys[at : at + CLEARED])
        return gone
    while gone < limit and (some := await engine.run("cache_clear", host, min(CLEARED, limit - gone))):
        gone += some
    return gone


async def stats(engine: Engine) -> CacheStats:
    entries, size, oldest = await engine.run("cache_stats")
    return CacheStats(int(entries), int(size), int(oldest) / SECOND)


async def sweep(engine: Engine) -> None:
    """Remove what is too old."""
    await engine.run("cache_sweep", _KEPT, PUSHED_OUT)


def _entry(key: bytes, seq: int, value: bytes, now: int) -> CacheEntry | None:
    stored_at, size, host_size, url_size = _HEAD.unpack_from(value)
    if stored_at <= now - _KEPT:
        return None
    at = _HEAD.size + host_size
    (fresh_for,) = _FRESH_FOR.unpack_from(value, at)
    end = at + _FRESH_FOR.size + url_size
    host, url = value[_HEAD.size : at], value[at + _FRESH_FOR.size : end]
    age = max(0.0, now - stored_at) / SECOND
    return CacheEntry(seq, key, host.decode(), url.decode("utf-8", "surrogatepass"), age, fresh_for, size, value[end:])
