"""A browser fetcher for tests, at a site that is rendered; missing browsers skip on a laptop and fail in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

from rendered.mixed import HALVES, mixed_site
from rendered.site import SITE_ADDRESS, RenderedSite, rendered_site
from rendered.tricks import TRICKS, Trick

from shoal.core.browser_step import read_steps
from shoal.core.page import Request
from shoal.fetch.base import SessionCookies, VisitRequest
from shoal.fetch.browser.fetcher import BrowserFetcher
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.browser.program import missing_reason
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.exits.page_exit import PageExits
from shoal.fetch.gateway.exit import Direct, Resolve, system_addresses
from shoal.fetch.gateway.through_proxy import ThroughProxy
from shoal.fetch.guard import PrivateNetworkPolicy

__all__ = [
    "HALVES",
    "SITE_ADDRESS",
    "TRICKS",
    "RenderedSite",
    "Trick",
    "browser_fetcher",
    "mixed_site",
    "need_browser",
    "page_exits",
    "rendered_site",
    "visit_of",
]


def need_browser() -> None:
    if why := missing_reason():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


async def plain_navigation(url: str) -> Request:
    return Request(url)


def visit_of(
    url: str, *steps: str, session: str = "", cookies: SessionCookies | None = None, navigate: Any = plain_navigation
) -> VisitRequest:
    return VisitRequest(url, navigate, read_steps(steps), session, cookies)


def page_exits(exits: ExitSet, policy: PrivateNetworkPolicy, resolve: Resolve = system_addresses) -> PageExits:
    return PageExits(Direct(policy, resolve=resolve), partial(ThroughProxy, policy=policy), exits)


@asynccontextmanager
async def browser_fetcher(
    site: RenderedSite, *allow: str, exits: Sequence[ExitOptions] = (), **options: Any
) -> AsyncIterator[BrowserFetcher]:
    """A fetcher that may reach the site, and what else is allowed; its names are the site's."""
    need_browser()
    policy = PrivateNetworkPolicy.parse([f"{SITE_ADDRESS}:{site.port}", *allow])
    fetcher = BrowserFetcher(BrowserOptions(**options), page_exits(ExitSet(exits), policy, site.resolve))
    try:
        yield fetcher
    finally:
        await fetcher.close()
