"""What the cache takes and is asked for at once, the same on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from shoal.queue.base import CACHE_ENTRY_BYTES, CACHE_SHARE, MAX_CACHE_BODIES, MAX_CACHE_KEYS
from shoal.queue.values import NewCacheEntry

MAX_KEY = 64  # bytes; whatever is longer is no key of ours
MAX_HOST, MAX_URL = 300, 16_000  # characters
PUSHED_OUT = 500  # entries that one put removes at most: after the bound was lowered, the rest goes with the next


def entry_size(entry: NewCacheEntry) -> int:
    """What an entry counts for."""
    text = entry.url + entry.host
    return len(entry.data) + len(text.encode("utf-8", "surrogatepass")) + CACHE_ENTRY_BYTES


def is_too_large(entry: NewCacheEntry, max_bytes: int) -> bool:
    return entry_size(entry) > max_bytes // CACHE_SHARE


def check_cache_entry(entry: NewCacheEntry) -> None:
    """Refuse an entry of a stranger that would count for less than it takes, or that no store can keep."""
    if not 0 < len(entry.key) <= MAX_KEY or len(entry.host) > MAX_HOST or len(entry.url) > MAX_URL:
        raise ValueError("the key, host or URL of an entry of the cache is empty or too long")
    if not isfinite(entry.fresh_for):
        raise ValueError("an entry of the cache is fresh for a number of seconds")


def check_cache_keys(keys: Sequence[bytes], bodies: bool) -> None:
    most = MAX_CACHE_BODIES if bodies else MAX_CACHE_KEYS
    if len(keys) > most:
        raise ValueError(f"at most {most:,} entries of the cache at once{' with their data' if bodies else ''}")
