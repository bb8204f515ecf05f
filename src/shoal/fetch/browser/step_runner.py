"""Step runner: what each step does on an open page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.core.browser_step import IDLE, BrowserStep
from shoal.core.host_pattern import host_matches
from shoal.errors import GiveUp, StepFailed
from shoal.fetch.browser.failures import BROWSER

if TYPE_CHECKING:
    from playwright.async_api import Page

STEP_TIMEOUT = 15.0  # seconds that one step waits for its element
CLICK_TIMEOUT = 3.0  # seconds after which it is looked again whether there is something to click
GROWTH_TIMEOUT = 2.0  # seconds in which a page grows after a scroll or a click, or has come to its end
GROWTH_INTERVAL = 0.05
# What is said of a step that can be taken on no page, however often it is tried.
_IMPOSSIBLE = ("parsing css selector", "is not a valid selector", "Unknown key")
_HEIGHT = "() => { const e = document.scrollingElement || document.body; return e ? e.scrollHeight : 0; }"
_SCROLL = "() => { const e = document.scrollingElement || document.body; if (e) e.scrollTo(0, e.scrollHeight); }"
_ELEMENTS = "() => document.getElementsByTagName('*').length"


async def run_steps(page: Page, steps: Sequence[BrowserStep]) -> None:
    """Raises StepFailed that names the step which could not be taken, or GiveUp if it can be taken nowhere."""
    from playwright.async_api import Error

    for number, step in enumerate(steps, 1):
        try:
            await _RUNNERS[step.action](page, step)
        except Error as error:
            if page.is_closed() or "crash" in str(error).lower():
                raise
            # What is said of it may hold what was filled in.
            why = "it was not possible" if step.only_at else str(error).partition("\n")[0][:200]
            words = f"step {number} ({step}) cannot be taken: {why}"
            if any(said in str(error) for said in _IMPOSSIBLE):
                raise GiveUp("bad_request", words) from error
            raise StepFailed(BROWSER, words) from error


def _css(selector: str) -> str:
    return f"css={selector}"


async def _wait(page: Page, step: BrowserStep) -> None:
    if step.at == IDLE:
        await page.wait_for_load_state("networkidle", timeout=STEP_TIMEOUT * 1_000)
    else:
        await page.wait_for_selector(_css(step.at), state="attached", timeout=STEP_TIMEOUT * 1_000)


async def _scroll(page: Page, step: BrowserStep) -> None:
    for _ in range(step.times):
        before = await page.evaluate(_HEIGHT)
        await page.evaluate(_SCROLL)
        if not await _grows(lambda: page.evaluate(_HEIGHT), before):
            return


async def _click(page: Page, step: BrowserStep) -> None:
    await page.click(_css(step.at), timeout=STEP_TIMEOUT * 1_000)


async def _fill(page: Page, step: BrowserStep) -> None:
    if step.only_at:
        # Whatever the page has become meanwhile: a password is for its own site.
        host = urlsplit(page.url).netloc.rpartition("@")[2].lower()
        if not any(host_matches(pattern, host) for pattern in step.only_at):
            raise GiveUp("bad_request", f"{step}: the page is on {host or 'no host'} now, which it is not for")
    await page.fill(_css(step.at), step.text, timeout=STEP_TIMEOUT * 1_000)


async def _press(page: Page, step: BrowserStep) -> None:
    if step.at:
        await page.press(_css(step.at), step.text, timeout=STEP_TIMEOUT * 1_000)
    else:
        await page.keyboard.press(step.text)


async def _more(page: Page, step: BrowserStep) -> None:
    """Click until there is what was waited for, or nothing to click, or nothing new."""
    for _ in range(step.times):
        if step.until and await page.query_selector(_css(step.until)):
            return
        if not await page.is_visible(_css(step.at)) or not await page.is_enabled(_css(step.at)):
            return
        before = await page.evaluate(_ELEMENTS)
        if not await _click_if_there(page, step.at):
            continue
        if not await _grows(lambda: page.evaluate(_ELEMENTS), before):
            return


async def _click_if_there(page: Page, selector: str) -> bool:
    """False: it has gone while it was brought into view, which loads the rest of some pages."""
    from playwright.async_api import TimeoutError as TimedOut

    end = asyncio.get_running_loop().time() + STEP_TIMEOUT
    while True:
        try:
            await page.click(_css(selector), timeout=CLICK_TIMEOUT * 1_000)
        except TimedOut:
            if not await page.is_visible(_css(selector)):
                return False
            if asyncio.get_running_loop().time() > end:
                raise
        else:
            return True


async def _grows(measure: Callable[[], Awaitable[int]], before: int) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + GROWTH_TIMEOUT
    while loop.time() < end:
        if await measure() > before:
            return True
        await asyncio.sleep(GROWTH_INTERVAL)
    return False


_RUNNERS: dict[str, Callable[[Page, BrowserStep], Awaitable[None]]] = {
    "wait": _wait,
    "scroll": _scroll,
    "click": _click,
    "fill": _fill,
    "press": _press,
    "more": _more,
}
