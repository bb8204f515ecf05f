"""What hostile pages try in a browser: nothing of it reaches what is private, and every page ends within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from rendering import TRICKS, RenderedSite, Trick, browser_fetcher, need_browser, rendered_site, visit_of

from shoal.errors import GiveUp, Retry
from shoal.fetch.browser.fetcher import BrowserFetcher

PATIENT, SHORT = 90.0, 6.0  # seconds for a page that ends by itself, and for one that does not
MEMORY = 1_000_000_000

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Results:
    outcomes: dict[str, str]
    reached: dict[str, int]
    most_memory: int


async def outcome_of(fetcher: BrowserFetcher, site: RenderedSite, trick: Trick) -> str:
    try:
        live = await fetcher.visit(visit_of(site.url(trick), *(["wait #settled"] if trick.waits else [])))
    except (Retry, GiveUp) as error:
        return error.cause
    await live.close()
    return "ok"


async def try_all(*allow: str, slow: bool = True) -> Results:
    async with rendered_site() as site:
        permitted = [one.replace("CANARY", f"127.0.0.1:{site.canary_port}") for one in allow]
        outcomes: dict[str, str] = {}
        async with browser_fetcher(site, *permitted, timeout=PATIENT, page_bytes=5_000_000, memory=MEMORY) as fetcher:
            quick = [trick for trick in TRICKS if not trick.is_slow]
            found = await asyncio.gather(*(outcome_of(fetcher, site, trick) for trick in quick))
            outcomes |= {trick.name: cause for trick, cause in zip(quick, found, strict=True)}
            most = max(browser.most_memory for browser in fetcher.pool.browsers)
        if slow:
            async with browser_fetcher(site, timeout=SHORT, memory=MEMORY, pages=2) as fetcher:
                burners = [trick for trick in TRICKS if trick.is_slow]
                found = await asyncio.gather(*(outcome_of(fetcher, site, trick) for trick in burners))
                outcomes |= {trick.name: cause for trick, cause in zip(burners, found, strict=True)}
                most = max(most, *(browser.most_memory for browser in fetcher.pool.browsers))
        return Results(outcomes, dict(site.reached), most)


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    need_browser()
    yield asyncio.run(try_all())


def test_there_are_enough_tricks() -> None:
    assert len(TRICKS) >= 40
    assert len({trick.name for trick in TRICKS}) == len(TRICKS)


def test_nothing_private_is_reached(results: Results) -> None:
    assert results.reached == {}


def test_every_trick_ends_as_it_should(results: Results) -> None:
    wrong = {
        trick.name: results.outcomes[trick.name] for trick in TRICKS if results.outcomes[trick.name] not in trick.expect
    }
    assert not wrong


def test_no_browser_takes_more_memory_than_it_may(results: Results) -> None:
    assert results.most_memory <= MEMORY


@pytest.mark.faults
def test_without_the_guard_the_tricks_would_be_seen() -> None:
    need_browser()
    found = asyncio.run(try_all("CANARY", slow=False))
    assert found.reached["connection"] >= 20, found.reached
