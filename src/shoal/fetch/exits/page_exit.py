"""PageExit: how a page in a browser leaves, with all that it loads: by the exit or proxy that its request names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from shoal.core.page import Request
from shoal.core.url import host_of
from shoal.errors import FetchFailed, ProxyFailed
from shoal.fetch.exits.exit_set import ExitSet, NamedExit
from shoal.fetch.exits.fetcher import MAX_TRIED
from shoal.fetch.exits.proxy_pool import ProxyState
from shoal.fetch.gateway.exit import Connection, Exit, Forwarding
from shoal.fetch.gateway.request_head import RequestHead

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageExits:
    direct: Exit
    through: Callable[[str], Exit]  # by a proxy
    exits: ExitSet

    def for_page(self, request: Request) -> PageExit:
        """For a page and all that it loads. Raises FetchRefused (blocked.exit)."""
        if request.exit:
            return PageExit(self, self.exits.find(request.exit), request.session, host_of(request.url))
        return PageExit(self, None, "", "", request.proxy)


class PageExit:
    """One proxy for the whole page: a site sees one visitor. When it fails, the next one takes over."""

    def __init__(self, exits: PageExits, named: NamedExit | None, session: str, host: str, proxy: str = "") -> None:
        self._exits = exits
        self._named = named
        self._session = session
        self._host = host
        self._proxy: ProxyState | None = None
        self.is_direct = not proxy if named is None else named.is_direct
        self._way = exits.direct if self.is_direct else exits.through(proxy) if named is None else None
        if named is not None:
            named.count_request()

    async def prepare(self) -> None:
        """Before the time of the page begins: a tor may have to be started. Raises FetchFailed (exit)."""
        if self._named is not None and not self.is_direct:
            self._proxy = await self._named.choose(self._session, self._host, ())

    async def open_connection(self, host: str, port: int) -> Connection:
        return await self._open(lambda way: way.open_connection(host, port), host)

    async def open_forwarding(self, head: RequestHead) -> Forwarding:
        return await self._open(lambda way: way.open_forwarding(head), head.host)

    def note_response(self, status: int, size: int) -> None:
        """The page was read."""
        if self._named is not None:
            self._named.note_response(self._proxy, self._session, self._host, status, size)

    def note_bytes(self, size: int) -> None:
        if self._named is not None:
            self._named.note_bytes(size)

    def note_failure(self, message: str) -> None:
        """The site did not answer in time."""
        if self._named is not None:
            self._named.note_site_failure(self._proxy, self._host, message)

    async def _open(self, call: Callable[[Exit], Awaitable[T]], host: str) -> T:
        if self._way is not None:
            return await call(self._way)
        assert self._named is not None
        tried: list[ProxyState] = []
        while True:
            chosen = self._proxy or await self._named.choose(self._session, self._host, tried)
            proxy = self._proxy = self._proxy or chosen
            try:
                return await call(self._exits.through(proxy.url))
            except ProxyFailed as error:
                self._named.note_proxy_failure(proxy, str(error))
                tried.append(proxy)
                if self._proxy is proxy:  # another connection may have found a better one meanwhile
                    self._proxy = None
                if len(tried) == MAX_TRIED:
                    words = f"{MAX_TRIED} proxies of the exit {self._named.name} failed, the last one: {error}"
                    raise FetchFailed("exit", words) from error
            except FetchFailed as error:
                self._named.note_site_failure(proxy, host, f"{error.cause}: {error}")
                raise
