"""BrowserPool: which browser and which context a page gets, and when a browser makes room for its successor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from shoal.errors import FetchFailed
from shoal.fetch.base import VisitNotWanted, always_wanted
from shoal.fetch.browser.failures import BROWSER
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.process import BrowserProcess
from shoal.fetch.browser.session import BrowserSession

log = logging.getLogger("shoal.fetch")

IDLE_TIMEOUT = 60.0  # seconds after the last page until the browser is ended
Start = Callable[[], Awaitable[BrowserProcess]]


class BrowserPool:
    def __init__(self, options: BrowserOptions, start: Start) -> None:
        self._options = options
        self._start = start
        self._places = asyncio.Semaphore(options.pages)
        self._lock = asyncio.Lock()
        self._current: BrowserProcess | None = None
        self._browsers: set[BrowserProcess] = set()
        self._idle: list[BrowserSession] = []  # the one used last comes last
        self._busy: set[BrowserSession] = set()
        self._replacing: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()

    @property
    def browsers(self) -> frozenset[BrowserProcess]:
        return frozenset(self._browsers)

    async def take(
        self,
        key: str,
        origin: str,
        storage: Mapping[str, Mapping[str, str]],
        is_wanted: Callable[[], bool] = always_wanted,
    ) -> BrowserSession:
        """A context with an open tab for pages of an origin, as soon as there is room for one more."""
        await self._places.acquire()
        try:
            if not is_wanted():
                raise VisitNotWanted
            session = self._pop_idle(key, origin) or await self._open(key, storage)
            self._busy.add(session)
        except BaseException:
            self._places.release()
            raise
        try:
            await session.open_tab(origin)
            session.browser.failed_pages = 0
            return session
        except BaseException as error:
            session.is_spoilt = True
            session.browser.failed_pages += 1
            await self.give_back(session)
            raise_as_failure(error)
            raise

    async def give_back(self, session: BrowserSession) -> None:
        browser = session.browser
        try:
            await session.rest()
        except BaseException:
            session.is_spoilt = True  # who knows what its page still does
            raise
        finally:
            browser.leave()
            self._busy.discard(session)
            if session.is_spoilt or browser.is_retired:
                self._later(session.close())
            else:
                self._idle.append(session)
            self._places.release()
        self._look_after(browser)

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._replacing is not None:
            self._replacing.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in (*self._idle, *self._busy)))
        self._idle.clear()
        await asyncio.gather(*(browser.close() for browser in self._browsers))
        self._browsers.clear()
        self._current = None

    def _pop_idle(self, key: str, origin: str) -> BrowserSession | None:
        """Of this session's contexts, rather one whose tab can be used again."""
        found = None
        for session in self._idle:
            if session.key != key or not session.browser.is_connected or session.browser.is_retired:
                continue
            found = session
            if session.tab is not None and session.tab.can_be_used_for(origin):
                break
        if found is not None:
            self._idle.remove(found)
            found.browser.enter()
        return found

    async def _open(self, key: str, storage: Mapping[str, Mapping[str, str]]) -> BrowserSession:
        while self._idle and len(self._idle) + len(self._busy) >= self._options.pages:
            await self._idle.pop(0).close()
        browser = await self._browser()
        browser.enter()  # now: one that is not in use may be ended at any moment
        try:
            return await BrowserSession.open(key, browser, self._options, storage)
        except BaseException as error:
            browser.leave()
            browser.failed_pages += 1
            self._look_after(browser)
            raise_as_failure(error)
            raise

    async def _browser(self) -> BrowserProcess:
        async with self._lock:
            if self._current is None or not self._current.is_connected:
                self._current = await self._start()
                self._browsers.add(self._current)
            return self._current

    def _look_after(self, browser: BrowserProcess) -> None:
        """Replace a browser whose time has come; end one that nobody uses any more."""
        reason = "" if browser.is_retired else browser.retire_reason()
        if reason and browser is self._current and self._replacing is None:
            self._replacing = asyncio.create_task(self._replace(browser, reason), name="replace-browser")
        if browser.is_retired and not browser.busy:
            self._later(self._end(browser))
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._end_idle)

    async def _replace(self, browser: BrowserProcess, reason: str) -> None:
        """Its successor starts first, so that nobody waits for it."""
        try:
            successor = await self._start()
        except FetchFailed as error:
            log.warning("browser_not_replaced", extra={"why": str(error)})
            return
        finally:
            self._replacing = None
        self._browsers.add(successor)
        self._current = successor
        browser.is_retired = True
        log.info("browser_retired", extra={"why": reason, "pages": browser.pages})
        await self._end_if_unused(browser)

    async def _end_if_unused(self, browser: BrowserProcess) -> None:
        idle = [session for session in self._idle if session.browser is browser]
        self._idle = [session for session in self._idle if session.browser is not browser]
        await asyncio.gather(*(session.close() for session in idle))
        if not browser.busy:
            await self._end(browser)

    async def _end(self, browser: BrowserProcess) -> None:
        if browser in self._browsers:
            self._browsers.discard(browser)
            await browser.close()

    def _end_idle(self) -> None:
        current = self._current
        if current is not None and not self._busy and self._replacing is None:
            self._current, current.is_retired = None, True
            self._later(self._end_if_unused(current))

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def raise_as_failure(error: BaseException) -> None:
    """Raise what went wrong with a browser as an error of the page that was to be opened."""
    from playwright.async_api import Error

    if isinstance(error, Error | TimeoutError):
        why = str(error).partition("\n")[0][:300] or "it took too long"
        raise FetchFailed(BROWSER, f"no page could be opened: {why}") from error
