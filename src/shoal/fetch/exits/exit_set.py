"""ExitSet: the exits of one worker process, what is known of their proxies, and what was counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from shoal.core.counters import ExitCounters
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.exits.proxy_pool import ProxyPool, ProxyState
from shoal.logs import redact

MAX_ERROR = 200  # letters


class NamedExit:
    def __init__(self, options: ExitOptions, clock: Callable[[], float]) -> None:
        self.name = options.name
        self.is_direct = not options.proxies
        self._pool = ProxyPool(options, random.randrange(len(options.proxies)) if options.proxies else 0)
        self._clock = clock
        self._requests = self._failures = self._bytes = 0
        self._last_error = ""

    def choose(self, session: str, host: str, tried: Iterable[ProxyState]) -> ProxyState:
        """Raises FetchFailed with the time after which there may be one."""
        proxy = self._pool.choose(session, host, self._clock(), list(tried))
        if proxy is not None:
            return proxy
        wait = max(1.0, self._pool.wait(self._clock()))
        why = f": {self._last_error}" if self._last_error else ""
        raise FetchFailed(
            "exit", f"no proxy of the exit {self.name} works now, the next is tried in {wait:.0f} s{why}", after=wait
        )

    def count_request(self) -> None:
        self._requests += 1

    def note_response(self, proxy: ProxyState | None, size: int) -> None:
        self._bytes += size
        if proxy is not None:
            proxy.note_response()

    def note_proxy_failure(self, proxy: ProxyState, message: str) -> None:
        self._note_failure(message)
        self._pool.note_failures(proxy, proxy.note_own_failure(), self._clock())

    def note_site_failure(self, proxy: ProxyState | None, host: str, message: str) -> None:
        self._note_failure(message)
        if proxy is not None:
            self._pool.note_failures(proxy, proxy.note_site_failure(host), self._clock())

    def counters(self) -> ExitCounters:
        cooling = self._pool.cooling(self._clock()) if not self.is_direct else 0
        return ExitCounters(
            self._requests, self._failures, self._bytes, len(self._pool.proxies), cooling, self._last_error
        )

    def _note_failure(self, message: str) -> None:
        self._failures += 1
        self._last_error = str(redact(message))[:MAX_ERROR]


class ExitSet:
    def __init__(self, options: Iterable[ExitOptions], clock: Callable[[], float] = time.monotonic) -> None:
        self._exits = {one.name: NamedExit(one, clock) for one in options}

    def find(self, name: str) -> NamedExit:
        found = self._exits.get(name)
        if found is None:
            # What needs an exit is claimed by workers that have it: this is a task that somebody else wrote.
            raise FetchRefused("blocked.exit", f"this worker has no exit called {name}")
        return found

    def counters(self) -> dict[str, ExitCounters]:
        return {name: one.counters() for name, one in self._exits.items()}
