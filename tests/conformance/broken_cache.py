"""Queues whose response cache breaks a rule."""

from __future__ import annotations

from conformance.model import ModelQueue
from shoal.queue.base import NewCacheEntry


class CacheWithoutBound(ModelQueue):
    """What is put stays, however much it is."""

    async def cache_put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        return await super().cache_put(entry, 1_000_000_000)


class CacheForEver(ModelQueue):
    """Nothing is ever too old."""

    def _drop_aged(self) -> None:
        pass


class CacheKeepsItsPlace(ModelQueue):
    """A response that replaces another goes when that one would have gone."""

    async def cache_put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        order = list(self.cached)
        taken = await super().cache_put(entry, max_bytes)
        if taken and entry.key in order:
            self.cached = {key: self.cached[key] for key in order if key in self.cached}
        return taken


class CacheClearsOtherHosts(ModelQueue):
    """Whoever clears by key clears whatever host it is of."""

    async def cache_clear(self, *, host: str = "", keys: object = (), limit: int = 10_000) -> int:
        return await super().cache_clear(host="" if keys else host, keys=keys, limit=limit)  # type: ignore[arg-type]
