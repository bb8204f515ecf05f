"""ProxyPool: which proxy of an exit a request takes, and which are left alone for a while.

Pure: the caller brings the time. Who keeps a proxy finds the same one in every process of the fleet, without
asking anybody: all rank the proxies by a hash of their names and of whoever asks.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from hashlib import blake2b
from heapq import nlargest

from shoal.core.session import is_identity
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.proxy import validate_proxy

CANDIDATES = 8  # of the proxies that whoever keeps one may come to have
MAX_COOL_DOWN = 1800.0  # seconds
MAX_DOUBLINGS = 6
MAX_SUSPECT_HOSTS = 100


class ProxyState:
    """One proxy: what was counted, and for how long it is left alone."""

    __slots__ = ("_suspect_hosts", "cool_downs", "cool_until", "failures", "in_a_row", "shown", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = validate_proxy(url)
        self.failures = 0
        self.in_a_row = 0
        self.cool_downs = 0  # since it last worked
        self.cool_until = 0.0
        self._suspect_hosts: set[str] = set()

    def note_response(self) -> None:
        self.in_a_row = self.cool_downs = 0
        self._suspect_hosts.clear()

    def note_own_failure(self) -> int:
        """It failed itself; how many failures in a row speak against it now."""
        self.failures += 1
        self.in_a_row += 1
        return self.in_a_row + len(self._suspect_hosts)

    def note_site_failure(self, host: str) -> int:
        """A site did not answer through it: that speaks against the proxy where it happens with several sites."""
        self.failures += 1
        if len(self._suspect_hosts) < MAX_SUSPECT_HOSTS:
            self._suspect_hosts.add(host)
        several = len(self._suspect_hosts) if len(self._suspect_hosts) > 1 else 0
        return self.in_a_row + several


class ProxyPool:
    def __init__(self, options: ExitOptions, start: int = 0) -> None:
        """start: which proxy is the first in turn, so that processes do not all begin with the same."""
        self._options = options
        self.proxies = tuple(map(ProxyState, options.proxies))
        self._next = start
        self._ranked = lru_cache(maxsize=4096)(self._rank)

    def choose(self, session: str, host: str, now: float, tried: Collection[ProxyState] = ()) -> ProxyState | None:
        """The proxy for a request; None: all are left alone now, or were tried."""
        sticky = self._options.sticky
        if is_identity(session):
            # Its site knows it by this proxy: without it, it waits, or is retired.
            first = self._ranked(session)[0]
            return first if first.cool_until <= now and first not in tried else None
        if sticky == "none" and not session:
            return self._choose_next(now, tried)
        key = session if session and sticky != "host" else f"{session}\0{host}"
        for proxy in self._ranked(key):
            if proxy.cool_until <= now and proxy not in tried:
                return proxy
        return self._choose_next(now, tried)

    def wait(self, now: float) -> float:
        """Seconds until one of them may be tried again."""
        return max(0.0, min(proxy.cool_until for proxy in self.proxies) - now)

    def cooling(self, now: float) -> int:
        return sum(proxy.cool_until > now for proxy in self.proxies)

    def note_failures(self, proxy: ProxyState, in_a_row: int, now: float) -> bool:
        """Leave it alone if that is too much; one that has been before and has not worked since fails once."""
        if in_a_row < (1 if proxy.cool_downs else self._options.failures):
            return False
        pause = self._options.cool_down * 2.0 ** min(proxy.cool_downs, MAX_DOUBLINGS)
        proxy.cool_until = now + min(pause, max(MAX_COOL_DOWN, self._options.cool_down))
        proxy.cool_downs += 1
        return True

    def _choose_next(self, now: float, tried: Collection[ProxyState]) -> ProxyState | None:
        for _ in self.proxies:
            proxy = self.proxies[self._next % len(self.proxies)]
            self._next += 1
            if proxy.cool_until <= now and proxy not in tried:
                return proxy
        return None

    def _rank(self, key: str) -> list[ProxyState]:
        def weight(proxy: ProxyState) -> bytes:
            return blake2b(f"{proxy.url}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

        return nlargest(CANDIDATES, self.proxies, key=weight)
