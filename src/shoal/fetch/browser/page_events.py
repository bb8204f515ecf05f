"""PageEvents: what is seen of a page while it is open: its document, its scripts' answers, its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

from shoal.fetch.browser.tab import Tab

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Frame, Request, Response

WITHOUT_PAGE = (204, 205, 304)  # the browser stays where it was
MAX_ANSWERS = 200
MAX_ERRORS = 50
MAX_MESSAGE = 1_000
_OUR_OWN = "net::ERR_BLOCKED_BY_CLIENT"  # what we do not load is not the page's mistake
MAX_ANSWER_BODY = 10_000_000  # bytes


class PageEvents:
    def __init__(self, tab: Tab, *, counts_subrequests: bool) -> None:
        self._page = tab.page
        self.answered: Response | None = None  # the last answer to the page itself: its document may yet have to come
        self.document: Response | None = None  # the last one that the page shows
        self.answers: list[Response] = []  # to fetch and XMLHttpRequest
        self.console_errors: list[str] = []
        self.subrequests = 0
        self.has_crashed = False
        self._listeners: dict[str, Any] = {
            "response": self._on_response,
            "framenavigated": self._on_navigated,
            "console": self._on_console,
            "pageerror": self._on_error,
            "crash": self._on_crash,
            **({"request": self._on_request} if counts_subrequests else {}),
        }
        for name, listener in self._listeners.items():
            self._page.on(name, listener)  # type: ignore[call-overload]

    def close(self) -> None:
        for name, listener in self._listeners.items():
            self._page.remove_listener(name, listener)

    async def body_of(self, answer: Response) -> bytes | None:
        """The body of an answer; None if the browser has it no more, or if it is too long."""
        from playwright.async_api import Error

        try:
            body = await answer.body()
        except Error:
            return None
        return body if len(body) <= MAX_ANSWER_BODY else None

    def _on_response(self, answer: Response) -> None:
        request = answer.request
        kind = request.resource_type
        if kind in ("xhr", "fetch"):
            if len(self.answers) < MAX_ANSWERS:
                self.answers.append(answer)
        elif kind == "document" and request.is_navigation_request() and request.frame == self._page.main_frame:
            self.answered = answer

    def _on_navigated(self, frame: Frame) -> None:
        answer = self.answered
        if frame != self._page.main_frame or answer is None or answer.status in WITHOUT_PAGE:
            return
        if urldefrag(answer.url).url == urldefrag(frame.url).url:
            self.document = answer

    def _on_request(self, request: Request) -> None:
        if not request.is_navigation_request():
            self.subrequests += urlsplit(request.url).netloc == urlsplit(self._page.url).netloc

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and _OUR_OWN not in message.text:
            self._add_error(message.text)

    def _on_error(self, error: Any) -> None:
        self._add_error(str(error))

    def _add_error(self, text: str) -> None:
        if len(self.console_errors) < MAX_ERRORS:
            self.console_errors.append(text[:MAX_MESSAGE])

    def _on_crash(self, _: Any) -> None:
        self.has_crashed = True
