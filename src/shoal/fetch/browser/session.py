"""BrowserSession: a context of a browser for one session of one run, its gateway port, and the tab it has open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.fetch.browser.cookie_sync import CookieSync
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.process import BrowserProcess
from shoal.fetch.browser.tab import Tab
from shoal.fetch.gateway.port import GatewayPort

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

OPEN_TIMEOUT, CLOSE_TIMEOUT = 30.0, 5.0  # seconds


class BrowserSession:
    """One page at a time: what passes its port belongs to that page."""

    def __init__(
        self, key: str, browser: BrowserProcess, context: BrowserContext, port: GatewayPort, options: BrowserOptions
    ) -> None:
        self.key = key
        self.browser = browser
        self.port = port
        self.cookies = CookieSync(context)
        self.tab: Tab | None = None
        self.is_spoilt = False  # nothing of it is used again
        self._context = context
        self._options = options

    @classmethod
    async def open(
        cls, key: str, browser: BrowserProcess, options: BrowserOptions, storage: Mapping[str, Mapping[str, str]]
    ) -> BrowserSession:
        port = await GatewayPort.open()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                context = await browser.new_context(port.url, storage)
        except BaseException:
            await port.close()
            raise
        return cls(key, browser, context, port, options)

    async def open_tab(self, origin: str) -> Tab:
        """A tab for pages of an origin: the one before, if it was for the same and not used too often."""
        if self.tab is not None and not self.tab.can_be_used_for(origin):
            await self.tab.close()
            self.tab = None
        if self.tab is None:
            async with asyncio.timeout(OPEN_TIMEOUT):
                self.tab = await Tab.open(self._context, self._options, origin)
        self.tab.uses += 1
        return self.tab

    async def storage(self) -> dict[str, dict[str, str]]:
        """What scripts keep in this context, by origin."""
        state = await self._context.storage_state()
        return {one["origin"]: {it["name"]: it["value"] for it in one["localStorage"]} for one in state["origins"]}

    async def rest(self) -> None:
        """The page is over: nothing of it goes on."""
        self.port.end()
        if self.is_spoilt or (self.tab is not None and not await self.tab.leave()):
            self.is_spoilt = True

    async def close(self) -> None:
        from playwright.async_api import Error

        if self.tab is not None:
            await self.tab.close()
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._context.close()
        await self.port.close()
