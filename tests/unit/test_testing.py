"""shoal.testing: what users' own tests of their scrapers rest on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.page import Response
from shoal.errors import FetchRefused, UsageError
from shoal.testing import SavedPages, handle

HOME = "https://shop.test/"


def shop() -> shoal.Scraper:
    scraper = shoal.Scraper("shop", start=HOME, unique="sku")

    @scraper.page("/item/*")
    async def item(page: shoal.Page) -> AsyncIterator[Any]:
        stock = await page.fetch("/stock")
        yield {"sku": page.css("h1::text").get(), "stock": stock.text.strip()}
        yield page.follow([page.url], to=reviews)

    @scraper.page("/")
    def home(page: shoal.Page) -> Iterator[Any]:
        yield page.follow("a")

    @scraper.handler
    def reviews(page: shoal.Page) -> Any:
        return {"review": page.css("p::text").get()}

    @scraper.error("404")
    def gone(page: shoal.Page) -> Any:
        return {"gone": page.url}

    return scraper


@pytest.fixture
def pages(tmp_path: Path) -> SavedPages:
    made = SavedPages(tmp_path / "pages")
    html = (("content-type", "text/html"), ("set-cookie", "session=secret"))
    for path, status, body in [
        ("", 200, '<a href="/item/1">1</a><a href="/item/2">2</a><a href="/item/3">3</a><a href="/other">o</a>'),
        ("item/1", 200, "<h1>a</h1><p>good</p>"),
        ("item/2", 404, "gone"),
        ("stock", 200, "7"),
    ]:
        made._store(HOME + path, Response(HOME + path, status, html, body.encode()))
    return made


def test_a_handler_is_run_on_a_page_that_was_written_down() -> None:
    page = shoal.Page.from_html('<a href="b">b</a><a href="/c#x">c</a>', HOME + "x/", meta={"n": 1})
    scraper = shoal.Scraper("s")

    @scraper.page("*")
    def both(page: shoal.Page) -> Iterator[Any]:
        yield {"n": page.meta["n"], "url": page.url}
        yield page.follow()

    handled = handle(scraper, page)
    assert handled.records == [{"n": 1, "url": HOME + "x/"}]
    assert handled.links == [HOME + "x/b", HOME + "c"]


def test_a_page_without_a_handler_is_followed_as_a_worker_would() -> None:
    handled = handle(shop(), shoal.Page.from_html('<a href="/item/9">9</a><a href="/about">a</a>', HOME + "list"))
    assert handled.links == [HOME + "item/9"]


def test_what_a_handler_raises_reaches_the_test_and_so_does_a_status_nobody_handles() -> None:
    scraper = shoal.Scraper("s")
    scraper.page("*")(lambda page: page.css("h1::text").get().upper())
    with pytest.raises(AttributeError):
        handle(scraper, shoal.Page.from_html("<p>no title"))
    with pytest.raises(FetchRefused, match="answered 503"):
        handle(scraper, shoal.Page.from_html("", status=503))


def test_a_handler_that_is_only_ever_named_can_be_tried_by_its_name() -> None:
    scraper = shoal.Scraper("s", start=HOME)

    @scraper.handler
    def reviews(page: shoal.Page) -> Iterator[dict[str, str]]:
        yield {"review": page.url}

    page = shoal.Page.from_html("<p>", url=HOME + "x")
    assert handle(scraper, page).records == []  # its URL leads to no handler
    for to in ("reviews", reviews):
        assert handle(scraper, page, to=to).records == [{"review": HOME + "x"}]
    with pytest.raises(UsageError, match="no handler called ratings"):
        handle(scraper, page, to="ratings")
    with pytest.raises(UsageError, match="'reviews' is not a scraper") as refused:
        handle(reviews, page)  # type: ignore[arg-type]
    assert "to=function" in refused.value.hint


async def test_it_works_where_an_event_loop_runs(pages: SavedPages) -> None:
    assert pages.handle(shop(), HOME + "item/1").records == [{"sku": "a", "stock": "7"}]


def test_a_crawl_over_saved_pages_follows_what_is_saved_and_says_what_is_missing(pages: SavedPages) -> None:
    crawled = pages.crawl(shop())
    assert crawled.records == [{"sku": "a", "stock": "7"}, {"gone": HOME + "item/2"}, {"review": "good"}]
    assert crawled.visited == [HOME, HOME + "item/1", HOME + "item/2", HOME + "item/1"]
    assert crawled.missing == [HOME + "item/3", HOME + "other"] and not crawled.failed


def test_a_crawl_goes_on_past_a_handler_that_fails(pages: SavedPages) -> None:
    scraper = shop()
    scraper.error_handlers.clear()
    crawled = pages.crawl(scraper)
    assert list(crawled.failed) == [HOME + "item/2"] and len(crawled.records) == 2


def test_nothing_secret_is_saved(pages: SavedPages) -> None:
    assert not any(b"secret" in file.read_bytes() for file in pages.folder.iterdir())


def test_a_page_that_is_not_saved_says_how_to_save_it(pages: SavedPages) -> None:
    with pytest.raises(UsageError, match="not saved in") as caught:
        pages.page(HOME + "nowhere")
    assert "pytest --save-pages" in caught.value.hint
