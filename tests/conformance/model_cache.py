"""The model's idea of the response cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.model_state import micros
from shoal.queue.base import CACHE_KEPT_SECONDS, CacheEntry, CacheStats, NewCacheEntry
from shoal.queue.cache_limits import check_cache_keys, entry_size, is_too_large


@dataclass
class ModelCacheEntry:
    new: NewCacheEntry
    seq: int
    stored_at: int


class ModelCache:
    clock: Callable[[], int]
    cached: dict[bytes, ModelCacheEntry]
    last_put: int

    async def cache_get(self, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
        check_cache_keys(keys, bodies)
        self._drop_aged()
        found = [self.cached.get(key) for key in keys]
        return [None if it is None else self._view(it, it.new.data if bodies else b"") for it in found]

    async def cache_put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        self.cached.pop(entry.key, None)
        if is_too_large(entry, max_bytes):
            return False
        self.last_put += 1
        self.cached[entry.key] = ModelCacheEntry(entry, self.last_put, self.clock())
        self._drop_aged()
        while sum(entry_size(it.new) for it in self.cached.values()) > max_bytes:
            del self.cached[next(iter(self.cached))]
        return True

    async def cache_list(self, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
        self._drop_aged()
        chosen = [it for it in self.cached.values() if host in ("", it.new.host) and (not before or it.seq < before)]
        return [self._view(it) for it in reversed(chosen)][:limit]

    async def cache_clear(self, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
        chosen = [key for key, it in self.cached.items() if host in ("", it.new.host) and (not keys or key in keys)][
            :limit
        ]
        for key in chosen:
            del self.cached[key]
        return len(chosen)

    async def cache_stats(self) -> CacheStats:
        self._drop_aged()
        oldest = max((self._age(it) for it in self.cached.values()), default=0.0)
        return CacheStats(len(self.cached), sum(entry_size(it.new) for it in self.cached.values()), oldest)

    def _view(self, it: ModelCacheEntry, data: bytes = b"") -> CacheEntry:
        new = it.new
        return CacheEntry(it.seq, new.key, new.host, new.url, self._age(it), new.fresh_for, entry_size(new), data)

    def _age(self, it: ModelCacheEntry) -> float:
        return max(0, self.clock() - it.stored_at) / 1e6

    def _drop_aged(self) -> None:
        oldest = self.clock() - micros(CACHE_KEPT_SECONDS)
        self.cached = {key: it for key, it in self.cached.items() if it.stored_at > oldest}
