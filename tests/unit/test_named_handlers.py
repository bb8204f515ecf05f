"""Handlers by name, pages asked for again, and handlers for error statuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.task import RequestOptions, Task
from shoal.core.task_kind import is_fetched
from shoal.core.url import request_digest
from shoal.errors import GiveUp, Retry, UsageError
from shoal.extract.links import MAX_AGAIN, LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper


@pytest.fixture
def harness() -> PipelineHarness:
    made = PipelineHarness()
    made.answers[HOME] = html('<a href="/b">b</a>')
    return made


def reviews(page: Page) -> Iterator[Any]:
    yield {"reviews_of": page.url}


def links() -> LinkFilter:
    return LinkFilter(lambda lane: True, None, lambda lane, url: None)


def admitted(gate: LinkFilter, *urls: str, parent: int = 7, **options: Any) -> list[Task]:
    follows = Page.from_html("", HOME).follow(list(urls), **options)
    found = gate.admit(follows, depth=0, parent=parent, origin_url=HOME)
    gate.mark_committed(found.tasks)
    return list(found.tasks)


# by name


async def test_a_link_goes_to_the_handler_it_was_given_whatever_its_url(harness: PipelineHarness) -> None:
    harness.scraper.handler(reviews)
    harness.handler(lambda page: page.follow([page.url], to=reviews))
    outcome = await harness.run()
    (task,) = outcome.found
    assert (task.url, task.kind) == (HOME, "page/reviews") and is_fetched(task.kind)
    outcome = await harness.run(kind=task.kind)
    assert outcome.records == (b'{"reviews_of":"http://a.test/"}',)


async def test_a_name_does_as_well_as_the_function(harness: PipelineHarness) -> None:
    harness.scraper.page("/r/*")(reviews)
    harness.handler(lambda page: page.follow(["/b"], to="reviews"))
    assert [task.kind for task in (await harness.run()).found] == ["page/reviews"]


def test_the_page_for_a_handler_is_another_task_than_the_plain_page_and_each_is_added_once() -> None:
    gate = links()
    plain, named, other = (
        admitted(gate, "/b", **options) for options in ({}, {"to": "reviews"}, {"to": "offers", "priority": 3})
    )
    assert len({task.digest for task in (*plain, *named, *other)}) == 3
    assert plain[0].digest == request_digest(plain[0].url)
    assert not admitted(gate, "/b") and not admitted(gate, "/b", to="reviews") and not admitted(gate, "/b", to="offers")


async def test_a_name_that_no_handler_has_is_the_failure_of_the_page_that_gave_it(harness: PipelineHarness) -> None:
    harness.handler(lambda page: page.follow(["/b"], to="reveiws"))
    outcome = await harness.run(failures={"handler.UsageError": 9})
    assert (outcome.result, outcome.cause) == ("dead", "handler.UsageError")
    assert outcome.attempt is not None and "no handler called reveiws" in outcome.attempt.message


async def test_a_worker_whose_code_lacks_the_handler_says_so(harness: PipelineHarness) -> None:
    outcome = await harness.run(kind="page/gone")
    assert (outcome.result, outcome.cause) == ("dead", "no_handler")
    assert outcome.attempt is not None and "no handler called gone" in outcome.attempt.message


async def test_a_redirect_to_a_known_page_keeps_the_records_of_a_named_handler(harness: PipelineHarness) -> None:
    harness.scraper.handler(reviews)
    harness.answers[HOME] = html("", 302, location="/b")
    harness.answers[f"{HOME}b"] = html()
    assert (await harness.run()).redirect_digest is not None
    assert (await harness.run(kind="page/reviews")).redirect_digest is None


def test_two_handlers_of_one_name_cannot_be_told_apart() -> None:
    scraper = Scraper("s")
    for pattern in ("/a", "/b"):

        @scraper.page(pattern)
        def item(page: Page) -> None: ...

    with pytest.raises(UsageError, match="several handlers called item"):
        scraper.named_handler("item")


@pytest.mark.parametrize("to", [lambda page: None, "not a name", 5, "x" * 101])
def test_what_has_no_name_is_refused(to: Any) -> None:
    with pytest.raises(UsageError, match="cannot name a handler"):
        Page.from_html("").follow(["/b"], to=to)


# again


def test_a_page_can_ask_for_itself_again() -> None:
    assert admitted(links(), HOME) == [], "a page does not follow itself"
    follows = Page.from_html("", HOME).follow([HOME], again=True)
    (task,) = links().admit(follows, depth=3, parent=7, origin_url=HOME, again=4).tasks
    assert (task.url, task.depth, task.request_options) == (HOME, 4, RequestOptions(again=5))


def test_each_page_that_asks_again_is_heard_once_also_if_it_is_tried_twice() -> None:
    gate = links()
    plain = admitted(gate, "/b")
    first, second = admitted(gate, "/b", again=True), admitted(gate, "/b", again=True, parent=8)
    assert len({task.digest for task in (*plain, *first, *second)}) == 3
    assert admitted(gate, "/b", again=True) == []
    assert admitted(links(), "/b", again=True)[0].digest == first[0].digest, (
        "another worker must not make another task of it"
    )


def test_asking_again_leaves_the_plain_page_to_be_visited() -> None:
    gate = links()
    admitted(gate, "/b", again=True)
    assert len(admitted(gate, "/b")) == 1


def test_asking_again_for_ever_ends() -> None:
    follows = Page.from_html("", HOME).follow([HOME], again=True)
    for chain in (MAX_AGAIN - 1, MAX_AGAIN):
        found = links().admit(follows, depth=0, parent=7, origin_url=HOME, again=chain)
        assert (len(found.tasks), found.skipped) == ((1, ()) if chain < MAX_AGAIN else (0, (("trap", HOME),)))


async def test_the_worker_counts_how_often_in_a_row_it_was_asked_again(harness: PipelineHarness) -> None:
    harness.handler(lambda page: page.follow([page.url], again=True))
    (task,) = (await harness.run(request_options=RequestOptions(again=41))).found
    assert task.request_options is not None and task.request_options.again == 42


# error statuses


@pytest.fixture
def failing(harness: PipelineHarness) -> PipelineHarness:
    @harness.scraper.error("404", 410)
    def gone(page: Page) -> Iterator[Any]:
        yield {"gone": page.url, "status": page.status}
        yield page.follow(["/archive"])

    @harness.scraper.error("5xx")
    def broken(page: Page) -> Any:
        return {"broken": page.status}

    return harness


@pytest.mark.parametrize("status", [404, 410])
async def test_a_page_that_is_gone_goes_to_the_handler_for_its_status(failing: PipelineHarness, status: int) -> None:
    failing.answers[HOME] = html("gone", status)
    outcome = await failing.run()
    assert (outcome.result, outcome.cause) == ("done", "")
    assert outcome.records == (b'{"gone":"http://a.test/","status":%d}' % status,)
    assert [task.url for task in outcome.found] == ["http://a.test/archive"]
    assert outcome.attempt is not None and outcome.attempt.status == status


async def test_a_status_that_may_pass_is_retried_first(failing: PipelineHarness) -> None:
    failing.answers[HOME] = html("oops", 503)
    outcome = await failing.run()
    assert (outcome.result, outcome.cause) == ("retry", "http.503")
    outcome = await failing.run(failures={"http.503": 99})
    assert (outcome.result, outcome.records) == ("done", (b'{"broken":503}',))


async def test_other_statuses_fail_as_ever(failing: PipelineHarness) -> None:
    failing.answers[HOME] = html("no", 403)
    outcome = await failing.run(failures={"http.403": 99})
    assert (outcome.result, outcome.cause) == ("dead", "http.403")


@pytest.mark.parametrize(
    ("error", "result", "cause"),
    [
        (GiveUp("sold_out", "gone"), "dead", "sold_out"),
        (Retry("later", "not yet"), "retry", "later"),
        (KeyError("x"), "retry", "handler.KeyError"),
    ],
)
async def test_what_an_error_handler_raises_is_the_failure(
    harness: PipelineHarness, error: Exception, result: str, cause: str
) -> None:
    @harness.scraper.error("4xx")
    def gone(page: Page) -> None:
        raise error

    harness.answers[HOME] = html("gone", 404)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == (result, cause)


async def test_many_pages_may_be_redirected_to_the_same_not_found(failing: PipelineHarness) -> None:
    failing.answers[HOME] = html("", 302, location="/404")
    failing.answers[f"{HOME}404"] = html("gone", 404)
    outcome = await failing.run()
    assert outcome.records and outcome.redirect_digest is None


@pytest.mark.parametrize("status", ["200", "2xx", "xx", "600", "40", "", 200, None])
def test_what_is_no_error_status_is_refused(status: Any) -> None:
    with pytest.raises(UsageError, match="not an error status"):
        Scraper("s").error(status)


def test_an_error_handler_needs_a_status() -> None:
    with pytest.raises(UsageError, match="needs a status"):
        Scraper("s").error()
