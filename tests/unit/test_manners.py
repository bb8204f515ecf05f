"""How requests are dressed, and that credentials stay with the origin they are meant for."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.page import Request, Response
from shoal.core.task import Ask
from shoal.core.url import request_digest
from shoal.errors import GiveUp
from shoal.fetch.auth import credential
from shoal.fetch.cookies import Sessions
from shoal.worker.manners import Manners, asked_again

HOME, OTHER = "https://shop.test", "https://elsewhere.test"
SECRETS = {"shop": "me:pw", "key": "t0ken", "fast": "http://user:pw@proxy.test:8080"}


def manners(**more: Any) -> Manners:
    return Manners(secrets=SECRETS, credential=credential, at_home=lambda origin: origin == HOME, **more)


def sent(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers}


def test_a_plain_page_is_a_plain_request() -> None:
    assert manners().request(f"{HOME}/a", None, f"{HOME}/a") == Request(f"{HOME}/a")


def test_the_runs_login_is_shown_at_home_only() -> None:
    asking = manners(auth="shop")
    assert sent(asking.request(f"{HOME}/a", None, f"{HOME}/a")) == {"authorization": "Basic bWU6cHc="}
    assert sent(asking.request(f"{OTHER}/a", None, f"{HOME}/a")) == {}
    assert sent(asking.request("http://shop.test/a", None, f"{HOME}/a")) == {}, "not without TLS"


def test_headers_that_tell_who_we_are_stay_at_home_and_others_go_everywhere() -> None:
    asking = manners(headers=(("X-Api-Key", "1"), ("Accept-Language", "de"), ("Cookie", "a=b")))
    assert sent(asking.request(f"{HOME}/", None, f"{HOME}/")) == {
        "x-api-key": "1", "accept-language": "de", "cookie": "a=b",
    }  # fmt: skip
    assert sent(asking.request(f"{OTHER}/", None, f"{OTHER}/")) == {"accept-language": "de"}


def test_what_a_task_asks_for_does_not_follow_a_redirect_to_another_origin() -> None:
    ask = Ask(headers=(("X-Own", "1"), ("Accept", "text/x")), auth="key")
    asking = manners()
    assert sent(asking.request(f"{HOME}/", ask, f"{HOME}/")) == {
        "x-own": "1", "accept": "text/x", "authorization": "Bearer t0ken",
    }  # fmt: skip
    assert sent(asking.request(f"{OTHER}/", ask, f"{HOME}/")) == {"accept": "text/x"}


def test_a_tasks_header_replaces_the_runs() -> None:
    asking = manners(headers=(("Accept", "a"),))
    request = asking.request(f"{HOME}/", Ask(headers=(("accept", "b"),)), f"{HOME}/")
    assert request.headers == (("accept", "b"),)


def test_proxies_come_by_name_or_address() -> None:
    assert manners(proxy="fast").request(f"{HOME}/", None, f"{HOME}/").proxy == SECRETS["fast"]
    own = manners(proxy="socks5h://127.0.0.1:1").request(f"{HOME}/", Ask(proxy="fast"), f"{HOME}/")
    assert own.proxy == SECRETS["fast"]


@pytest.mark.parametrize("more", [{"auth": "nobody"}, {"proxy": "nobody"}])
def test_a_missing_secret_is_said_at_once_with_the_way_to_set_it(more: Any) -> None:
    with pytest.raises(GiveUp, match="SHOAL_SECRET_NOBODY"):
        manners(**more)


def test_cookies_are_kept_per_session() -> None:
    asking = manners(sessions=Sessions())
    answer = Response(f"{HOME}/", 200, (("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2; Path=/")), b"")
    assert asking.heard(answer, None)
    assert not asking.heard(Response(f"{HOME}/", 200, (), b""), None)
    assert sent(asking.request(f"{HOME}/x", None, f"{HOME}/x"))["cookie"] == "a=1; b=2"
    assert sent(asking.request(f"{HOME}/x", Ask(session="other"), f"{HOME}/x")) == {}
    assert sent(asking.request(f"{OTHER}/x", None, f"{OTHER}/x")) == {}


POST = Ask("POST", (("Content-Type", "text/x"), ("X-A", "1")), b"body", session="s")


@pytest.mark.parametrize(
    ("method", "status", "becomes"),
    [
        ("POST", 301, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("POST", 307, "POST"),
        ("POST", 308, "POST"), ("PUT", 301, "PUT"), ("PUT", 303, "GET"), ("HEAD", 303, "HEAD"),
        ("GET", 301, "GET"), ("DELETE", 302, "DELETE"), ("DELETE", 303, "GET"), ("PATCH", 308, "PATCH"),
    ],
)  # fmt: skip
def test_methods_over_redirects(method: str, status: int, becomes: str) -> None:
    again = asked_again(Ask(method, POST.headers, POST.body, POST.session), status)
    assert again is not None
    assert again.method == becomes
    assert again.session == "s"
    if becomes == method:
        assert again.body == b"body"
    else:
        assert (again.body, again.headers) == (None, (("X-A", "1"),))


def test_a_body_that_goes_to_another_origin_is_still_said_to_be_what_it_is() -> None:
    ask = Ask("POST", (("Content-Type", "application/json"), ("X-Key", "1")), b"{}")
    assert sent(manners().request(f"{OTHER}/", ask, f"{HOME}/")) == {"content-type": "application/json"}


def test_where_nobody_is_asked_no_secret_is_needed() -> None:
    ask = Ask("POST", (("X-A", "1"),), b"x", auth="nobody", proxy="nobody")
    request = Manners(bare=True).request(f"{HOME}/", ask, f"{HOME}/")
    assert (request.key, request.proxy, request.headers) == (request_digest(f"{HOME}/", ask), "", ())


def test_a_secret_goes_to_no_host_that_it_is_not_for() -> None:
    asking = manners(auth="shop", may=lambda name, origin: (name, origin) == ("key", HOME))
    assert sent(asking.request(f"{HOME}/", None, f"{HOME}/")) == {}
    assert sent(asking.request(f"{HOME}/", Ask(auth="key"), f"{HOME}/")) == {"authorization": "Bearer t0ken"}
    with pytest.raises(GiveUp, match="bind it to that host"):
        asking.request(f"{OTHER}/", Ask(auth="key"), f"{OTHER}/")
