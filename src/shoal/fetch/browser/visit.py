"""BrowserVisit: one page in a browser, from its first navigation until nobody needs it any more."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shoal.core.browser_step import BrowserStep
from shoal.core.glob import url_glob
from shoal.core.page import Request, Response
from shoal.core.url import canonical
from shoal.errors import FetchFailed, FetchRefused, GiveUp, InvalidUrl
from shoal.fetch.base import VisitRequest
from shoal.fetch.browser.failures import BROWSER, browser_failure
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.page_events import WITHOUT_PAGE, PageEvents
from shoal.fetch.browser.pool import BrowserPool
from shoal.fetch.browser.session import BrowserSession
from shoal.fetch.browser.step_runner import run_steps
from shoal.fetch.browser.tab import Tab
from shoal.fetch.exits.page_exit import PageExit, PageExits

if TYPE_CHECKING:
    from playwright.async_api import Response as PlaywrightResponse

MAX_NAVIGATIONS = 20  # of one page: redirects, and what its scripts and steps lead to
MAX_IMAGE = 20_000_000  # bytes of a screenshot or PDF
_BLOCKED = (403, 429)
_ERROR_PAGE = "chrome-error:"  # what the browser shows in place of a document that it did not get
_MARKUP = ("text/html", "application/xhtml+xml")
# Of what was sent: the body is now as the browser has it.
_DROPPED_HEADERS = frozenset(("content-encoding", "content-length", "transfer-encoding", "content-type", "set-cookie"))


class BrowserVisit:
    def __init__(
        self,
        request: VisitRequest,
        session: BrowserSession,
        pool: BrowserPool,
        exits: PageExits,
        options: BrowserOptions,
    ) -> None:
        assert session.tab is not None
        self._request = request
        self._session = session
        self._tab: Tab = session.tab
        self._pool = pool
        self._exits = exits
        self._exit: PageExit | None = None  # how it leaves, with all that it loads
        self._exit_names = ("", "")  # as its first request says
        self._counted = 0  # bytes
        self._options = options
        self._events = PageEvents(self._tab, counts_subrequests=request.counts_subrequests)
        self._first: Request | None = None  # the navigation that we begin with, until it is sent
        self._has_loaded = False
        self._refused: Exception | None = None  # what a navigation was refused for
        self._timer: asyncio.Timeout | None = None
        self._memory_before = session.browser.out_of_memory
        self._started = 0.0
        self._redirects: list[str] = []
        self._navigations = 0  # after the first
        self._last_url = request.url
        self._is_closed = False
        self.response: Response

    @property
    def subrequests(self) -> int:
        return self._events.subrequests

    @property
    def console_errors(self) -> Sequence[str]:
        return tuple(self._events.console_errors)

    async def open(self) -> None:
        """Navigate, take the steps, and read the page."""
        request, tab, port = self._request, self._tab, self._session.port
        self._first = await request.navigate(request.url)
        self._exit_names = (self._first.exit, self._first.proxy)
        self._exit = exit = self._exits.for_page(self._first)
        self._counted = port.bytes  # of the page before
        if not exit.is_direct and not self._session.browser.pid:
            raise FetchRefused("blocked.proxy", "a browser elsewhere goes its own ways, by no proxy or exit of ours")
        await exit.prepare()
        self._started = time.monotonic()
        request.usage.look = self._count_usage
        port.begin(self._options.page_bytes, exit)
        self._counted = 0
        tab.on_paused = self._decide
        async with self._limited():
            if request.cookies is not None:
                await self._session.cookies.to_browser(request.cookies)
            answer = await self._go()
            self._has_loaded = True
            self._raise_refusal(tab.page.url)
            if answer is None:
                raise FetchFailed("bad_response", "the browser got no response")
            await run_steps(tab.page, request.steps)
            self.response = await self._read(answer)

    async def _go(self) -> PlaywrightResponse | None:
        from playwright.async_api import Error

        try:
            return await self._tab.page.goto(self._request.url, wait_until="load", timeout=0)
        except Error as error:
            document = self._events.answered
            if "ERR_ABORTED" not in str(error) or document is None or self._refused is not None:
                raise
            if document.status in WITHOUT_PAGE:
                return document
            if 300 <= document.status < 400:
                raise FetchRefused("redirects", "it redirects to where a browser does not go") from error
            raise

    async def perform(self, steps: Sequence[BrowserStep]) -> Response:
        async with self._limited():
            await run_steps(self._tab.page, steps)
            self.response = await self._read(self._events.document)
        return self.response

    async def storage(self) -> dict[str, dict[str, str]]:
        async with self._limited():
            return await self._session.storage()

    async def responses(self, pattern: str) -> list[Response]:
        matches = url_glob(pattern).fullmatch
        found: list[Response] = []
        async with self._limited():
            for answer in self._events.answers:
                if matches(answer.url) and (body := await self._events.body_of(answer)) is not None:
                    found.append(Response(answer.url, answer.status, tuple(answer.headers.items()), body))
        return found

    async def screenshot(self, *, full_page: bool = False) -> bytes:
        async with self._limited():
            return _bounded(await self._tab.page.screenshot(full_page=full_page, timeout=0))

    async def pdf(self) -> bytes:
        async with self._limited():
            return _bounded(await self._tab.page.pdf())

    async def close(self) -> None:
        if not self._is_closed:
            self._request.usage.look()
            self._request.usage.look = lambda: None
            self._is_closed = True
            self._events.close()
            self._count_bytes()
            await self._pool.give_back(self._session)

    def _count_usage(self) -> None:
        usage = self._request.usage
        usage.bytes, usage.seconds = self._session.port.bytes, time.monotonic() - self._started
        usage.cpu += self._session.browser.take_cpu()

    async def _read(self, answer: PlaywrightResponse | None) -> Response:
        """The page as it is now."""
        document = self._events.document or answer
        if document is None:
            raise FetchFailed("bad_response", "the browser got no response")
        url, content_type, body = await self._read_document(document)
        while self._events.document not in (document, None):  # another has come while it was read
            document = self._events.document
            await self._tab.page.wait_for_load_state("load")
            url, content_type, body = await self._read_document(document)
        if url.startswith(_ERROR_PAGE):
            self._raise_refusal(self._last_url)
            raise FetchFailed("bad_response", f"it went to {self._last_url[:200]}, which the browser cannot load")
        if body is None or len(body) > self._options.max_body:
            raise FetchRefused("too_large", f"more than {self._options.max_body:,} bytes in the browser")
        if self._request.cookies is not None:
            await self._session.cookies.to_session(self._request.cookies)
        if document.status in _BLOCKED:
            self._session.is_spoilt = self._session.browser.is_blocked = True
        headers = [(name, value) for name, value in document.headers.items() if name not in _DROPPED_HEADERS]
        assert self._exit is not None
        self._count_bytes()
        self._exit.note_response(document.status, 0)
        return Response(
            _canonical(url),
            document.status,
            (*headers, ("content-type", content_type)),
            body,
            time.monotonic() - self._started,
            redirects=tuple(self._redirects),
            transferred=self._counted,
        )

    async def _read_document(self, document: PlaywrightResponse) -> tuple[str, str, bytes | None]:
        """Its URL, content type and body; no body if that is too long."""
        content_type = document.headers.get("content-type", "")
        if document.status in WITHOUT_PAGE:
            return document.url, content_type, b""
        if content_type.partition(";")[0].strip().lower() not in (*_MARKUP, ""):
            return self._tab.page.url, content_type, await document.body()
        url, text = await self._tab.read(self._options.max_body)
        return url, "text/html; charset=utf-8", None if text is None else text.encode("utf-8", "replace")

    def _count_bytes(self) -> None:
        """What its exit has transferred since the last time, also for a page that has failed."""
        if self._exit is not None:
            size = self._session.port.bytes - self._counted
            self._counted += size
            self._exit.note_bytes(size)

    async def _decide(self, event: dict[str, Any]) -> None:
        """A document is asked for: of the page itself only if its navigation may be, of frames in it always."""
        from playwright.async_api import Error

        tab, url = self._tab, event["request"]["url"]
        if event["frameId"] != tab.frame:
            await tab.devtools.send("Fetch.continueRequest", {"requestId": event["requestId"]})
            return
        request, self._first = self._first, None
        is_ours = request is not None  # or else the page itself says how: a form may be posted
        if request is None:
            try:
                request = await self._next_navigation(url)
            except Exception as error:  # noqa: BLE001 - raised again to whoever waits for the page
                if self._has_loaded:
                    await tab.stay(event)
                else:
                    self._refused = error
                    await tab.refuse(event)
                return
        try:
            await tab.devtools.send("Fetch.continueRequest", _continued(event, request, is_ours=is_ours))
        except Error as error:
            self._refused = FetchRefused("bad_request", f"the browser does not send it: {str(error)[:200]}")
            await tab.refuse(event)

    async def _next_navigation(self, url: str) -> Request:
        """A redirect, or what a script or a step leads to; its turn is not the page's time."""
        timer = self._timer
        left = None if timer is None or timer.when() is None else timer.when() - asyncio.get_running_loop().time()  # type: ignore[operator]
        if timer is not None and not timer.expired():
            timer.reschedule(None)
        try:
            self._navigations += 1
            if self._navigations > MAX_NAVIGATIONS:
                raise FetchRefused("redirects", f"it went elsewhere more than {MAX_NAVIGATIONS} times")
            if not self._has_loaded:
                self._redirects.append(self._last_url)
            self._last_url = _canonical(url, "redirects")
            found = await self._request.navigate(self._last_url)
            if (found.exit, found.proxy) != self._exit_names:
                raise FetchRefused("blocked.proxy", "it leads to where a page goes by another exit or proxy")
            return found
        finally:
            if timer is not None and left is not None and timer is self._timer and not timer.expired():
                timer.reschedule(asyncio.get_running_loop().time() + left)

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Within the time of a page; what goes wrong is raised as what it is to its task."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(self._options.timeout) as self._timer:
                yield
        except TimeoutError as error:
            self._session.is_spoilt = True
            self._raise_refusal("")
            if self._exit is not None:
                self._exit.note_failure("timeout.total: the page took too long")
            raise FetchFailed("timeout.total", f"the page took more than {self._options.timeout:g} s") from error
        except Error as error:
            self._session.is_spoilt = True
            self._raise_refusal(self._last_url)
            raise browser_failure(str(error)) from error
        finally:
            self._timer = None

    def _raise_refusal(self, url: str) -> None:
        """What we ourselves have done to the page, if that is why it failed."""
        if self._refused is not None:
            raise self._refused
        port, browser = self._session.port, self._session.browser
        if browser.out_of_memory > self._memory_before and self._events.has_crashed:
            raise GiveUp("too_complex", f"the browser took more than {self._options.memory:,} bytes for it")
        if port.is_exceeded:
            raise FetchRefused("too_large", f"more than {self._options.page_bytes:,} bytes with all that it loads")
        parts = urlsplit(url)
        usual = 443 if parts.scheme == "https" else 80
        refusal = port.refusals.get(((parts.hostname or ""), parts.port or usual)) if parts.hostname else None
        if refusal is not None:
            raise refusal
        if self._events.has_crashed:
            raise FetchFailed(BROWSER, "the page crashed")


def _continued(event: dict[str, Any], request: Request, *, is_ours: bool) -> dict[str, Any]:
    """How a navigation goes on: with the headers that only this origin may see. Cookies are the context's."""
    found: dict[str, Any] = {"requestId": event["requestId"]}
    own = [pair for pair in request.headers if pair[0].lower() != "cookie"]
    if own:
        names = {name.lower() for name, _ in own}
        sent = [pair for pair in event["request"]["headers"].items() if pair[0].lower() not in names]
        found["headers"] = [{"name": name, "value": value} for name, value in (*sent, *own)]
    if is_ours and request.method != event["request"]["method"]:
        found["method"] = request.method
    if is_ours and request.body is not None:
        found["postData"] = base64.b64encode(request.body).decode()
    return found


def _canonical(url: str, cause: str = "blocked.scheme") -> str:
    try:
        return canonical(url)
    except InvalidUrl as error:
        raise FetchRefused(cause, f"not a URL that is fetched: {url[:200]}") from error


def _bounded(image: bytes) -> bytes:
    if len(image) > MAX_IMAGE:
        raise FetchRefused("too_large", f"an image of more than {MAX_IMAGE:,} bytes")
    return image
