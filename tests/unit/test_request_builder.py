"""How requests are built, and that credentials stay with the origin they are meant for."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.page import Request, Response
from shoal.core.task import RequestOptions
from shoal.core.url import request_digest
from shoal.errors import GiveUp
from shoal.fetch.auth import authorization_header
from shoal.fetch.cookies import CookieJars
from shoal.worker.task.request_builder import RequestBuilder, options_after_redirect

HOME, OTHER = "https://shop.test", "https://elsewhere.test"
SECRETS = {"shop": "me:pw", "key": "t0ken", "fast": "http://user:pw@proxy.test:8080"}


def request_builder(**more: Any) -> RequestBuilder:
    return RequestBuilder(
        secrets=SECRETS, authorization_header=authorization_header, is_own_origin=lambda origin: origin == HOME, **more
    )


def sent(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers}


def test_a_plain_page_is_a_plain_request() -> None:
    assert request_builder().build(f"{HOME}/a", None, f"{HOME}/a") == Request(f"{HOME}/a")


def test_the_runs_login_is_shown_at_home_only() -> None:
    asking = request_builder(auth="shop")
    assert sent(asking.build(f"{HOME}/a", None, f"{HOME}/a")) == {"authorization": "Basic bWU6cHc="}
    assert sent(asking.build(f"{OTHER}/a", None, f"{HOME}/a")) == {}
    assert sent(asking.build("http://shop.test/a", None, f"{HOME}/a")) == {}, "not without TLS"


def test_headers_that_tell_who_we_are_stay_at_home_and_others_go_everywhere() -> None:
    asking = request_builder(headers=(("X-Api-Key", "1"), ("Accept-Language", "de"), ("Cookie", "a=b")))
    assert sent(asking.build(f"{HOME}/", None, f"{HOME}/")) == {
        "x-api-key": "1", "accept-language": "de", "cookie": "a=b",
    }  # fmt: skip
    assert sent(asking.build(f"{OTHER}/", None, f"{OTHER}/")) == {"accept-language": "de"}


def test_what_a_task_asks_for_does_not_follow_a_redirect_to_another_origin() -> None:
    request_options = RequestOptions(headers=(("X-Own", "1"), ("Accept", "text/x")), auth="key")
    asking = request_builder()
    assert sent(asking.build(f"{HOME}/", request_options, f"{HOME}/")) == {
        "x-own": "1", "accept": "text/x", "authorization": "Bearer t0ken",
    }  # fmt: skip
    assert sent(asking.build(f"{OTHER}/", request_options, f"{HOME}/")) == {"accept": "text/x"}


def test_a_tasks_header_replaces_the_runs() -> None:
    asking = request_builder(headers=(("Accept", "a"),))
    request = asking.build(f"{HOME}/", RequestOptions(headers=(("accept", "b"),)), f"{HOME}/")
    assert request.headers == (("accept", "b"),)


def test_proxies_come_by_name_or_url() -> None:
    assert request_builder(proxy="fast").build(f"{HOME}/", None, f"{HOME}/").proxy == SECRETS["fast"]
    own = request_builder(proxy="socks5h://127.0.0.1:1").build(f"{HOME}/", RequestOptions(proxy="fast"), f"{HOME}/")
    assert own.proxy == SECRETS["fast"]


@pytest.mark.parametrize("more", [{"auth": "nobody"}, {"proxy": "nobody"}])
def test_a_missing_secret_is_said_at_once_with_the_way_to_set_it(more: Any) -> None:
    with pytest.raises(GiveUp, match="SHOAL_SECRET_NOBODY"):
        request_builder(**more)


def test_cookies_are_kept_per_session() -> None:
    asking = request_builder(sessions=CookieJars())
    answer = Response(f"{HOME}/", 200, (("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2; Path=/")), b"")
    assert asking.store_cookies(answer, None)
    assert not asking.store_cookies(Response(f"{HOME}/", 200, (), b""), None)
    assert sent(asking.build(f"{HOME}/x", None, f"{HOME}/x"))["cookie"] == "a=1; b=2"
    assert sent(asking.build(f"{HOME}/x", RequestOptions(session="other"), f"{HOME}/x")) == {}
    assert sent(asking.build(f"{OTHER}/x", None, f"{OTHER}/x")) == {}


POST = RequestOptions("POST", (("Content-Type", "text/x"), ("X-A", "1")), b"body", session="s")


@pytest.mark.parametrize(
    ("method", "status", "becomes"),
    [
        ("POST", 301, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("POST", 307, "POST"),
        ("POST", 308, "POST"), ("PUT", 301, "PUT"), ("PUT", 303, "GET"), ("HEAD", 303, "HEAD"),
        ("GET", 301, "GET"), ("DELETE", 302, "DELETE"), ("DELETE", 303, "GET"), ("PATCH", 308, "PATCH"),
    ],
)  # fmt: skip
def test_methods_over_redirects(method: str, status: int, becomes: str) -> None:
    again = options_after_redirect(RequestOptions(method, POST.headers, POST.body, POST.session), status)
    assert again is not None
    assert again.method == becomes
    assert again.session == "s"
    if becomes == method:
        assert again.body == b"body"
    else:
        assert (again.body, again.headers) == (None, (("X-A", "1"),))


def test_a_body_that_goes_to_another_origin_is_still_said_to_be_what_it_is() -> None:
    request_options = RequestOptions("POST", (("Content-Type", "application/json"), ("X-Key", "1")), b"{}")
    assert sent(request_builder().build(f"{OTHER}/", request_options, f"{HOME}/")) == {
        "content-type": "application/json"
    }


def test_where_nobody_is_asked_no_secret_is_needed() -> None:
    request_options = RequestOptions("POST", (("X-A", "1"),), b"x", auth="nobody", proxy="nobody")
    request = RequestBuilder(is_offline=True).build(f"{HOME}/", request_options, f"{HOME}/")
    assert (request.key, request.proxy, request.headers) == (request_digest(f"{HOME}/", request_options), "", ())


def test_a_secret_goes_to_no_host_that_it_is_not_for() -> None:
    asking = request_builder(auth="shop", may_use_secret=lambda name, origin: (name, origin) == ("key", HOME))
    assert sent(asking.build(f"{HOME}/", None, f"{HOME}/")) == {}
    assert sent(asking.build(f"{HOME}/", RequestOptions(auth="key"), f"{HOME}/")) == {"authorization": "Bearer t0ken"}
    with pytest.raises(GiveUp, match="bind it to that host"):
        asking.build(f"{OTHER}/", RequestOptions(auth="key"), f"{OTHER}/")


def test_a_task_chooses_between_the_proxies_that_this_machine_knows() -> None:
    asking = request_builder(proxy="socks5h://127.0.0.1:1")
    for known in ("fast", SECRETS["fast"], "socks5h://127.0.0.1:1"):
        assert asking.build(f"{HOME}/", RequestOptions(proxy=known), f"{HOME}/").proxy
    with pytest.raises(GiveUp, match="only names of this machine's secrets"):
        asking.build(f"{HOME}/", RequestOptions(proxy="http://127.0.0.1:9"), f"{HOME}/")


@pytest.mark.parametrize("options", [RequestOptions(auth="key", proxy="fast"), RequestOptions(auth="key")])
def test_a_secret_for_one_host_is_not_shown_to_a_proxy_on_the_way(options: RequestOptions) -> None:
    plain = HOME.replace("https:", "http:")
    asking = request_builder(proxy="fast", may_use_secret=lambda name, origin: origin in (HOME, plain))
    assert sent(asking.build(f"{HOME}/", options, f"{HOME}/")) == {"authorization": "Bearer t0ken"}, "sealed by TLS"
    with pytest.raises(GiveUp, match="not for the proxy"):
        asking.build(f"{plain}/", options, f"{plain}/")
    shared = request_builder(proxy="fast", may_use_secret=lambda name, origin: True)
    assert sent(shared.build(f"{plain}/", options, f"{plain}/")) == {"authorization": "Bearer t0ken"}


def test_the_runs_own_login_is_not_shown_to_a_proxy_either() -> None:
    asking = RequestBuilder(
        secrets=SECRETS, auth="key", proxy="fast", is_own_origin=lambda origin: True,
        authorization_header=authorization_header, may_use_secret=lambda name, origin: origin == "http://shop.test",
    )  # fmt: skip
    with pytest.raises(GiveUp, match="not for the proxy"):
        asking.build("http://shop.test/", None, "http://shop.test/")
    assert sent(asking.build("http://elsewhere.test/", None, "http://elsewhere.test/")) == {}


def test_requests_of_a_runs_own_making_share_no_connection_with_others() -> None:
    asking = request_builder(sessions=CookieJars(), connections="mine")
    asking.store_cookies(Response(f"{HOME}/", 200, (("set-cookie", "a=1; Path=/"),), b""), None)

    def connections(options: RequestOptions | None = None, **more: Any) -> str:
        builder = request_builder(connections="mine", **more) if more else asking
        return builder.build(f"{HOME}/", options, f"{HOME}/").connections

    assert connections() == "", "a plain page, with its cookie"
    assert connections(RequestOptions(session="s")) == ""
    assert connections(RequestOptions(headers=(("X-A", "1"),))) == "mine"
    assert connections(RequestOptions("POST", (), b"x")) == "mine"
    assert connections(RequestOptions("DELETE")) == "mine"
    assert connections(headers=(("Accept", "x"),)) == "mine"
    assert connections(auth="key") == "mine"
