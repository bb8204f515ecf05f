"""ResponseCache: fetchers around fetchers that share one cache, which is the queue's."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.config.load import Settings
from shoal.fetch.base import Fetcher
from shoal.fetch.cache import CacheStore, CachingFetcher
from shoal.fetch.single_flight import SingleFlight
from shoal.queue.base import Cache, CacheEntry, NewCacheEntry


class ResponseCache:
    def __init__(self, queue: Cache, settings: Settings) -> None:
        self._queue = queue
        self._max_bytes = settings.cache_size
        self._flights = SingleFlight(settings.state_folder / "cache.lock")
        self._store = CacheStore(queue.cache_get, self._look, self._put)

    def around(self, fetcher: Fetcher, settings: Settings) -> CachingFetcher:
        """settings: of the run."""
        return CachingFetcher(
            fetcher, self._store, self._flights, user_agent=settings.user_agent, max_body=settings.max_body
        )

    def close(self) -> None:
        self._flights.close()

    async def _look(self, keys: Sequence[bytes]) -> list[CacheEntry | None]:
        return await self._queue.cache_get(keys, bodies=False)

    async def _put(self, key: bytes, host: str, url: str, data: bytes, fresh_for: float) -> bool:
        return await self._queue.cache_put(NewCacheEntry(key, host, url, data, fresh_for), self._max_bytes)
