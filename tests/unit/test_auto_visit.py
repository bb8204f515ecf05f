"""Pages with fetch="auto": by HTTP where that is enough, by a browser where it is not, and one result is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from auto_harness import FULL, HOST, SHELL, AutoHarness, items, records, worker_status
from pipeline_harness import html

from shoal.core.fetch_choice import Compared, PageSize, ShapeState, label
from shoal.core.fetch_knowledge import MAX_KNOWN, learned, read_knowledge, written
from shoal.core.run_counters import AutoUsage, auto_usage
from shoal.core.task import RequestOptions
from shoal.errors import FetchFailed, QueueUnavailable
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper

ITEMS = ["1", "2", "3"]


def ways(harness: AutoHarness) -> list[str]:
    """What was asked for, without the slots."""
    return ["browser" if call.startswith("browser") else "http" for call in harness.calls if "slot" not in call]


async def test_static_pages_are_compared_twice_and_then_fetched_by_http() -> None:
    harness, seen = AutoHarness(), []
    for number in range(4):
        outcome = await harness.take(harness.page(number))
        assert records(outcome) == ITEMS
        seen.append(ways(harness))
    assert seen == [["http", "browser"], ["http", "browser"], ["http", "browser"], ["http"]]
    assert label(harness.state) == "http"


async def test_rendered_pages_are_recorded_as_the_browser_shows_them_once() -> None:
    harness, seen = AutoHarness(), []
    for number in range(4):
        outcome = await harness.take(harness.page(number, SHELL))
        assert records(outcome) == ITEMS
        assert [task.url for task in outcome.found] == [f"http://{HOST}/item/9"]
        seen.append(ways(harness))
    assert seen == [["http", "browser"], ["http", "browser"], ["http", "browser"], ["browser"]]
    assert label(harness.state) == "browser"


async def test_a_page_of_which_http_gives_more_is_recorded_as_http_gives_it() -> None:
    harness = AutoHarness()
    [first, *_] = await harness.take_several(0, 3, FULL, "<ul><li>1</ul>")
    assert records(first) == ITEMS
    assert label(harness.state) == "http"
    assert first.attempt is not None
    assert first.attempt.message == "both ways: HTTP has all"


async def test_the_second_request_takes_a_slot_of_its_own() -> None:
    harness = AutoHarness()
    url = harness.page(1)
    await harness.take(url)
    assert harness.calls == [f"slot {HOST}", url, f"slot {HOST}", f"browser {url}"]


async def test_links_alone_make_a_difference() -> None:
    harness = AutoHarness()
    [*_, outcome] = await harness.take_several(0, 3, "<ul><li>1<li>2<li>3</ul>")
    assert label(harness.state) == "browser"
    assert outcome.attempt is not None
    assert "lacks 1 of 1 links" in outcome.attempt.message


async def test_a_page_that_suddenly_gives_nothing_is_read_in_the_browser_at_once() -> None:
    harness = AutoHarness()
    await harness.take_several(0, 4)
    outcome = await harness.take(harness.page(50, SHELL))
    assert ways(harness) == ["http", "browser"]
    assert records(outcome) == ITEMS
    assert label(harness.state) == "browser"


@pytest.mark.parametrize(
    "failure", [FetchFailed("connect", "refused"), html("<ul></ul>", 503), html("<ul></ul>", 404), html(SHELL, 403)]
)
async def test_nothing_is_learned_where_http_failed(failure: Any) -> None:
    harness = AutoHarness()
    outcome = await harness.take(harness.page(1, failure))
    assert outcome.result in ("retry", "dead")
    assert ways(harness) == ["http"]
    assert harness.knowledge == {}


@pytest.mark.parametrize("failure", [FetchFailed("browser", "crashed"), html(SHELL, 503)])
async def test_nothing_is_learned_where_the_browser_failed(failure: Any) -> None:
    harness = AutoHarness()
    outcome = await harness.take(harness.page(1, FULL, failure))
    assert outcome.result == "done"  # HTTP gave records
    assert records(outcome) == ITEMS
    assert (await harness.take(harness.page(2, SHELL, failure))).result == "retry"
    assert harness.knowledge == {}


async def test_pages_that_need_a_browser_do_not_depend_on_http() -> None:
    harness = AutoHarness()
    await harness.take_several(0, 3, SHELL)
    for number in range(3, 20):
        outcome = await harness.take(harness.page(number, FetchFailed("connect", "refused")))
        assert records(outcome) == ITEMS
    assert harness.state.compared == 3
    assert label(harness.state) == "browser"


async def test_a_handler_that_fails_on_the_unrendered_page_teaches_nothing_and_gets_it_rendered() -> None:
    harness = AutoHarness()
    harness.scraper = Scraper("s", harness.scraper.start)

    @harness.handler
    def strict(page: Page) -> Any:
        assert page.css("li").get() is not None
        return list(items(page))

    for outcome in await harness.take_several(0, 6, SHELL):
        assert records(outcome) == ITEMS
    assert harness.knowledge == {}


async def test_a_handler_that_fails_on_a_page_that_http_was_enough_for_gets_it_from_the_browser() -> None:
    harness = AutoHarness()
    harness.scraper = Scraper("s", harness.scraper.start)

    @harness.handler
    def strict(page: Page) -> Any:
        if page.css("script"):
            raise AssertionError
        return list(items(page))

    await harness.take_several(0, 4)
    assert records(await harness.take(harness.page(50, SHELL))) == ITEMS
    assert label(harness.state) == "http"


@pytest.mark.parametrize("fetch", ["auto", "http"])
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_handler_can_ask_for_the_browser_and_what_it_yielded_is_dropped(fetch: str, swallows: bool) -> None:
    harness = AutoHarness()
    harness.fetching = fetch
    harness.scraper = Scraper("s", harness.scraper.start)

    @harness.handler
    def reader(page: Page) -> Any:
        yield {"item": "first"}
        try:
            if page.css("script"):
                page.need_browser()
        except Exception:
            if not swallows:
                raise
        yield from items(page)

    outcome = await harness.take(harness.page(1, SHELL))
    assert records(outcome) == ["first", *ITEMS]
    assert ways(harness) == ["http", "browser"]
    assert outcome.attempt is not None
    assert outcome.attempt.message == "browser: its handler asked for one"
    assert harness.knowledge == {}


@pytest.mark.parametrize(("own", "way"), [("http", "http"), ("browser", "browser")])
async def test_routes_and_links_force_it_and_teach_nothing(own: Any, way: str) -> None:
    harness = AutoHarness()
    await harness.take(harness.page(1), request_options=RequestOptions(fetch=own))
    assert ways(harness) == [way]
    assert harness.knowledge == {}


async def test_only_plain_requests_are_compared() -> None:
    harness = AutoHarness()
    await harness.take(harness.page(1), request_options=RequestOptions(method="POST", body=b"x"))
    assert ways(harness) == ["http"]


async def test_pages_of_a_shape_that_nobody_knows_wait_for_the_one_that_is_compared() -> None:
    harness = AutoHarness()
    urls = [harness.page(number, SHELL) for number in range(12)]
    await asyncio.gather(*(harness.take(url) for url in urls))
    await harness.tools().fetch_learning.share_all()
    assert harness.state.compared <= 5
    assert harness.state.compared + harness.state.browser == 12


async def test_it_is_counted_how_pages_were_fetched() -> None:
    harness = AutoHarness()
    counted: dict[str, int] = {}
    for outcome in await harness.take_several(0, 5):
        for name, number in outcome.counters.items():
            counted[name] = counted.get(name, 0) + number
    assert auto_usage(counted) == AutoUsage(http=1, compared=4)


# Workers without a browser


async def test_without_any_browser_in_the_fleet_it_stays_with_http_and_learns_nothing() -> None:
    harness = AutoHarness(has_browser=False)
    harness.statuses = [worker_status(), worker_status("exit:de")]
    outcome = await harness.take(harness.page(1))
    assert ways(harness) == ["http"]
    assert records(outcome) == ITEMS
    assert outcome.attempt is not None
    assert outcome.attempt.message == "http: no worker has a browser"
    assert outcome.counters["auto.no_browser"] == 1
    assert harness.knowledge == {}


@pytest.mark.parametrize(
    "status", [worker_status("browser", serves=("other",)), worker_status("browser", seen_at=1_000)]
)
async def test_a_browser_that_does_not_serve_the_run_or_is_gone_is_none(status: Any) -> None:
    harness = AutoHarness(has_browser=False)
    harness.statuses = [status]
    await harness.take(harness.page(1))
    assert ways(harness) == ["http"]


async def test_a_page_of_an_unknown_shape_is_handed_on_without_a_request() -> None:
    harness = AutoHarness(has_browser=False)
    harness.statuses = [worker_status("browser", serves=("s",))]
    outcome = await harness.take(
        harness.page(1), depth=3, parent=5, priority=2, needs=("exit:de",), ack="auto", meta={"a": 1}
    )
    assert harness.calls == []
    assert (outcome.result, outcome.records) == ("done", ())
    [onward] = outcome.found
    assert (onward.url, onward.needs) == (f"http://{HOST}/item/1", ("browser", "exit:de"))
    assert (onward.depth, onward.parent, onward.priority, onward.ack) == (3, 5, 2, "auto")
    assert (onward.meta, onward.revisit) == ({"a": 1}, True)
    assert onward.request_options == RequestOptions(fetch="auto")
    assert outcome.counters == {"auto.handed_on": 1}


async def test_what_is_known_to_need_a_browser_or_suddenly_gives_nothing_is_handed_on_too() -> None:
    for first, http in ((SHELL, SHELL), (FULL, SHELL)):
        teacher, harness = AutoHarness(), AutoHarness(has_browser=False)
        await teacher.take_several(0, 4, first)
        harness.documents = teacher.documents
        harness.statuses = [worker_status("browser")]
        [onward] = (await harness.take(harness.page(50, http))).found
        assert onward.needs == ("browser",)


async def test_what_needs_no_browser_is_fetched_by_any_worker() -> None:
    teacher, harness = AutoHarness(), AutoHarness(has_browser=False)
    await teacher.take_several(0, 4)
    harness.documents = teacher.documents
    harness.statuses = [worker_status("browser")]
    for outcome in await harness.take_several(50, 20):
        assert records(outcome) == ITEMS


async def test_a_handler_that_asks_for_a_browser_hands_its_page_on_for_one_only() -> None:
    harness = AutoHarness(has_browser=False)
    harness.fetching = "http"
    harness.scraper = Scraper("s", harness.scraper.start)
    harness.handler(lambda page: page.need_browser())
    [onward] = (await harness.take(harness.page(1))).found
    assert onward.request_options == RequestOptions(fetch="browser")
    assert onward.needs == ("browser",)


async def test_a_saved_page_is_not_read_in_a_browser() -> None:
    harness = AutoHarness()
    harness.options = {"renders": False}
    harness.scraper = Scraper("s", harness.scraper.start)
    harness.handler(lambda page: page.need_browser())
    outcome = await harness.take(harness.page(1))
    assert (outcome.result, outcome.cause) == ("dead", "browser")
    assert ways(harness) == ["http"]


# What the fleet shares


async def test_what_one_worker_learns_the_others_know_and_both_add_to_it() -> None:
    one, other = AutoHarness(), AutoHarness()
    other.documents = one.documents
    await one.take(one.page(1, SHELL))
    other.now += 10
    await other.take(other.page(2, SHELL))
    assert one.state.compared == 2
    one.now += 10
    await one.take_several(3, 2, SHELL)
    assert ways(one) == ["browser"]


async def test_lessons_that_change_nothing_are_shared_together() -> None:
    harness = AutoHarness()
    await harness.take_several(0, 5)
    version = harness.documents[HOST].version
    await harness.take_several(5, 2)
    await harness.tools().before_settle()
    assert harness.documents[HOST].version == version
    harness.now += 60
    await harness.tools().before_settle()
    assert harness.documents[HOST].version == version + 1
    assert harness.state.http == 3


async def test_a_queue_that_cannot_be_asked_stops_no_page(caplog: pytest.LogCaptureFixture) -> None:
    harness = AutoHarness()

    async def away(*_: Any) -> None:
        raise QueueUnavailable("away")

    harness.document = away  # type: ignore[assignment]
    for outcome in await harness.take_several(0, 4):
        assert records(outcome) == ITEMS
    assert ways(harness) == ["http"]  # what this worker has learned itself
    assert "fetch_knowledge_unsaved" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "[1]",
        '[{"reader": "s", "shape": "/item/*", "state": {"agree": -1}}]',
        '[{"reader": "s", "shape": "/item/*", "state": {"agree": 1e300}}]',
        '[{"reader": "s", "shape": "/item/*", "state": {"interval": 1000000}}]',
        '[{"reader": "s", "shape": "/item/*", "state": {"since": -1}}]',
        '[{"reader": "s", "shape": "%s", "state": {}}]' % ("x" * 1_000),
        "[" + ",".join(['{"reader": "s", "shape": "/", "state": {}}'] * (MAX_KNOWN + 1)) + "]",
        '[{"reader": "s", "shape": "/", "state": {}}]' + " " * 200_000,
    ],
)
async def test_a_document_that_is_not_as_it_should_be_is_none(text: str) -> None:
    assert read_knowledge(text) == {}
    harness = AutoHarness()
    await harness.tools().queue.compare_and_swap("", HOST, text, 0)
    await harness.take_several(0, 3)
    assert label(harness.state) == "http"


async def test_documents_are_bounded_and_keep_what_was_compared_last() -> None:
    many = {("s" * 130, f"/{'x' * 180}{n}"): ShapeState(compared_at=n, records=1 / 3) for n in range(1_000)}
    text = written(many)
    assert len(text) <= 100_000
    known = read_knowledge(text)
    assert 0 < len(known) <= MAX_KNOWN
    assert ("s" * 130, f"/{'x' * 180}999") in known
    assert learned(known, []) == known


@pytest.mark.parametrize(
    ("has_browser", "others", "needs"),
    [(True, (), ("browser",)), (False, (worker_status("browser"),), ("browser",)), (False, (), ())],
)
async def test_links_to_pages_that_need_a_browser_go_straight_to_workers_with_one(
    has_browser: bool, others: tuple[Any, ...], needs: tuple[str, ...]
) -> None:
    teacher, harness = AutoHarness(), AutoHarness(has_browser=has_browser)
    await teacher.take_several(0, 4, SHELL)
    harness.documents, harness.statuses = teacher.documents, list(others)
    home = f"http://{HOST}/"
    harness.answers[home] = harness.rendered[home] = html("<a href=/item/60>60</a><a href=/about>about</a>")
    outcome = await harness.take(home, request_options=RequestOptions(fetch="http"))
    assert ways(harness) == ["http"]
    await harness.tools().fetch_learning.find(HOST, "s", home)  # else nothing is known here yet
    outcome = await harness.take(home, request_options=RequestOptions(fetch="http"))
    assert {task.url: task.needs for task in outcome.found} == {
        f"http://{HOST}/item/60": needs,
        f"http://{HOST}/about": (),
    }


async def test_a_page_that_waits_for_the_browser_is_fetched_by_http_if_that_has_become_enough() -> None:
    harness = AutoHarness()
    await harness.take_several(0, 5, SHELL)
    key, learning = ("s", "/item/*"), harness.tools().fetch_learning

    def two_comparisons_end() -> None:
        harness.on_wait = lambda: None
        host = learning._hosts[HOST]
        agrees = Compared(is_http_enough=True, size=PageSize(3, 1), at=1)
        host.knowledge = learned(host.knowledge, [(key, agrees), (key, agrees)])

    harness.on_wait = two_comparisons_end
    # What is in the queue is what it read before: it is asked again.
    learning._hosts[HOST].read_at = harness.now
    outcome = await harness.take(harness.page(9))
    assert records(outcome) == ITEMS
    assert ways(harness) == ["http", "browser"]  # compared once more, as the verdict has just turned
