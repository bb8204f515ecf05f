"""A real Chromium that looks at pages; none of its requests leave this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pytest
from wait import HANG, wait_until

from shoal import app
from shoal.config.load import load
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request, Response

T = TypeVar("T")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Names lead nowhere, so that a request that slips through ends on this machine, and is found all the same.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--no-proxy-server", "--disable-dev-shm-usage", "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
LOCAL_HOSTS = ("127.0.0.1", "localhost")


def program() -> str:
    """The browser's program; where there is none, tests are skipped on a laptop and fail in CI."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    missing = "no chromium here: install it with your system's packages"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    path = program()
    expect.set_options(timeout=HANG * 1_000)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class BrowserSession:
    """One user's browser at one server; whatever goes wrong on a page is added to `problems`."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()  # what may be said on the console, as parts of it
        context.set_default_timeout(HANG * 1_000)
        context.on("request", self._on_request)
        context.on("page", self._on_page)
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) =>"
            " console.error(`refused by policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )
        self.page: Page = context.new_page()

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.hostname not in LOCAL_HOSTS:
            self.problems.append(f"asked for {request.url}")

    def _on_page(self, page: Page) -> None:
        page.on("console", lambda said: self._on_console(said.type, f"{said.text} {said.location.get('url', '')}"))
        page.on("pageerror", lambda error: self.problems.append(f"script failed: {error}"))
        page.on("dialog", self._on_dialog)

    def _on_console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.problems.append(f"{kind}: {text}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()

    def go(self, path: str, status: int = 200) -> Page:
        """A page; a server that says that it cannot just now, on a machine that is busy, is asked again."""
        answer = wait_until(lambda: self._answer(path, status), every=0.5)
        assert answer.status == status, f"{path}: {answer.status}"
        self.problems = [one for one in self.problems if "status of 503" not in one]
        return self.page

    def _answer(self, path: str, status: int) -> Response | None:
        answer = self.page.goto(self.url + path)
        assert answer is not None, path
        return None if answer.status == 503 != status else answer

    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def assert_no_problems(self) -> None:
        assert not self.problems, self.problems


@contextmanager
def browser_session(browser: Browser, url: str, **more: Any) -> Iterator[BrowserSession]:
    """Open a browser session; at its end no page may have had a problem."""
    context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", "locale": "en-GB"} | more)
    made = BrowserSession(context, url)
    try:
        yield made
        made.assert_no_problems()
    finally:
        context.close()


def with_queue(queue_url: str, job: Callable[[Queue], Awaitable[T]]) -> T:
    """Do something with the queue itself; beside the browser, whose own loop goes on in this thread."""

    async def opened() -> T:
        queue = await app.open_queue(load({"queue": queue_url}, env={}))
        try:
            return await job(queue)
        finally:
            await queue.close()

    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(opened())).result()


def overflowing_elements(page: Page) -> str:
    """What makes the page wider than the window; empty if nothing does."""
    found: str = page.evaluate(
        """() => {
          const room = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= room) return "";
          const wide = [...document.querySelectorAll("body *")].filter((e) => {
            if (e.getBoundingClientRect().right <= room + 1) return false;
            for (let up = e.parentElement; up; up = up.parentElement) {
              if (["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX)) return false;
            }
            return true;
          });
          const names = wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120));
          return `${document.documentElement.scrollWidth} of ${room}: ${names.join(" | ")}`;
        }"""
    )
    return found


def blank_charts(page: Page) -> list[str]:
    """The titles of charts whose canvas has nothing on it, or that cannot be read without seeing them."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("figure.chart")].filter((figure) => {
          const [canvas, box, empty] = ["canvas", ".plot", ".empty"].map((it) => figure.querySelector(it));
          if (!canvas) return empty.hidden || !empty.textContent.trim();
          const { width, height } = canvas;
          const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
          copy.drawImage(canvas, 0, 0);
          const dots = copy.getImageData(0, 0, width, height).data;
          return !dots.some((n) => n) || !box.getAttribute("aria-label");
        }).map((figure) => figure.querySelector("h2, h3").textContent)"""
    )
    return found
