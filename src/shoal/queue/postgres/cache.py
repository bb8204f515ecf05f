"""The response cache: a table that is not logged, bounded by its own account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.queue.base import CACHE_KEPT_SECONDS, CacheEntry, CacheStats, NewCacheEntry
from shoal.queue.cache_limits import PUSHED_OUT, check_cache_keys, entry_size, is_too_large
from shoal.queue.postgres.columns import SECOND, micros
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul

_KEPT = micros(CACHE_KEPT_SECONDS)
_FIELDS = "e.seq, e.key, e.host, e.url, c.now - e.stored_at, e.fresh_for, e.size"
_GET = f"""
SELECT {_FIELDS}, CASE WHEN $3 THEN e.data ELSE '' END FROM {{s}}.cache_entries e, (SELECT {{s}}.clock_micros($1) AS now) c
WHERE e.key = ANY ($2) AND e.stored_at > c.now - $4::bigint"""
_LISTING = f"""
SELECT {_FIELDS}, ''::bytea FROM {{s}}.cache_entries e, (SELECT {{s}}.clock_micros($1) AS now) c
WHERE e.stored_at > c.now - $2::bigint AND e.seq < $3 {{term}} ORDER BY e.seq DESC LIMIT $4"""
_STATS = """
SELECT coalesce((SELECT entries FROM {s}.cache_totals), 0), coalesce((SELECT bytes FROM {s}.cache_totals), 0),
       {s}.clock_micros($1) - (SELECT stored_at FROM {s}.cache_entries ORDER BY seq LIMIT 1)"""


async def get(engine: Engine, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
    check_cache_keys(keys, bodies)
    rows = await engine.rows(_GET, engine.now(), list(keys), bodies, _KEPT)
    found = {entry.key: entry for entry in map(_entry, rows)}
    return [found.get(key) for key in keys]


async def put(engine: Engine, entry: NewCacheEntry, max_bytes: int) -> bool:
    is_taken = not is_too_large(entry, max_bytes)
    await engine.value(
        "SELECT {s}.cache_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        engine.now(), entry.key, escape_nul(entry.host), escape_nul(entry.url), entry.fresh_for, entry_size(entry),
        entry.data if is_taken else None, max_bytes, _KEPT, PUSHED_OUT,
    )  # fmt: skip
    return is_taken


async def listing(engine: Engine, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
    sql = _LISTING.replace("{term}", "AND e.host = $5" if host else "")
    values = [engine.now(), _KEPT, before or 2**62, limit, *([escape_nul(host)] if host else [])]
    return [_entry(row) for row in await engine.rows(sql, *values)]


async def clear(engine: Engine, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
    chosen = list(keys) or None
    return int(await engine.value("SELECT {s}.cache_clear($1, $2, $3)", escape_nul(host), chosen, limit))


async def stats(engine: Engine) -> CacheStats:
    ((entries, size, oldest),) = await engine.rows(_STATS, engine.now())
    return CacheStats(entries, size, max(0, oldest or 0) / SECOND)


async def sweep(engine: Engine) -> None:
    """Remove what is too old."""
    await engine.value("SELECT {s}.cache_sweep($1, $2, $3)", engine.now(), _KEPT, PUSHED_OUT)


def _entry(row: Any) -> CacheEntry:
    seq, key, host, url, age, fresh_for, size, data = row
    return CacheEntry(seq, key, unescape_nul(host), unescape_nul(url), max(0, age) / SECOND, fresh_for, size, data)
