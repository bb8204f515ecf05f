"""What a client and a server of the remote queue say to each other, without a connection between them."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from shoal.core.lane import Pace
from shoal.core.task import Outcome, Task, digest
from shoal.errors import ActionRequired, QueueFull, QueueRefused, QueueUnavailable, RunBusy, UsageError
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.http import HttpQueue
from shoal.queue.http.failure import translate_response
from shoal.queue.http.server_url import HttpServerUrl, parse_server_url
from shoal.queue.http_connection import ServerResponse
from shoal.queue.request_cost import RequestTooCostly, limit_cost, unstorable
from shoal.queue.wire import VERBS

TASK = Task(url="http://a.test/", lane="a.test", digest=digest("http://a.test/"))


# Addresses


@pytest.mark.parametrize(
    ("url", "place", "token"),
    [
        ("https://shoal.example", "https://shoal.example", ""),
        ("https://shoal.example/", "https://shoal.example", ""),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", ""),
        ("http://[::1]:8080/behind/", "http://[::1]:8080/behind", ""),
        ("https://s3cret@shoal.example:8443/x", "https://shoal.example:8443/x", "s3cret"),
        ("https://any:s3cret@shoal.example", "https://shoal.example", "s3cret"),
        ("https://bücher.example/ü b", "https://xn--bcher-kva.example/%C3%BC%20b", ""),
    ],
)
def test_a_url_names_the_server_and_never_shows_its_token(url: str, place: str, token: str) -> None:
    address = parse_server_url(url)
    assert (address.display_url, address.token) == (place, token)
    assert "s3cret" not in address.display_url


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("https://", ""),
        ("https://a b/", ""),
        ("https://shoal.example:99999", ""),
        ("https://shoal.example/?namespace=x", ""),
        ("https://shoal.example/#x", ""),
        ("https://[::1", ""),
        ("https://shoal.example", "tok\r\nX-Evil: 1"),
        ("https://shoal.example", "tök"),
        ("https://t%0d%0aX-Evil@shoal.example", ""),
    ],
)
def test_an_odd_url_or_token_is_refused_before_anything_is_sent(url: str, token: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_server_url(url, token)
    assert "X-Evil" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "open_to_all"),
    [
        ("http://127.0.0.1:1", False),
        ("http://[::1]", False),
        ("http://localhost", False),
        ("https://shoal.example", False),
        ("http://shoal.example", True),
        ("http://10.0.0.1", True),
    ],
)
def test_what_travels_in_the_clear_is_known(url: str, open_to_all: bool) -> None:
    assert parse_server_url(url).is_unencrypted is open_to_all


# Messages


def test_every_verb_of_the_contract_is_one_of_the_client() -> None:
    verbs = {name for name in dir(Queue) if not name.startswith("_")}
    assert verbs == {*VERBS, "close"}
    assert all(callable(getattr(HttpQueue, name)) for name in verbs)


@pytest.mark.parametrize(
    ("verb", "args", "named"),
    [
        ("add", (7, (TASK,), {"a.test": Pace(1.5, 2)}), {}),
        ("claim", ("w", 5), {"lease": 30.0, "serves": {"books"}, "request_id": "x"}),
        ("push", (7, (TASK,), "w", {"a.test": Pace(1.5, 2)}), {"capabilities": ("browser",), "request_id": "x"}),
        ("extend", ("w", {5: (1, 2), 6: ()}), {}),
        ("settle", ([Outcome(1, 2, "done", records=(b'{"a":1}',), found=(TASK,))],), {}),
        ("list_tasks", (7,), {"where": TaskFilter(cause="http.5*", ids=(1, 2)), "limit": 10}),
        ("compare_and_swap", ("lock", "a", None, 3), {}),
    ],
)
def test_a_message_says_the_same_at_the_other_end(verb: str, args: Any, named: Any) -> None:
    there, more = VERBS[verb].unpack(VERBS[verb].pack(args, named))
    given = VERBS[verb].arguments(tuple(there), more)
    for name, value in VERBS[verb].arguments(args, named).items():
        assert _lists(given[name]) == _lists(value), name


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_lists(item) for item in value]
    return value


def test_arguments_that_a_verb_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError):
        VERBS["stats"].pack((1, 2), {})
    with pytest.raises(TypeError, match="more"):
        VERBS["stats"].pack((1,), {"more": 2})


def test_arguments_of_a_newer_client_are_passed_over() -> None:
    assert VERBS["stats"].unpack(msgspec.msgpack.encode({"run": 1, "more": 2})) == ([1], {})


# How much is asked for


@pytest.mark.parametrize(
    ("verb", "given", "limit"),
    [
        ("claim", {"worker": "w", "limit": 10**9}, 1_000),
        ("claim", {"worker": "w", "limit": -1}, 0),
        ("list_tasks", {"run": 1, "limit": 10**6}, 1_000),
        ("list_tasks", {"run": 1, "limit": -1}, 0),
        ("records", {"run": 1, "limit": 500}, 500),
        ("lanes", {"limit": 10**6}, 10_000),
        ("drop", {"run": 1, "limit": 10**6}, 10_000),
    ],
)
def test_what_is_asked_for_is_cut_to_what_is_given_at_once(verb: str, given: dict[str, Any], limit: int) -> None:
    args, named = VERBS[verb].unpack(msgspec.msgpack.encode(given))
    limit_cost(verb, args, named)
    assert VERBS[verb].arguments(tuple(args), named)["limit"] == limit


@pytest.mark.parametrize(
    ("verb", "args", "named"),
    [
        ("add", [1, [TASK] * 2_001, None], {}),
        ("push", [1, [TASK] * 1_001, "w", None], {}),
        ("settle", [[Outcome(1, 1, "released")] * 1_001, None], {}),
        ("settle", [[Outcome(1, 1, "part", found=(TASK,) * 5_001)] * 2, None], {}),
        ("ids", [1, [b"x" * 16] * 10_001], {}),
        ("stats_of", [[1] * 1_001], {}),
        ("revive", [1, TaskFilter(ids=tuple(range(10_001)))], {}),
    ],
)
def test_what_is_brought_beyond_that_is_refused(verb: str, args: list[Any], named: dict[str, Any]) -> None:
    with pytest.raises(RequestTooCostly, match="at most"):
        limit_cost(verb, args, named)


def test_a_lease_is_not_longer_than_a_day() -> None:
    named = {"lease": 1e18, "serves": None, "request_id": ""}
    limit_cost("claim", ["w", 1], named)
    assert named["lease"] == 86_400.0


@pytest.mark.parametrize(
    ("value", "is_odd"),
    [
        ([TASK, {"a": (1, 2.5, "x", b"\0", True, None)}], False),
        (math.nan, True),
        ({"x": [math.inf]}, True),
        (2**63, True),
        (-(2**63), True),
        ([Task(url="\0", lane="a", digest=b"x" * 16)], True),
        (TaskFilter(url="a\0b"), True),
    ],
)
def test_what_no_store_can_keep_is_recognised(value: Any, is_odd: bool) -> None:
    assert (unstorable(value) is not None) is is_odd


# What an answer means

HERE = HttpServerUrl("shoal.example", 443, True, "", "tok")
PROBLEM = "application/problem+json"


def _problem(**words: Any) -> bytes:
    return msgspec.json.encode(words)


@pytest.mark.parametrize(
    ("answer", "kind", "words", "hint"),
    [
        (ServerResponse(401, PROBLEM, body=_problem(detail="not known")), QueueRefused, "not known", "scope work"),
        (ServerResponse(401), QueueRefused, "401", "SHOAL_TOKEN"),
        (
            ServerResponse(
                403, PROBLEM, body=_problem(type="urn:shoal:problem:insufficient-scope", detail="d", hint="h")
            ),
            QueueRefused,
            "d",
            "scope work",
        ),
        (
            ServerResponse(
                403, PROBLEM, body=_problem(type="urn:shoal:problem:reserved-document", detail="d", hint="h")
            ),
            QueueRefused,
            "d",
            "h",
        ),
        (
            ServerResponse(
                429, PROBLEM, body=_problem(type="urn:shoal:problem:too-many-invalid-tokens", detail="wrong")
            ),
            QueueRefused,
            "wrong",
            "SHOAL_TOKEN",
        ),
        (ServerResponse(429), QueueUnavailable, "busy", "shoal serve"),
        (ServerResponse(502, "text/html", body=b"<html>Bad Gateway"), QueueUnavailable, "502", "shoal serve"),
        (ServerResponse(503, PROBLEM, body=_problem(detail="stopping")), QueueUnavailable, "503", "shoal serve"),
        (ServerResponse(507, PROBLEM, body=_problem(error="QueueFull", detail="full")), QueueFull, "full", ""),
        (ServerResponse(409, PROBLEM, body=_problem(error="RunBusy", detail="b", hint="h")), RunBusy, "b", "h"),
        (
            ServerResponse(422, PROBLEM, body=_problem(error="UsageError", detail="wrong", hint="h")),
            UsageError,
            "wrong",
            "h",
        ),
        (ServerResponse(500, PROBLEM, body=_problem(error="SystemExit", detail="x")), QueueRefused, "x", "version"),
        (ServerResponse(301, location="https://u:p@b.example/"), QueueRefused, "redirects elsewhere", "b.example"),
        (ServerResponse(200, "text/html", body=b"<html>"), QueueRefused, "text/html", "shoal serve"),
        (ServerResponse(404, "text/html", body=b"\xff"), QueueRefused, "404", "shoal serve"),
    ],
)
def test_an_answer_that_is_no_answer_says_what_to_do(
    answer: ServerResponse, kind: type[ActionRequired], words: str, hint: str
) -> None:
    made = translate_response(HERE, answer)
    assert type(made) is kind
    assert words in str(made)
    assert hint in made.hint
    assert "u:p@" not in made.hint and "tok " not in f"{made} {made.hint}"
