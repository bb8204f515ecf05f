"""With what a page is fetched: its own word, a route's, its handler's, its run's, in this order."""

from __future__ import annotations

import msgspec
import pytest

from shoal import app
from shoal.config.load import load
from shoal.core.task import RequestOptions, Task
from shoal.core.url import request_digest
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.runs.task_line import decode_task_line, task_from_line
from shoal.runs.url_policy import UrlPolicy
from shoal.sources.start_task import start_task

URL = "https://shop.example/js/1"


def handled(fetch: str) -> Scraper:
    scraper = Scraper("shop")
    scraper.page("/js/*", fetch=fetch)(lambda page: None)
    return scraper


@pytest.mark.parametrize(
    ("own", "route", "handler", "run", "needs"),
    [
        ("", "", "", "http", ()),
        ("", "", "", "browser", ("browser",)),
        ("", "", "browser", "http", ("browser",)),
        ("", "", "http", "browser", ()),
        ("", "browser", "http", "http", ("browser",)),
        ("", "http", "browser", "browser", ()),
        ("http", "browser", "browser", "browser", ()),
        ("browser", "http", "http", "http", ("browser",)),
    ],
)
def test_who_is_nearest_to_the_page_decides(
    own: str, route: str, handler: str, run: str, needs: tuple[str, ...]
) -> None:
    settings = load({"fetch": run, "routes": [f"*/js/* fetch={route}"] if route else ()}, env={})
    rules = app.route_rules(settings, handled(handler))
    options = RequestOptions(fetch=own) if own else None  # type: ignore[arg-type]
    task = rules.admit(Task(URL, "shop.example", b"x", request_options=options))
    assert task.needs == needs
    assert (task.request_options is not None and task.request_options.fetch == "browser") == bool(needs)


def test_a_sitemap_is_never_fetched_by_a_browser_and_other_needs_stay() -> None:
    rules = app.route_rules(load({"fetch": "browser", "routes": ["* needs=exit:de"]}, env={}))
    assert start_task("sitemap:https://shop.example/", routes=rules).needs == ("exit:de",)
    assert start_task(URL, routes=rules).needs == ("browser", "exit:de")


def test_a_browser_makes_no_other_task_of_a_page_but_steps_do() -> None:
    plain, steps = RequestOptions(fetch="browser"), RequestOptions(fetch="browser", steps=("scroll",))
    assert request_digest(URL, plain) == request_digest(URL)
    assert request_digest(URL, steps) != request_digest(URL)
    assert plain.is_plain
    assert not steps.is_plain


def test_named_handlers_and_links_can_ask_for_a_browser() -> None:
    scraper = Scraper("shop")

    @scraper.handler(fetch="browser", steps=["wait .x"])
    def rendered(page: Page) -> None: ...

    @scraper.handler
    def plain(page: Page) -> None: ...

    assert scraper.fetch_of(URL, "page/rendered") == "browser"
    assert scraper.fetching_of(URL, "page/rendered").steps == ("wait .x",)
    assert scraper.fetch_of(URL, "page/plain") == ""
    [follow] = Page.from_html("<a href=/x>x</a>").follow("a", steps=["scroll"])
    assert follow.request_options == RequestOptions(fetch="browser", steps=("scroll",))


def test_a_task_of_the_api_carries_declarative_steps_only() -> None:
    policy = UrlPolicy(load(env={}))
    asked = decode_task_line(b'{"url": "https://shop.example/js/1", "fetch": "browser", "steps": [{"click": ".more"}]}')
    task = task_from_line(asked, 1, policy)
    assert isinstance(task, Task)
    assert task.needs == ("browser",)
    assert task.request_options == RequestOptions(fetch="browser", steps=("click .more",))
    for steps in (b'["evaluate alert(1)"]', b'[{"click": ".a", "code": "x"}]'):
        refused = task_from_line(decode_task_line(b'{"url": "https://shop.example/", "steps": %s}' % steps), 1, policy)
        assert isinstance(refused, str)
        assert "step 1" in refused
    with pytest.raises(msgspec.ValidationError):
        decode_task_line(b'{"url": "https://shop.example/", "fetch": "telepathy"}')
