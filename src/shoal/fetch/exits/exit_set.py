"""ExitSet: the exits of one worker process, what is known of their proxies, and what was counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from shoal.core.counters import ExitCounters
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.exits.proxy_pool import ProxyPool, ProxyState
from shoal.fetch.exits.tor_exit import TorExit, TorState
from shoal.logs import redact

MAX_ERROR = 200  # letters
REFUSALS = (403, 429)  # of a site that does not want whoever asks


class NamedExit:
    def __init__(self, options: ExitOptions, clock: Callable[[], float]) -> None:
        self.name = options.name
        self.is_direct = options.is_direct
        self.tor = TorExit(options, options.tor, clock) if options.tor is not None else None
        self._pool = ProxyPool(options, random.randrange(len(options.proxies)) if options.proxies else 0)
        self._clock = clock
        self._requests = self._failures = self._bytes = 0
        self._last_error = ""

    async def choose(self, session: str, host: str, tried: Iterable[ProxyState]) -> ProxyState:
        """Raises FetchFailed with the time after which there may be one. A tor is started first."""
        if self.tor is not None:
            return await self._choose_circuit(self.tor, session, host)
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

    def note_response(self, proxy: ProxyState | None, session: str, host: str, status: int, size: int) -> None:
        self._bytes += size
        if self.tor is not None:
            self.tor.note_answer(session, host, is_refusal=status in REFUSALS)
        if proxy is not None:
            proxy.note_response()

    def note_bytes(self, size: int) -> None:
        """Of a page that is not read, or not yet."""
        self._bytes += size

    def note_proxy_failure(self, proxy: ProxyState, message: str) -> None:
        self._note_failure(message)
        self._pool.note_failures(proxy, proxy.note_own_failure(), self._clock())

    def note_site_failure(self, proxy: ProxyState | None, host: str, message: str) -> None:
        self._note_failure(message)
        if proxy is not None:
            self._pool.note_failures(proxy, proxy.note_site_failure(host), self._clock())

    def counters(self) -> ExitCounters:
        tor = self.tor.state() if self.tor is not None else TorState()
        return ExitCounters(
            self._requests,
            self._failures,
            self._bytes,
            len(self._pool.proxies),
            self._pool.cooling(self._clock()),
            self._last_error,
            int(tor.is_ready),
            tor.circuits,
            tor.phase,
        )

    async def _choose_circuit(self, tor: TorExit, session: str, host: str) -> ProxyState:
        try:
            return ProxyState(await tor.proxy_url(session, host))
        except FetchFailed as error:
            self._note_failure(str(error))
            raise

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

    async def new_circuit(self, name: str, session: str = "", host: str = "") -> None:
        """Requests of a session leave by a new circuit of a Tor exit from now on, or those to a host; or all of them.

        session: as in Request. Exits of another kind have none: for them nothing changes.
        """
        tor = self.find(name).tor
        if tor is not None:
            await tor.new_circuit(session, host)

    async def close(self) -> None:
        for one in self._exits.values():
            if one.tor is not None:
                await one.tor.close()

    def counters(self) -> dict[str, ExitCounters]:
        return {name: one.counters() for name, one in self._exits.items()}
