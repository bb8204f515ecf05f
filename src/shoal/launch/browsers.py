"""Browsers from settings: those of a worker process, shared by runs that ask alike; started when first needed."""

from __future__ import annotations

from functools import partial
from typing import Any

from shoal.config.load import SETTINGS, Settings
from shoal.core.capability import BROWSER
from shoal.core.session import SessionState
from shoal.errors import UsageError
from shoal.extract.scraper import Scraper
from shoal.fetch.base import Browser
from shoal.fetch.browser.fetcher import BrowserFetcher
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.program import INSTALL_HINT, missing_reason
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.page_exit import PageExits
from shoal.fetch.gateway.exit import Direct
from shoal.fetch.gateway.through_proxy import ThroughProxy
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.queue.base import Queue
from shoal.queue.sessions import list_sessions

_BROWSER_SETTINGS = tuple(name for name, setting in SETTINGS.items() if setting.connection)


def browser_fetcher(settings: Settings, exits: ExitSet) -> BrowserFetcher:
    options = BrowserOptions(
        browser=settings.browser,
        user_agent=settings.user_agent,
        ca_file=settings.ca_file,
        pages=settings.browser_pages,
        load=settings.browser_load,  # type: ignore[arg-type]  # its parser lets nothing else through
        memory=settings.browser_memory,
        page_bytes=settings.browser_bytes,
        max_body=settings.max_body,
        timeout=settings.browser_timeout,
    )
    return BrowserFetcher(options, page_exits(settings, exits))


def page_exits(settings: Settings, exits: ExitSet) -> PageExits:
    """How pages in browsers leave this machine."""
    policy, timeout = PrivateNetworkPolicy.parse(settings.allow_private), settings.connect_timeout
    through = partial(ThroughProxy, policy=policy, connect_timeout=timeout, ca_file=settings.ca_file)
    return PageExits(Direct(policy, connect_timeout=timeout), through, exits)


def own_capabilities(settings: Settings, *, renders: bool = True) -> tuple[str, ...]:
    """Of the workers of one command: a browser is theirs if this machine has one, whether that was said or not.

    renders: False where pages are read that were saved: a browser is not needed for any.
    """
    if BROWSER in settings.has or (renders and missing_reason(settings.browser)):
        return settings.has
    return (*settings.has, BROWSER)


def check_browser(settings: Settings, scraper: Scraper) -> None:
    """Raise UsageError where pages are to be fetched by a browser that this machine does not have."""
    is_wanted = BROWSER in (settings.fetch, settings.on_block) or scraper.uses_browser
    if is_wanted and (why := missing_reason(settings.browser)):
        raise UsageError(f"pages are to be fetched by a browser: {why}", hint=INSTALL_HINT)


async def check_login(queue: Queue, settings: Settings) -> None:
    """Raise UsageError where a browser has to log in first, this machine has none, and no other reaches the queue."""
    session = settings.sessions.get(settings.session)
    if session is None or session.login.kind != BROWSER or settings.state_file is None:
        return
    known = (await list_sessions(queue)).get(session.name, SessionState())
    if known.state == "out" and (why := missing_reason(settings.browser)):
        raise UsageError(
            f"session {session.name} logs in by a browser: {why}",
            hint=f"{INSTALL_HINT}; or log in elsewhere, and: shoal session import {session.name} FILE",
        )


class BrowserSet:
    def __init__(self, exits: ExitSet) -> None:
        """exits: those of this process, which plain requests use, too."""
        self._exits = exits
        self._browsers: dict[tuple[Any, ...], BrowserFetcher] = {}
        self._keys_by_run: dict[int, tuple[Any, ...]] = {}

    def for_run(self, run: int, settings: Settings) -> Browser:
        key = tuple(getattr(settings, name) for name in _BROWSER_SETTINGS)
        self._keys_by_run[run] = key
        if key not in self._browsers:
            self._browsers[key] = browser_fetcher(settings, self._exits)
        return self._browsers[key]

    def release(self, run: int) -> Browser | None:
        """The run has ended; its browser if nobody else uses it."""
        key = self._keys_by_run.pop(run, None)
        if key is None or key in self._keys_by_run.values():
            return None
        return self._browsers.pop(key, None)

    async def close(self) -> None:
        for browser in self._browsers.values():
            await browser.close()
