"""What becomes of a session: pure rules, and what a task of one needs."""

from __future__ import annotations

import pytest

from shoal.core.lane import Pace, exit_of_lane, same_owner_lane, session_of_lane
from shoal.core.page import Response
from shoal.core.routes import Routes
from shoal.core.session import (
    SessionState,
    asked_again,
    begun,
    confirmed,
    ended,
    is_suspect,
    logged_in,
    login_failed,
    read_state,
    written,
)
from shoal.core.session_options import LoggedInCheck, Login, SessionOptions
from shoal.core.task import RequestOptions, Task
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.exits.proxy_pool import ProxyPool
from shoal.worker.task.session_check import logged_out_reason, login_problem

SECOND = 1_000_000
HOME = "https://shop.test/a"
SHOP = SessionOptions("shop", ("shop.test", "*.shop.test"), login=Login("form", "https://shop.test/login"))
OTHER = SessionOptions("other", ("shop.test",), login=Login("form", "https://shop.test/login"))
SESSIONS = {"shop": SHOP, "other": OTHER}


def made() -> SessionState:
    return logged_in(SessionState(), identity="i1", sealed="x", key="k1", now=5)


def test_logins_that_the_site_refuses_come_to_a_person_and_others_only_pause() -> None:
    state = SessionState()
    for number in range(1, 4):
        state = login_failed(state, "wrong", now=0, counts=True, most=3)
        assert state.state == ("person" if number == 3 else "out")
    state = SessionState()
    pauses = []
    for _ in range(20):
        state = login_failed(state, "no answer", now=0, counts=False, most=3)
        pauses.append(state.retry_at / SECOND)
    assert state.state == "out"
    assert pauses[:3] == [15, 30, 60]
    assert pauses[-1] == 600
    assert asked_again(state) == SessionState(identity="", logins=0)


def test_an_end_counts_as_a_failed_login_only_before_any_page_was_right() -> None:
    state = ended(confirmed(made()), "gone", task=7, most=1, can_log_in=True)
    assert (state.state, state.failures, state.sealed) == ("out", 0, "")
    state = ended(made(), "gone", task=7, most=1, can_log_in=True)
    assert (state.state, state.failures) == ("person", 1)
    assert ended(confirmed(made()), "gone", task=7, most=3, can_log_in=False).state == "person"


def test_a_page_that_ends_every_login_is_found_out() -> None:
    state = confirmed(made())
    for number in range(2):
        assert not is_suspect(state, 7), number
        state = ended(state, "401", task=7, most=3, can_log_in=True)
        state = confirmed(logged_in(state, identity=f"n{number}", sealed="x", key="k1", now=6))
    assert is_suspect(state, 7)
    assert not is_suspect(state, 8)


def test_whose_key_was_given_up_is_remembered_until_it_is_used_again() -> None:
    state = logged_in(made(), identity="i2", sealed="y", key="k2", now=6)
    assert state.lost_keys == ("k1",)
    assert logged_in(state, identity="i3", sealed="z", key="k1", now=7).lost_keys == ("k2",)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"state": "inside"}', '{"suspects": []}', '{"login_until": 1e400}', '"\ud800"', "x" * 2_000_000],
    ids=lambda text: text[:20],
)
def test_a_document_that_somebody_else_has_written_is_that_of_nobody(text: str) -> None:
    assert read_state(text) == SessionState()


def test_a_state_is_read_as_it_was_written() -> None:
    state = begun(made(), token="t", by="w", now=5)
    assert read_state(written(state)) == state
    assert state.is_logging_in(6)
    assert not state.is_logging_in(5 + 31 * SECOND)


def task(url: str, **options: str) -> Task:
    host = url.split("/")[2]
    return Task(url, host, b"d", request_options=RequestOptions(**options) if options else None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "options", "default", "lane", "needs"),
    [
        ("https://shop.test/a", {"session": "shop"}, "", "shop.test@session:shop", ("session:shop",)),
        ("https://shop.test/a", {"rule_session": "shop"}, "", "shop.test@session:shop", ("session:shop",)),
        ("https://shop.test/a", {}, "shop", "shop.test@session:shop", ("session:shop",)),
        ("https://else.test/a", {}, "shop", "else.test", ()),
        ("https://shop.test/a", {"session": "ada"}, "shop", "shop.test", ()),
        ("https://else.test/a", {}, "unknown", "else.test@session:unknown", ("session:unknown",)),
        ("https://shop.test/a", {}, "", "shop.test", ()),
    ],
)
def test_a_task_of_a_shared_session_waits_in_a_lane_of_its_own(
    url: str, options: dict[str, str], default: str, lane: str, needs: tuple[str, ...]
) -> None:
    admitted = Routes(sessions=SESSIONS, session=default).admit(task(url, **options))
    assert (admitted.lane, admitted.needs) == (lane, needs)


def test_a_session_leaves_by_its_exit_and_stays_in_its_lane() -> None:
    leaving = SessionOptions("shop", ("shop.test",), exit="office")
    admitted = Routes(sessions={"shop": leaving}).admit(task("https://shop.test/a", session="shop"))
    assert admitted.lane == "shop.test@session:shop"
    assert admitted.needs == ("exit:office", "session:shop")
    assert admitted.request_options is not None
    assert admitted.request_options.exit == "office"


def test_lanes_of_sessions() -> None:
    lane = "shop.test@session:shop"
    assert (session_of_lane(lane), exit_of_lane(lane)) == ("shop", "")
    assert (session_of_lane("shop.test@office"), exit_of_lane("shop.test@office")) == ("", "office")
    assert same_owner_lane("cdn.test", lane) == "cdn.test@session:shop"
    assert same_owner_lane("cdn.test", "shop.test") == "cdn.test"


def test_sessions_behind_one_exit_share_the_pace_of_a_host() -> None:
    pace = Routes(sessions=SESSIONS).pace
    assert pace("shop.test@session:shop", Pace(1.0, 4)) == Pace(2.0, 2)
    assert pace("www.shop.test@session:shop", Pace(1.0, 4)) == Pace(1.0, 4)
    assert pace("shop.test", Pace(1.0, 4)) == Pace(1.0, 4)
    slow = SESSIONS | {"slow": SessionOptions("slow", ("shop.test",), delay=9.0, in_flight=1)}
    assert Routes(sessions=slow).pace("shop.test@session:slow", Pace(1.0, 4)) == Pace(9.0, 1)
    assert Routes(sessions=slow).pace("shop.test@session:shop", Pace(1.0, 4)) == Pace(2.0, 2)


def test_an_identity_keeps_its_proxy_at_all_hosts_or_has_none() -> None:
    from shoal.core.session import identity_key

    pool = ProxyPool(ExitOptions("e", tuple(f"http://p{n}.test:1" for n in range(8)), "host"))
    one, other = identity_key("shop", "a"), identity_key("shop", "b")
    first = pool.choose(one, "shop.test", 0.0)
    assert first is not None
    assert pool.choose(one, "cdn.test", 0.0) is first
    assert len({pool.choose(identity_key("shop", str(n)), "shop.test", 0.0) for n in range(30)}) > 1
    pool.note_failures(first, 3, 0.0)
    assert pool.choose(one, "shop.test", 1.0) is None
    assert pool.choose(one, "shop.test", 60.0) is first
    assert pool.choose(other, "shop.test", 60.0) is not None


def response(
    url: str = "https://shop.test/a", status: int = 200, body: bytes = b"<p class=me>x", **more: object
) -> Response:
    return Response(url, status, (("content-type", "text/html"),), body, **more)  # type: ignore[arg-type]


LOGIN_PAGE = b"<form action=/login method=post class=login><input name=u><input type=password name=p></form>"


@pytest.mark.parametrize(
    ("check", "answer", "is_out"),
    [
        (LoggedInCheck(), response(), False),
        (LoggedInCheck(), response(status=401), True),
        (LoggedInCheck(status=(403,)), response(status=401), False),
        (LoggedInCheck(present=".me"), response(), False),
        (LoggedInCheck(present=".you"), response(), True),
        (LoggedInCheck(present=".you"), response(status=404), False),
        (LoggedInCheck(absent=".me"), response(), True),
        (LoggedInCheck(redirect="/login*"), response("https://shop.test/login?next=a"), True),
        (
            LoggedInCheck(redirect="*/login"),
            response(redirects=("https://shop.test/a", "https://shop.test/login")),
            True,
        ),
        (LoggedInCheck(redirect="/a"), response(redirects=("https://shop.test/a",), url="https://shop.test/b"), False),
        (LoggedInCheck(present=".you", status=(401,)), response("https://evil.test/", 401), False),
        (LoggedInCheck(redirect="*"), response("https://evil.test/login"), False),
    ],
)
def test_what_shows_that_nobody_is_logged_in(check: LoggedInCheck, answer: Response, is_out: bool) -> None:
    session = SessionOptions("shop", ("shop.test",), check=check)
    assert bool(logged_out_reason(session, answer)) is is_out


def test_a_form_that_asks_again_is_a_login_that_failed() -> None:
    assert "asks for a password again" in login_problem(SHOP, response(body=LOGIN_PAGE))
    assert login_problem(SHOP, response()) == ""
    assert "500" in login_problem(SHOP, response(status=500))


def test_a_parent_of_a_host_is_no_host_that_ends_alike() -> None:
    from shoal.fetch.cookies import Cookie
    from shoal.fetch.sessions.identity import Identity, IdentityValues

    names = ("shop.test", "myshop.test", "op.test", "test", "www.shop.test")
    values = IdentityValues("i", tuple(Cookie("a", "b", name, "/", False, False, None, 0) for name in names))
    kept = {one.domain for one in Identity(SessionOptions("s", ("a.shop.test",)), values, 0.0).all()}
    assert kept == {"shop.test", "test"}  # of a public suffix no site can set one; an export may hold it
