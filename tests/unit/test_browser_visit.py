"""Pages in a browser, as the pipeline of a task sees them."""

from __future__ import annotations

from typing import Any

import pytest
from auto_harness import HOST, AutoHarness

from shoal.core.task import LaneChange
from shoal.extract.scraper import Scraper


def holds(changes: tuple[LaneChange, ...]) -> list[tuple[str, float]]:
    return [(change.lane, change.hold_for) for change in changes if change.hold_for]


@pytest.mark.parametrize(("loaded", "held"), [(0, []), (3, [(HOST, 6.0)])])
async def test_what_a_page_loads_from_its_own_host_holds_the_host(loaded: int, held: list[tuple[str, float]]) -> None:
    harness = AutoHarness()
    harness.fetching, harness.subrequests = "browser", loaded
    outcome = await harness.take(harness.page(1), spacing=2.0)
    assert outcome.result == "done"
    assert holds(outcome.lanes) == held


async def test_what_it_loads_by_the_steps_of_its_handler_holds_the_host_too() -> None:
    harness = AutoHarness()
    harness.scraper = Scraper("s", "http://a.test/")
    harness.fetching, harness.subrequests = "browser", 3

    @harness.handler
    async def press(page: Any) -> None:
        await page.perform("click .more", "click .more")

    outcome = await harness.take(harness.page(1), spacing=2.0)
    assert outcome.result == "done"
    assert max(holds(outcome.lanes)) == (HOST, 10.0)
