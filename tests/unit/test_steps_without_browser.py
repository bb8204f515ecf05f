"""Steps of a run whose pages no browser fetches: refused, unless somebody may ask for a browser."""

from __future__ import annotations

from typing import Any

import pytest

from shoal import Scraper
from shoal.config.load import Settings, with_defaults
from shoal.errors import UsageError
from shoal.extract.template import TemplateScraper, from_fields
from shoal.launch.request_options import check_steps

STEPS = {"steps": ["wait .item"]}
LISTED = TemplateScraper(from_fields("pages", {"item": ".item"}))


def code(fetch: str = "") -> Scraper:
    scraper = Scraper("shop", "https://shop.example/")
    scraper.page("*", fetch=fetch)(lambda page: None)
    return scraper


def settings(**given: Any) -> Settings:
    return with_defaults(Settings(), given, "a test")


@pytest.mark.parametrize(
    ("scraper", "more"),
    [
        (LISTED, {}),
        (LISTED, {"fetch": "http"}),
        (LISTED, {"routes": ["*/app/* fetch=http on_block=later"]}),
        (code(), {}),
        (code("http"), {}),
    ],
)
def test_steps_that_nobody_would_take_are_refused(scraper: Scraper, more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="taken by a browser") as caught:
        check_steps(settings(**STEPS, **more), scraper)
    assert "--fetch browser" in caught.value.hint
    check_steps(settings(**more), scraper)


@pytest.mark.parametrize(
    ("scraper", "more"),
    [
        (LISTED, {"fetch": "browser"}),
        (LISTED, {"fetch": "auto"}),
        (LISTED, {"routes": ["*/app/* fetch=auto"]}),
        (LISTED, {"routes": ["*/app/* on_block=browser"]}),
        (LISTED, {"on_block": "browser"}),
        (code("browser"), {}),
        (code("auto"), {}),
        (code(), {"fetch": "http"}),  # its handlers ask for a browser: it is said that pages are fetched without one
        (None, {}),  # its code is elsewhere
    ],
)
def test_steps_are_taken_where_a_browser_may_be_asked_for(scraper: Scraper | None, more: dict[str, Any]) -> None:
    check_steps(settings(**STEPS, **more), scraper)
