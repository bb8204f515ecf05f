"""Routes: which rule wins, what a task gets from it, and which rules are refused."""

from __future__ import annotations

from typing import Any

import pytest

import shoal
from shoal.app import pace_rule, seed_tasks
from shoal.config.load import load, with_defaults
from shoal.core.lane import Pace
from shoal.core.routes import MAX_LANES, MAX_ROUTES, Routes, route_lines
from shoal.core.task import RequestOptions, Task
from shoal.core.url import lane_of, request_digest
from shoal.errors import UsageError
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.web.pages.submit import EMPTY_FORM, read_submission

RULES = (
    "https://shop.example/sale/* priority=9",
    "shop.example/api/* ack=auto",
    "*/urgent/* priority=10 ttl=30m",
    "*.shop.example needs=browser",
    "shop.example ttl=5m",
    "/plain priority=3",
    "* ttl=1h",
)


def task_for(url: str, options: RequestOptions | None = None, **values: Any) -> Task:
    return Task(url=url, lane=lane_of(url), digest=request_digest(url, options), request_options=options, **values)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://shop.example/sale/1", 1),
        ("http://shop.example/sale/1", 5),  # the scheme is part of a rule that has one
        ("https://shop.example/api/v1?x=/urgent/", 2),
        ("https://a.shop.example/api/v1", 4),  # a host is that host alone
        ("https://other.example/urgent/1", 3),
        ("https://other.example/x?to=/urgent/1", 3),  # path and query
        ("https://a.b.shop.example/", 4),
        ("https://notshop.example/", 7),
        ("https://shop.example:8443/", 7),  # another port is another host
        ("https://shop.example/", 5),
        ("https://other.example/plain?session=1", 6),  # the path alone is enough
        ("https://other.example/plainer", 7),
    ],
)
def test_first_rule_that_matches_wins(url: str, rule: int) -> None:
    routes = Routes(route_lines(RULES))
    found = routes.find(url, lane_of(url))
    assert found is routes.routes[rule - 1]
    assert routes.find(url, lane_of(url)) is found  # also from what is remembered of the host
    assert [trial.number for trial in routes.explain(url) if trial.verdict == "wins"] == [rule]


def test_without_a_match_nothing_is_changed() -> None:
    task = task_for("https://other.example/")
    assert Routes(["shop.example ttl=1"]).admit(task) is task
    assert not Routes()


def test_a_rule_gives_what_a_task_does_not_ask_for_itself() -> None:
    routes = Routes(["* priority=4 ttl=60 ack=auto needs=browser,exit:de session=eu cache=30"])
    plain = routes.admit(task_for("https://a.example/"))
    assert (plain.priority, plain.ttl, plain.ack, plain.needs) == (4, 60.0, "auto", ("browser", "exit:de"))
    assert plain.request_options == RequestOptions(rule_session="eu", cache=30.0)
    own = RequestOptions(session="mine", cache=5.0)
    asked = routes.admit(
        task_for("https://a.example/", own, priority=0, ttl=7.0, needs=("gpu",)), keep_priority=True, keep_ack=True
    )
    assert (asked.priority, asked.ttl, asked.ack, asked.needs) == (0, 7.0, "manual", ("gpu",))
    assert asked.request_options == own
    assert routes.admit(task_for("https://a.example/", ttl=90.0)).ttl == 60.0  # the smaller wins


def test_a_rule_never_changes_who_a_task_is() -> None:
    routes, url = Routes(["* session=eu cache=30 needs=browser"]), "https://a.example/"
    task = routes.admit(task_for(url))
    assert task.digest == request_digest(url) == request_digest(url, task.request_options)
    assert task.request_options is not None and task.request_options.is_plain
    assert not RequestOptions(session="eu").is_plain


def test_typed_tasks_have_no_route() -> None:
    task = shoal.Task(type="resize", payload={"id": 1}).to_queue_task()
    assert Routes(["* ttl=1"]).admit(task) is task


def test_pace_is_that_of_the_first_rule_for_the_host_whatever_comes_before_it_by_url() -> None:
    routes = Routes(["shop.example/a/* priority=1", "shop.example rate=4", "*.example delay=3 in_flight=1"])
    assert routes.pace("shop.example", Pace(1.0, 2)) == Pace(0.25, 2)
    assert routes.pace("shop.example@de", Pace(1.0, 2)) == Pace(0.25, 2)
    assert routes.pace("b.example", Pace(1.0, 2)) == Pace(3.0, 1)
    assert routes.pace("b.test", Pace(1.0, 2)) == Pace(1.0, 2)


def test_what_is_remembered_of_hosts_is_bounded() -> None:
    routes = Routes(["*.example ttl=1"])
    for number in range(MAX_LANES + 5):
        routes.find(f"http://h{number}.example/", f"h{number}.example")
    assert len(routes._by_lane) <= MAX_LANES


def test_lines_mappings_and_values_of_python_are_one_notation() -> None:
    line = "*/urgent/* priority=10 ttl=1800s"
    assert route_lines("# a comment\n\n */urgent/*\tpriority=10 ttl=30m \n") == (line,)
    assert route_lines([{"match": "*/urgent/*", "priority": 10, "ttl": "30m"}]) == (line,)
    assert route_lines([shoal.Route("*/urgent/*", priority=10, ttl="30m")]) == (line,)
    assert route_lines([line]) == (line,)
    every = (
        "a.example priority=-3 ttl=10000000s ack=auto needs=browser,exit:de session=eu cache=0.5s rate=0.5 in_flight=0"
    )
    assert route_lines([every]) == (every,)
    assert route_lines(["EXAMPLE.com/Ü* ttl=1"]) == ("example.com/%C3%9C* ttl=1s",)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["a.example ttl=1", "a.example ttl=2"], "rule 2: a.example has a rule already: a.example ttl=1s"),
        (["* ttl=1", "a.example ttl=2"], "rule 2: a.example is never reached: * comes first"),
        (["*.a.example ttl=1", "b.a.example ttl=2"], "rule 2: b.a.example is never reached"),
        (["a.example ttl=1", "https://a.example/x priority=2"], "rule 2: https://a.example/x is never reached"),
        (["a.example ttl=1", "a.example/x/* priority=2"], "rule 2: a.example/x/* is never reached"),
        (["/a/* ttl=1", "", "/a/*/b ttl=2"], "rule 3: /a/*/b is never reached"),
        (["/a/* ttl=1", "x.example/a/b ttl=2"], "rule 2: x.example/a/b is never reached"),
        (["a.example ttl=0"], "rule 1: ttl '0' is not understood"),
        ([{"match": "a.example", "ttl": -1}], "rule 1: ttl -1 is not understood"),
        (["a.example ack=maybe"], "rule 1: ack 'maybe' is not understood"),
        (["a.example needs="], "rule 1: '' is not the name of a capability"),
        (["a.example session=a/b"], "rule 1: session 'a/b' is not understood"),
        (["a.example priority=1e9"], "rule 1: priority '1e9' is not understood"),
        (["a.example proirity=1"], "rule 1: 'proirity' is not known"),
        (["a.example ttl"], "rule 1: 'ttl' has no value"),
        (["a.example ttl=1 ttl=2"], "rule 1: ttl is given twice"),
        (["a.example"], "rule 1: a.example sets nothing"),
        (["a.example delay=1 rate=2"], "rule 1: delay and rate say the same"),
        (["/x/* delay=1"], "rule 1: delay in a rule by URL"),
        (["a.example/x in_flight=1"], "rule 1: in_flight in a rule by URL"),
        (["a*.example ttl=1"], "rule 1: 'a*.example' is not a host"),
        (["a*.example/x ttl=1"], "rule 1: no URL matches 'a*.example/x'"),
        ([{"ttl": 1}], "rule 1: it has no match"),
        ([7], "rule 1: 7 is not a rule"),
        (["a.example\0 ttl=1"], "rule 1: 'a.example\\x00 ttl=1' is not a line of text"),
        ([f"h{n}.example ttl=1" for n in range(MAX_ROUTES + 1)], f"more than {MAX_ROUTES} rules"),
        ([f"h{n}.example needs=n{n}" for n in range(17)], "more than 16 combinations"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_rule(rules: list[object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        route_lines(rules)
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "rules",
    [
        ["/a/*/b ttl=1", "/a/* ttl=2"],
        ["https://x.example/* ttl=1", "/a/* ttl=2", "x.example ttl=3"],
        ["b.a.example ttl=1", "*.a.example ttl=2", "a.example ttl=3", "* ttl=4"],
        ["x.example/a/* ttl=1", "/a/* ttl=2"],
    ],
)
def test_a_narrower_rule_may_come_first(rules: list[str]) -> None:
    assert len(route_lines(rules)) == len(rules)


def test_found_links_get_what_the_rules_say_and_what_the_handler_says_wins() -> None:
    links = LinkFilter(
        lambda lane: True, None, lambda lane, url: None, routes=Routes(["/u/* priority=9 ttl=60 ack=auto"])
    )
    page = Page.from_html("<p>", "https://a.example/")
    plain = page.follow(["/u/1", "/other"])
    said = page.follow(["/u/2"], priority=0, ttl="5s", ack="manual")
    longer = page.follow(["/u/3"], ttl=3600)
    admitted = links.admit((*plain, *said, *longer), depth=0, parent=None, origin_url=page.url)
    shown = [(task.url[17:], task.priority, task.ttl, task.ack) for task in admitted.tasks]
    assert shown == [
        ("/u/1", 9, 60.0, "auto"),
        ("/other", 0, None, "manual"),
        ("/u/2", 0, 5.0, "manual"),
        ("/u/3", 9, 60.0, "auto"),
    ]


def test_a_link_with_a_session_by_rule_is_the_plain_page_for_later_pages() -> None:
    links = LinkFilter(lambda lane: True, None, lambda lane, url: None, routes=Routes(["* session=eu cache=9"]))
    page = Page.from_html("<p>", "https://a.example/")
    first = links.admit(page.follow(["/x"]), depth=0, parent=None, origin_url=page.url)
    links.mark_committed(first.tasks)
    assert len(first.tasks) == 1
    assert links.admit(page.follow(["/x"]), depth=0, parent=None, origin_url=page.url).tasks == ()


@pytest.mark.parametrize(
    ("values", "words"), [({"ttl": 0}, "ttl 0"), ({"ttl": "soon"}, "soon"), ({"ack": "no"}, "ack")]
)
def test_follow_refuses_what_is_no_ttl_and_no_way_to_acknowledge(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Page.from_html("<p>").follow(["/x"], **values)


def test_start_urls_and_paces_of_a_scraper_with_routes() -> None:
    scraper = Scraper("shop", "https://shop.example/", routes=[shoal.Route("shop.example", ttl="1h", delay=7)])
    settings = with_defaults(load(env={}), scraper.settings, "scraper shop")
    tasks, paces = seed_tasks(scraper, settings)
    assert [(task.ttl, task.lane) for task in tasks] == [(3600.0, "shop.example")]
    assert paces == {"shop.example": Pace(7.0, 2)}
    assert pace_rule(settings)("other.example") == Pace(1.0, 2)


def test_a_form_takes_rules_one_a_line_and_says_what_is_wrong_beside_their_field() -> None:
    form = EMPTY_FORM | {"urls": "https://a.example/", "routes": "# first\r\n*/urgent/* ttl=30m\r\n\r\n* ttl=1h\r\n"}
    errors: dict[str, str] = {}
    wanted = read_submission(form, errors)
    assert wanted is not None and not errors
    assert wanted.settings["routes"] == ["*/urgent/* ttl=1800s", "* ttl=3600s"]
    assert read_submission(form | {"routes": "* ttl=1h\na.example ttl=0"}, errors) is None
    assert errors["routes"].startswith("Rule 2: ttl '0' is not understood. Give seconds above 0")
