"""CurlLoopPool: a driver for plain direct connections, and one per proxy and run with requests of its own.

No two logins share a connection, and nobody's next response comes from one on which a run chose what was sent.
"""

from __future__ import annotations

from shoal.errors import FetchFailed
from shoal.fetch.curl_loop import CurlLoop

MAX_POOLS = 32  # kept beside the plain one; those with transfers in progress are kept beyond that


class CurlLoopPool:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._direct: CurlLoop | None = None
        self._separate: dict[tuple[str, str], CurlLoop] = {}
        self._closed = False

    def driver(self, proxy: str, owner: str = "") -> CurlLoop:
        """The driver of this proxy with this login (none: direct connections) and of this owner (none: shared)."""
        if self._closed:
            raise FetchFailed("closed", "the fetcher was closed")
        if proxy or owner:
            return self._separate_driver((proxy, owner))
        if self._direct is None:
            self._direct = CurlLoop(idle_connections=2 * self._concurrency)
        return self._direct

    def close(self) -> None:
        self._closed = True
        for driver in (self._direct, *self._separate.values()):
            if driver is not None:
                driver.close()
        self._direct = None
        self._separate.clear()

    def _separate_driver(self, key: tuple[str, str]) -> CurlLoop:
        driver = self._separate.pop(key, None) or CurlLoop(idle_connections=self._concurrency)
        self._separate[key] = driver  # the most recent stands last
        if len(self._separate) > MAX_POOLS:
            self._drop_oldest()
        return driver

    def _drop_oldest(self) -> None:
        for key, driver in list(self._separate.items())[:-1]:
            if driver.is_idle:
                driver.close()
                del self._separate[key]
                return
