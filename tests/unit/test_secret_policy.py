"""To which hosts a secret may be shown, and who may ask for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.config.load import Settings
from shoal.control.secret_policy import SecretPolicy, SubmittedAs, host_matches
from shoal.errors import UsageError

SHOP, OTHER = "https://shop.example", "https://evil.example"


@pytest.mark.parametrize(
    ("pattern", "place", "means"),
    [
        ("shop.example", "shop.example", True),
        ("shop.example", "shop.example:8443", True),
        ("shop.example", "www.shop.example", False),
        ("shop.example", "evilshop.example", False),
        ("shop.example", "shop.example.evil.example", False),
        ("*.shop.example", "www.shop.example", True),
        ("*.shop.example", "a.b.shop.example:81", True),
        ("*.shop.example", "shop.example", False),
        ("*.shop.example", "evilshop.example", False),
        ("shop.example:8443", "shop.example:8443", True),
        ("shop.example:8443", "shop.example", False),
        ("[::1]", "[::1]:80", True),
        ("[::1]:81", "[::1]:80", False),
        ("127.0.0.1:80", "127.0.0.1:80", True),
    ],
)
def test_hosts_are_meant_whole(pattern: str, place: str, means: bool) -> None:
    assert host_matches(pattern, place) is means


def secret_policy(
    sent: SubmittedAs = None, *, bound: bool = False, by: str = "--auth", home: tuple[str, ...] = (SHOP,)
) -> SecretPolicy:
    settings = replace(
        Settings(auth="Shop"), secret_hosts={"shop": ("shop.example",)} if bound else {}, sources={"auth": by}
    )
    return SecretPolicy(settings, home, sent)


@pytest.mark.parametrize(
    ("sent", "bound", "by", "home", "why"),
    [
        (None, False, "--auth", (SHOP,), ""),
        (None, True, "--auth", (SHOP,), ""),
        (None, True, "--auth", (SHOP, OTHER), "not for evil.example"),
        ("code", False, "--auth", (SHOP,), ""),
        ("code", False, "scraper books: auth", (SHOP,), ""),
        ("code", False, "run x: auth", (SHOP,), "not bound to a host"),
        ("code", True, "run x: auth", (SHOP,), ""),
        ("code", True, "run x: auth", (OTHER,), "not for evil.example"),
        ("template", False, "run x: auth", (SHOP,), "not bound to a host"),
        ("template", False, "template t: auth", (SHOP,), "not bound to a host"),
        ("template", False, "--auth", (OTHER,), "not bound to a host"),
        ("template", True, "template t: auth", (SHOP,), ""),
        ("template", True, "--auth", (OTHER,), "not for evil.example"),
    ],
)
def test_a_run_of_somebody_else_s_gets_only_what_is_bound(
    sent: SubmittedAs, bound: bool, by: str, home: tuple[str, ...], why: str
) -> None:
    made = secret_policy(sent, bound=bound, by=by, home=home)
    if not why:
        made.check()
        return
    with pytest.raises(UsageError, match=why) as caught:
        made.check()
    assert "[secrets] shop = {" in caught.value.hint and "hosts" in caught.value.hint


@pytest.mark.parametrize(
    ("sent", "bound", "origin", "may"),
    [
        (None, False, OTHER, True),
        (None, True, OTHER, False),
        (None, True, SHOP, True),
        ("code", False, SHOP, True),
        ("code", False, OTHER, False),
        ("template", False, SHOP, False),
        ("template", True, SHOP, True),
        ("template", True, OTHER, False),
    ],
)
def test_what_a_task_asks_for_is_held_to_the_same(sent: SubmittedAs, bound: bool, origin: str, may: bool) -> None:
    assert secret_policy(sent, bound=bound).allows("SHOP", origin) is may
