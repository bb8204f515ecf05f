"""ExitFetcher: a fetcher whose requests leave by the exit that they name, through a proxy that works."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.page import Request, Response
from shoal.core.url import host_of
from shoal.errors import FetchFailed, ProxyFailed
from shoal.fetch.base import Fetcher
from shoal.fetch.exits.exit_set import ExitSet, NamedExit
from shoal.fetch.exits.proxy_pool import ProxyState

MAX_TRIED = 3  # proxies for one request
_OWN_FAULTS = ("stalled", "closed")


class ExitFetcher:
    def __init__(self, plain: Fetcher, exits: ExitSet, *, owns_exits: bool = False) -> None:
        """owns_exits: nobody else uses them, so that they are closed with it."""
        self._plain = plain
        self._exits = exits
        self._owns_exits = owns_exits

    async def fetch(self, request: Request) -> Response:
        """Where a proxy itself fails, the site was not asked: the next one is tried at once."""
        if not request.exit:
            return await self._plain.fetch(request)
        exit, host = self._exits.find(request.exit), host_of(request.url)
        if exit.is_direct:
            return await self._fetch(request, exit, None, host)
        tried: list[ProxyState] = []
        while True:
            proxy = await exit.choose(request.session, host, tried)
            try:
                return await self._fetch(request, exit, proxy, host)
            except ProxyFailed as error:
                exit.note_proxy_failure(proxy, str(error))
                tried.append(proxy)
                if len(tried) == MAX_TRIED:
                    words = f"{MAX_TRIED} proxies of the exit {exit.name} failed, the last one: {error}"
                    raise FetchFailed("exit", words) from error

    def note_stall(self, seconds: float) -> None:
        self._plain.note_stall(seconds)

    async def close(self) -> None:
        await self._plain.close()
        if self._owns_exits:
            await self._exits.close()

    async def _fetch(self, request: Request, exit: NamedExit, proxy: ProxyState | None, host: str) -> Response:
        exit.count_request()
        try:
            response = await self._plain.fetch(replace(request, proxy=proxy.url if proxy else "", exit=""))
        except ProxyFailed:
            raise
        except FetchFailed as error:
            if error.cause not in _OWN_FAULTS:
                exit.note_site_failure(proxy, host, f"{error.cause}: {error}")
            raise
        size = response.transferred or len(response.body)
        exit.note_response(proxy, request.session, host, response.status, size)
        return response
