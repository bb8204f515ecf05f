"""Which responses may be shared and for how long, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core import cache_rules
from shoal.core.cache_rules import HTTP_RULES
from shoal.core.page import Request, Response

URL = "http://a.test/"
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


def response(status: int = 200, **headers: str) -> Response:
    return Response(URL, status, tuple((name.replace("_", "-"), value) for name, value in headers.items()), b"x")


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (True, {}),
        (True, {"headers": (("accept-language", "de"),)}),
        (True, {"proxy": "http://p.test"}),
        (False, {"method": "POST"}),
        (False, {"method": "HEAD"}),
        (False, {"body": b""}),
        (False, {"first": 10}),
        (False, {"headers": (("Authorization", "Bearer x"),)}),
        (False, {"headers": (("cookie", "a=b"),)}),
        (False, {"headers": (("X-Api-Key", "k"),)}),
        (False, {"headers": (("Range", "bytes=0-9"),)}),
        (False, {"headers": (("if-none-match", '"a"'),)}),
        (False, {"headers": (("Cache-Control", "no-cache"),)}),
    ],
)
def test_only_a_request_that_anybody_might_send_is_shared(expected: bool, changes: dict[str, Any]) -> None:
    assert cache_rules.is_shareable_request(Request(URL, **changes)) is expected


def test_requests_that_differ_in_anything_a_site_may_vary_by_have_keys_of_their_own() -> None:
    requests = [
        (Request(URL), "a"),
        (Request(URL), "b"),
        (Request(URL + "x"), "a"),
        (Request(URL, headers=(("accept-language", "de"),)), "a"),
        (Request(URL, headers=(("accept-language", "fr"),)), "a"),
        (Request(URL, proxy="http://p.test"), "a"),
    ]
    keys = [cache_rules.cache_key(request, agent) for request, agent in requests]
    assert len(set(keys)) == len(requests) and {len(key) for key in keys} == {16}
    one, other = (("A", "1"), ("b", "2")), (("B", "2"), ("a", "1"))
    assert cache_rules.cache_key(Request(URL, headers=one), "") == cache_rules.cache_key(
        Request(URL, headers=other, timeout=5.0, cache=60.0), ""
    )


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (True, response()),
        (True, response(301)),
        (True, response(cache_control="no-cache")),
        (True, response(vary="Accept-Language, Cookie")),
        (False, response(302)),
        (False, response(404)),
        (False, response(429)),
        (False, response(500)),
        (False, response(206)),
        (False, response(304)),
        (False, response(cache_control="public, No-Store")),
        (False, response(cache_control='max-age=60, private="x"')),
        (False, response(set_cookie="a=b")),
        (False, response(vary="Accept, *")),
    ],
)
def test_what_is_for_one_visitor_or_an_error_is_not_shared(expected: bool, found: Response) -> None:
    assert cache_rules.is_shareable(found) is expected


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        (0.0, response()),
        (60.0, response(cache_control="max-age=60")),
        (60.0, response(cache_control='Max-Age="60"')),
        (90.0, response(cache_control="max-age=60, s-maxage=90")),
        (40.0, response(cache_control="max-age=60", age="20")),
        (0.0, response(cache_control="max-age=60", age="99")),
        (60.0, response(cache_control="max-age=60", age="-5")),
        (50.0, response(cache_control="max-age=60", date="Tue, 14 Nov 2023 22:13:10 GMT")),
        (40.0, response(cache_control="max-age=60", date="Tue, 14 Nov 2023 22:13:10 GMT", age="20")),
        (60.0, response(cache_control="max-age=60", date="Tue, 14 Nov 2023 23:13:20 GMT")),
        (0.0, response(cache_control="max-age=60, no-cache")),
        (0.0, response(cache_control="max-age=soon")),
        (0.0, response(cache_control="max-age=-1")),
        (0.0, response(cache_control="max-age=٣")),
        (cache_rules.MAX_LIFETIME, response(cache_control="max-age=" + "9" * 400)),
        (60.0, response(cache_control="max-age=60", expires=DATE, date=DATE)),
        (3600.0, response(expires="Tue, 14 Nov 2023 23:13:20 GMT", date=DATE)),
        (3600.0, response(expires="Tue, 14 Nov 2023 23:13:20 GMT")),
        (0.0, response(expires="0", last_modified="Sat, 04 Nov 2023 22:13:20 GMT")),
        (0.0, response(expires="Mon, 01 Jan 1990 00:00:00 GMT")),
        (86_400.0, response(date=DATE, last_modified="Sat, 04 Nov 2023 22:13:20 GMT")),
        (360.0, response(date=DATE, last_modified="Tue, 14 Nov 2023 21:13:20 GMT")),
        (86_400.0, response(date=DATE, last_modified="Mon, 01 Jan 1990 00:00:00 GMT")),
        (0.0, response(date=DATE, last_modified="Wed, 15 Nov 2023 22:13:20 GMT")),
        (0.0, response(last_modified="yesterday")),
    ],
)
def test_how_long_a_response_is_fresh_by_its_own_headers(seconds: float, found: Response) -> None:
    assert cache_rules.fresh_for(found, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("expected", "age", "fresh_for", "asked"),
    [
        (True, 59.0, 0.0, 60.0),
        (False, 60.0, 0.0, 60.0),
        (False, 61.0, 3600.0, 60.0),
        (True, 61.0, 3600.0, HTTP_RULES),
        (False, 3600.0, 3600.0, HTTP_RULES),
        (False, 0.0, 0.0, HTTP_RULES),
    ],
)
def test_the_time_asked_for_counts_in_place_of_the_headers(
    expected: bool, age: float, fresh_for: float, asked: float
) -> None:
    assert cache_rules.is_fresh(age, fresh_for, asked) is expected


def test_by_http_rules_only_what_can_be_used_again_is_kept() -> None:
    assert cache_rules.is_worth_keeping(response(), 0.0, 60.0)
    assert not cache_rules.is_worth_keeping(response(), 0.0, HTTP_RULES)
    assert cache_rules.is_worth_keeping(response(), 1.0, HTTP_RULES)
    assert cache_rules.is_worth_keeping(response(etag='"a"'), 0.0, HTTP_RULES)


def test_a_304_updates_the_headers_but_not_those_of_the_body() -> None:
    stored = response(etag='"a"', content_type="text/html", date="then", content_length="1")
    news = response(304, etag='"a"', date="now", content_length="0", content_type="text/plain")
    assert dict(cache_rules.updated_headers(stored, news)) == {
        "etag": '"a"', "content-type": "text/html", "date": "now", "content-length": "1",
    }  # fmt: skip
