"""BrowserFetcher: pages by a browser, which is started when the first is asked for."""

from __future__ import annotations

import logging
from functools import partial

from shoal.core.url import path_of
from shoal.errors import FetchFailed, FetchRefused, UsageError
from shoal.fetch.base import VisitRequest
from shoal.fetch.browser.driver import BrowserDriver
from shoal.fetch.browser.failures import BROWSER
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.pool import BrowserPool
from shoal.fetch.browser.process import BrowserProcess
from shoal.fetch.browser.program import is_remote
from shoal.fetch.browser.visit import BrowserVisit
from shoal.fetch.exits.page_exit import PageExits

log = logging.getLogger("shoal.fetch")


class BrowserFetcher:
    def __init__(self, options: BrowserOptions, exits: PageExits) -> None:
        self._options = options
        self._exits = exits
        self._driver = BrowserDriver()
        self.pool = BrowserPool(options, partial(self._start))

    async def visit(self, request: VisitRequest) -> BrowserVisit:
        if not request.url.startswith(("http://", "https://")):
            raise FetchRefused("blocked.scheme", f"only http and https are fetched: {request.url[:200]}")
        origin = request.url[: len(request.url) - len(path_of(request.url))]
        session = await self.pool.take(request.session, origin, request.storage, request.is_wanted)
        visit = BrowserVisit(request, session, self.pool, self._exits, self._options)
        try:
            await visit.open()
        except BaseException:
            session.is_spoilt = True
            await visit.close()
            raise
        return visit

    async def close(self) -> None:
        await self.pool.close()
        await self._driver.close()

    async def _start(self) -> BrowserProcess:
        if is_remote(self._options.browser):
            log.warning("browser_unguarded", extra={"why": "a browser elsewhere goes its own ways in the network"})
        try:
            return await BrowserProcess.start(self._driver, self._options)
        except UsageError as error:
            raise FetchFailed(BROWSER, f"{error}; {error.hint}") from error
