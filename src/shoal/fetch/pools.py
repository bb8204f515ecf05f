"""Pools: a driver for direct connections and one per proxy, so that no two proxies or logins share any."""

from __future__ import annotations

from shoal.errors import FetchFailed
from shoal.fetch.driver import Driver

MAX_PROXIES = 32  # pools kept; those with transfers under way are kept beyond that


class Pools:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._direct: Driver | None = None
        self._proxied: dict[str, Driver] = {}
        self._closed = False

    def driver(self, proxy: str) -> Driver:
        """The driver of this proxy with this login; an empty one is a direct connection."""
        if self._closed:
            raise FetchFailed("closed", "the fetcher was closed")
        if proxy:
            return self._through(proxy)
        if self._direct is None:
            self._direct = Driver(idle_connections=2 * self._concurrency)
        return self._direct

    def close(self) -> None:
        self._closed = True
        for driver in (self._direct, *self._proxied.values()):
            if driver is not None:
                driver.close()
        self._direct = None
        self._proxied.clear()

    def _through(self, proxy: str) -> Driver:
        driver = self._proxied.pop(proxy, None) or Driver(idle_connections=self._concurrency)
        self._proxied[proxy] = driver  # the most recent stands last
        if len(self._proxied) > MAX_PROXIES:
            self._drop_oldest()
        return driver

    def _drop_oldest(self) -> None:
        for proxy, driver in list(self._proxied.items())[:-1]:
            if driver.idle:
                driver.close()
                del self._proxied[proxy]
                return
