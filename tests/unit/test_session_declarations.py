"""Sessions as people write them, with every way to get it wrong; and what stands for a secret."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.config.load import load
from shoal.config.sessions import filled_in, filled_in_json, read_sessions, steps_with_secret
from shoal.core.browser_step import read_step
from shoal.errors import UsageError

FORM = {"form": "https://shop.test/login", "fields": {"u": "{user}", "p": "{password}"}}
GOOD: dict[str, Any] = {"hosts": ["shop.test"], "secret": "shop", "login": FORM}


def read(value: Any, name: str = "shop", bound: tuple[str, ...] | None = None) -> Any:
    return read_sessions({name: value}, "shoal.toml: sessions", {} if bound is None else {"shop": bound})[name]


def test_a_session_is_read_whole() -> None:
    found = read(
        GOOD
        | {
            "exit": "office",
            "headers": ["Accept-Language: de"],
            "rate": "30/m",
            "in_flight": 1,
            "failures": 5,
            "max_age": "12h",
            "check": {"url": "https://shop.test/me", "present": ".me", "status": [401, 403], "redirect": "*/login*"},
        }
    )
    assert (found.delay, found.in_flight, found.failures, found.max_age) == (2.0, 1, 5, 43_200)
    assert found.headers == (("Accept-Language", "de"),)
    assert found.check.status == (401, 403)
    assert read({"login": {"form": "https://shop.test/login", "fields": {"u": "x"}}}).hosts == ("shop.test",)
    json = read(GOOD | {"login": {"json": "https://shop.test/api", "body": {"u": "{user}"}, "token": "a.b"}})
    assert json.login.header == "Authorization: Bearer {token}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "must hold names and values"),
        ([], "must hold names and values"),
        ({}, "belongs to no host"),
        ({"hosts": []}, "belongs to no host"),
        ({"hosts": ["http://shop.test/"]}, "is not understood"),
        ({"hosts": "*"}, "is not understood"),
        ({"hosts": [1]}, "is not understood"),
        (GOOD | {"host": "shop.test"}, "'host' is not known"),
        (GOOD | {"exit": "No Exit"}, "cannot be the name of an exit"),
        (GOOD | {"headers": ["nothing"]}, "is not a header"),
        (GOOD | {"headers": ["Host: a"]}, "cannot be chosen"),
        (GOOD | {"delay": 1, "rate": 2}, "say the same"),
        (GOOD | {"delay": "soon"}, "is not understood"),
        (GOOD | {"failures": 0}, "is not understood"),
        (GOOD | {"in_flight": -1}, "is not understood"),
        (GOOD | {"max_age": True}, "is not understood"),
        (GOOD | {"login": "form"}, "must hold names and values"),
        (GOOD | {"login": {}}, "give one of form, json or browser"),
        (GOOD | {"login": FORM | {"json": "https://shop.test/"}}, "give one of form, json or browser"),
        (GOOD | {"login": FORM | {"steps": []}}, "steps does not go with form"),
        (GOOD | {"login": FORM | {"form": "/login"}}, "login: form"),
        (GOOD | {"login": FORM | {"form": "ftp://shop.test/"}}, "login: form"),
        (GOOD | {"login": FORM | {"form": "https://evil.test/login"}}, "evil.test is not among its hosts"),
        (GOOD | {"login": FORM | {"fields": {}}}, "fields must hold"),
        (GOOD | {"login": FORM | {"fields": {"u": "{name}"}}}, "{name} is not known"),
        (GOOD | {"login": FORM | {"fields": {"u": 1}}}, "is not understood"),
        ({"login": FORM}, "there is no secret"),
        (GOOD | {"login": {"json": "https://shop.test/"}}, "it has no body"),
        (GOOD | {"login": {"json": "https://shop.test/", "body": {}, "header": "A: {token}"}}, "has no token"),
        (
            GOOD | {"login": {"json": "https://shop.test/", "body": {}, "token": "t", "header": "A: b"}},
            "where the token goes",
        ),
        (GOOD | {"login": {"browser": "https://shop.test/", "steps": ["jump"]}}, "is not an action"),
        (GOOD | {"login": {"browser": "https://shop.test/"}}, "steps"),
        (GOOD | {"login": {"browser": "https://shop.test/", "steps": ["fill #a = {pass}"]}}, "{pass} is not known"),
        (GOOD | {"check": {"status": "401"}}, "is not understood"),
        (GOOD | {"check": {"status": [99]}}, "is not understood"),
        (GOOD | {"check": {"present": "[["}}, "is not a selector"),
        (GOOD | {"check": {"url": "https://evil.test/"}}, "evil.test is not among its hosts"),
        (GOOD | {"check": {"missing": ".a"}}, "'missing' is not known"),
    ],
)
def test_what_cannot_be_is_said_with_where_it_stands(value: Any, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(value)
    assert words in str(refused.value)
    assert str(refused.value).startswith("shoal.toml: sessions: shop")
    assert refused.value.hint


@pytest.mark.parametrize("name", ["", "Shop", "a b", "-a", "a" * 25, "ä", "a:b"])
def test_names_that_no_session_has(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a session"):
        read(GOOD, name)


def test_a_bound_secret_is_not_declared_for_another_host() -> None:
    assert read(GOOD, bound=("shop.test",)).secret_hosts == ("shop.test",)
    with pytest.raises(UsageError, match="the secret shop is not for"):
        read(GOOD, bound=("elsewhere.test",))


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(UsageError, match="fewer than 16 letters") as refused:
        load({"session_key": "secret"}, env={})
    assert "openssl rand -hex 32" in refused.value.hint
    assert "k3y" not in repr(load({}, env={"SHOAL_SESSION_KEY": "k3y-of-all-sessions"}))


def test_a_secret_is_filled_in_once_and_as_it_is() -> None:
    assert filled_in("{user}/{password}", "{password}:a{user}:b") == "{password}/a{user}:b"
    assert filled_in("{user}|{password}", "t0ken") == "|t0ken"
    assert filled_in_json({"a": ["{user}", 1], "b": None}, 'x:"y') == {"a": ["x", 1], "b": None}


def test_a_step_with_a_secret_does_not_show_it() -> None:
    steps = steps_with_secret(("fill #u = {user}", "fill #q = shoes"), "ada:love", ("shop.test",))
    assert [str(step) for step in steps] == ["fill #u = …", "fill #q = shoes"]
    assert (steps[0].text, steps[0].only_at) == ("ada", ("shop.test",))
    assert read_step({"fill": "#a", "with": "b"}).only_at == ()
