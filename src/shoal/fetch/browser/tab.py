"""Tab: one open page of a context with its DevTools session; used a few times, for one origin only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.program import is_remote

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page

MAX_USES = 5
MAX_READS = 25  # more than the navigations that a page may make
CLOSE_TIMEOUT = 3.0  # seconds
_LEAVING = ("context", "navigated")  # in what is said of a document that is being left
_READ = """(() => {
  const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : "";
  const text = type + (document.documentElement ? document.documentElement.outerHTML : "");
  return [document.URL, text.length > %d ? null : text];
})()"""

Decide = Callable[[dict[str, Any]], Awaitable[None]]


class Tab:
    def __init__(self, page: Page, devtools: CDPSession, frame: str, origin: str) -> None:
        self.page = page
        self.devtools = devtools
        self.frame = frame  # the main one
        self.origin = origin
        self.uses = 0
        self.on_paused: Decide | None = None  # what decides on documents that are asked for; None: none is loaded
        self._decisions: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, context: BrowserContext, options: BrowserOptions, origin: str) -> Tab:
        page = await context.new_page()
        devtools = await context.new_cdp_session(page)
        tree = await devtools.send("Page.getFrameTree")
        tab = cls(page, devtools, tree["frameTree"]["frame"]["id"], origin)
        devtools.on("Fetch.requestPaused", tab._paused)
        types = ["Document", *(["Media"] if "media" not in options.load else [])]
        if is_remote(options.browser):  # it was not started with our flags
            types += [kind for name, kind in (("images", "Image"), ("fonts", "Font")) if name not in options.load]
        await devtools.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "resourceType": it} for it in types]})
        return tab

    def can_be_used_for(self, origin: str) -> bool:
        return self.origin == origin and self.uses < MAX_USES and not self.page.is_closed()

    async def read(self, max_length: int) -> tuple[str, str | None]:
        """The URL and the text of the document as it is now, read where the page's own scripts cannot interfere.

        The text is None if it is too long."""
        from playwright.async_api import Error

        for _ in range(MAX_READS - 1):
            try:
                return await self._read(max_length)
            except Error as error:
                if not any(sign in str(error) for sign in _LEAVING):
                    raise
                await self.page.wait_for_load_state("load")  # it goes elsewhere just now
        return await self._read(max_length)

    async def _read(self, max_length: int) -> tuple[str, str | None]:
        world = await self.devtools.send("Page.createIsolatedWorld", {"frameId": self.frame, "worldName": "shoal"})
        found = await self.devtools.send(
            "Runtime.evaluate",
            {"expression": _READ % max_length, "contextId": world["executionContextId"], "returnByValue": True},
        )
        url, text = found["result"]["value"]
        return url, text

    async def leave(self) -> bool:
        """End what the page does; False if it cannot be used again."""
        from playwright.async_api import Error

        self.on_paused = None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.page.goto("about:blank", timeout=0)
                await asyncio.gather(*self._decisions, return_exceptions=True)
        except (Error, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        from playwright.async_api import Error

        for decision in self._decisions:
            decision.cancel()
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.page.close()

    def _paused(self, event: dict[str, Any]) -> None:
        decision = asyncio.create_task(self._decide(event))
        self._decisions.add(decision)
        decision.add_done_callback(self._decisions.discard)

    async def _decide(self, event: dict[str, Any]) -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # the page is gone meanwhile
            if event["resourceType"] != "Document" or self.on_paused is None:
                await self.refuse(event)
            else:
                await self.on_paused(event)

    async def stay(self, event: dict[str, Any]) -> None:
        """Do not go there; where a navigation is refused, an error page comes in place of the document."""
        await self.devtools.send("Fetch.fulfillRequest", {"requestId": event["requestId"], "responseCode": 204})

    async def refuse(self, event: dict[str, Any]) -> None:
        await self.devtools.send(
            "Fetch.failRequest", {"requestId": event["requestId"], "errorReason": "BlockedByClient"}
        )
