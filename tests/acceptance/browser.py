"""Browser: somebody who looks at pages with a real Chromium, from which nothing leaves this machine."""

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

from shoal import app
from shoal.config import load
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

T = TypeVar("T")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Names lead nowhere, so that a request that slips through ends on this machine, and is found all the same.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--no-proxy-server", "--disable-dev-shm-usage", "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
HERE = ("127.0.0.1", "localhost")


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
    from playwright.sync_api import sync_playwright

    path = program()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """One person's browser, at one server. What goes wrong on its pages is kept in `wrong`."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.wrong: list[str] = []
        self.expected: tuple[str, ...] = ()  # what may be said on the console, as parts of it
        context.set_default_timeout(20_000)
        context.on("request", self._request)
        context.on("page", self._watch)
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) =>"
            " console.error(`refused by policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )
        self.page: Page = context.new_page()

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.hostname not in HERE:
            self.wrong.append(f"asked for {request.url}")

    def _watch(self, page: Page) -> None:
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.wrong.append(f"script failed: {error}"))
        page.on("dialog", self._dialog)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.wrong.append(f"{kind}: {text}")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()

    def go(self, path: str, status: int = 200) -> Page:
        answer = self.page.goto(self.url + path)
        assert answer is not None and answer.status == status, f"{path}: {answer and answer.status}"
        return self.page

    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def fine(self) -> None:
        assert not self.wrong, self.wrong


@contextmanager
def visit(browser: Browser, url: str, **more: Any) -> Iterator[Visit]:
    """Look at a server; at the end nothing may have gone wrong on any page."""
    context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", "locale": "en-GB"} | more)
    made = Visit(context, url)
    try:
        yield made
        made.fine()
    finally:
        context.close()


def with_queue(address: str, job: Callable[[Queue], Awaitable[T]]) -> T:
    """Do something with the queue itself; beside the browser, whose own loop goes on in this thread."""

    async def opened() -> T:
        queue = await app.open_queue(load({"queue": address}, env={}))
        try:
            return await job(queue)
        finally:
            await queue.close()

    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(opened())).result()


def too_wide(page: Page) -> str:
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


def drawn(page: Page) -> list[str]:
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
