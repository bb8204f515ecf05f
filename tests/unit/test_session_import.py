"""Cookies that browsers export: three formats, and files that are none of them. No message holds a value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.core.session_options import SessionOptions
from shoal.errors import UsageError
from shoal.fetch.cookies import Cookie
from shoal.fetch.sessions.exported import read_exported
from shoal.fetch.sessions.identity import Identity, IdentityValues, storage_within, with_news
from shoal.fetch.sessions.seal import SealBroken, SessionSeal

NOW = 1_000_000_000.0
LATER = NOW + 1000
SHOP = SessionOptions("shop", ("www.shop.test", "*.api.shop.test:8443"))


def cookie(**more: Any) -> dict[str, Any]:
    return {"name": "sid", "value": "s3cret", "domain": ".shop.test", "path": "/"} | more


def as_json(*cookies: Any, **more: Any) -> bytes:
    return json.dumps({"cookies": list(cookies)} | more if more else list(cookies)).encode()


GOOD = Cookie("sid", "s3cret", "shop.test", "/", False, True, LATER, 0)


@pytest.mark.parametrize(
    "data",
    [
        f"# Netscape HTTP Cookie File\n\n.shop.test\tTRUE\t/\tTRUE\t{LATER:.0f}\tsid\ts3cret\n".encode(),
        f"#HttpOnly_.shop.test\ttrue\t/\ttrue\t{LATER:.0f}\tsid\ts3cret\r\n".encode(),
        as_json(cookie(hostOnly=False, secure=True, expirationDate=LATER, session=False, sameSite="lax")),
        as_json(cookie(secure=True, expires=LATER, httpOnly=True, sameSite="Lax"), origins=[]),
        b"\xef\xbb\xbf" + as_json(cookie(secure=True, expires=str(LATER))),
    ],
    ids=["netscape", "http-only", "extension", "playwright", "bom"],
)
def test_each_format_gives_the_same_cookie(data: bytes) -> None:
    assert read_exported(data, NOW).cookies == (GOOD,)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe\x00", "is not text"),
        (b"\x00" * 6_000_000, "more than 5,000,000 bytes"),
        (b"# only a comment\n", "there are no cookies"),
        (b"[]", "there are no cookies"),
        (b'{"cookies": []}', "there are no cookies"),
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": 1}', "has no cookies"),
        (b'{"cookies": {}}', "is not a list"),
        (b'{"cookies": [], "origins": {}}', "is not a list"),
        (b"[1]", "cookie 1: not an object"),
        (b"member=s3cret", "line 1: not seven columns"),
        (b".a\tTRUE\t/\tFALSE\t0\tn", "line 1: not seven columns"),
        (b".a.test\tyes\t/\tFALSE\t0\tn\ts3cret", "TRUE or FALSE"),
        (b".a.test\tTRUE\t/\tFALSE\tsoon\tn\ts3cret", "line 1: its expiry"),
        (b"a b\tTRUE\t/\tFALSE\t0\tn\ts3cret", "that is not a domain"),
        (b"\tTRUE\t/\tFALSE\t0\tn\ts3cret", "that is not a domain"),
        (b".a.test\tTRUE\tx\tFALSE\t0\tn\ts3cret", "does not begin with /"),
        (b".a.test\tTRUE\t/\tFALSE\t0\t\t", "neither name nor value"),
        (b".a.test\tTRUE\t/\tFALSE\t1\tn\ts3cret", "have expired"),
        (as_json(cookie(value="s3cret\r\nX: y")), "characters that no cookie has"),
        (as_json(cookie(value="s3cret; domain=.test")), "characters that no cookie has"),
        (as_json(cookie(name="a=b")), "characters that no cookie has"),
        (b'[{"name": "a", "value": "\\ud800", "domain": "a.test"}]', "JSON"),
        (as_json(cookie(value="s3cret" * 1000)), "more than 4,096 bytes"),
        (as_json(cookie(value=1)), "are texts"),
        (as_json(cookie(path=None)), "are texts"),
        (as_json(cookie(domain="..")), "that is not a domain"),
        (as_json(cookie(hostOnly="no")), "true or false"),
        (as_json(cookie(secure=1)), "true or false"),
        (as_json(cookie(expires=[])), "its expiry"),
        (as_json(cookie(expires=True)), "its expiry"),
        (as_json(cookie(expires="1e999")), "its expiry"),
        (as_json(*(cookie(name=f"n{n}") for n in range(3_001))), "more than 3,000 cookies"),
        (as_json(cookie(), origins=[1]), "origin 1: not as Playwright writes it"),
        (as_json(cookie(), origins=[{"origin": "https://a", "localStorage": [{"name": 1}]}]), "origin 1"),
    ],
)
def test_a_file_that_is_none_is_refused_without_a_word_of_its_values(data: bytes, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_exported(data, NOW)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value) + refused.value.hint
    assert refused.value.hint


def test_expired_cookies_are_left_out_and_far_ones_kept_within_bounds() -> None:
    found = read_exported(
        as_json(cookie(expires=1), cookie(name="b", expires=NOW * 100), cookie(name="c", expires=-1)), NOW
    )
    assert found.expired == 1
    assert [one.expires for one in found.cookies] == [NOW + 400 * 86_400, None]


def test_only_cookies_that_hosts_of_the_session_may_set_are_taken() -> None:
    names = ["www.shop.test", "shop.test", "x.api.shop.test", "api.shop.test", "evil.test", "www.shop.test.evil.test"]
    values = IdentityValues("i", tuple(Cookie("a", "b", name, "/", False, False, None, 0) for name in names))
    kept = {one.domain for one in Identity(SHOP, values, NOW).all()}
    assert kept == {"www.shop.test", "shop.test", "x.api.shop.test", "api.shop.test"}


def test_nothing_of_an_identity_goes_to_another_host() -> None:
    identity = Identity(SHOP, IdentityValues("i", (GOOD,), (("Authorization", "Bearer t"),)), NOW)
    assert identity.header("https://www.shop.test/a", NOW) == "sid=s3cret"
    assert identity.headers_for("https://www.shop.test/a") == (("Authorization", "Bearer t"),)
    for url in ("https://shop.test/", "https://evil.test/", "https://x.api.shop.test/"):
        assert (identity.header(url, NOW), identity.headers_for(url)) == ("", ())
        identity.store(url, ["sid=planted; domain=shop.test"], NOW)
    assert [one.value for one in identity.all()] == ["s3cret"]
    storage = {"https://www.shop.test": {"t": "1"}, "https://evil.test": {"t": "2"}, "https://x.api.shop.test:8443": {}}
    assert storage_within(storage, SHOP) == {"https://www.shop.test": {"t": "1"}}


def test_news_of_two_workers_are_both_kept() -> None:
    one, other = (Identity(SHOP, IdentityValues("i", (GOOD,)), NOW) for _ in range(2))
    one.store("https://www.shop.test/", ["a=1"], NOW)
    other.store("https://www.shop.test/", ["b=2", "sid=new; domain=shop.test; path=/; secure"], NOW)
    assert not Identity(SHOP, IdentityValues("i", (GOOD,)), NOW).has_news
    values = with_news(with_news(IdentityValues("i", (GOOD,)), one.take_news(), NOW), other.take_news(), NOW)
    assert {it.name: it.value for it in values.cookies} == {"a": "1", "b": "2", "sid": "new"}
    assert not one.has_news


def test_what_is_sealed_is_opened_with_the_same_key_and_for_the_same_session_alone() -> None:
    values = IdentityValues("i", (GOOD,), (("X", "t0ken"),), {"https://www.shop.test": {"t": "1"}})
    seal = SessionSeal("k3y-of-all-sessions")
    text = seal.seal("shop", values)
    assert seal.open("shop", text) == values
    assert "s3cret" not in text
    assert seal.seal("shop", values) != text
    for broken, name, key in [
        (text, "other", "k3y-of-all-sessions"),
        (text, "shop", "another-key-of-sessions"),
        (text[:-8] + "AAAAAAA=", "shop", "k3y-of-all-sessions"),
        ("", "shop", "k3y-of-all-sessions"),
        ("v1.!!", "shop", "k3y-of-all-sessions"),
        ("v1.AAAA", "shop", "k3y-of-all-sessions"),
        (text.removeprefix("v1."), "shop", "k3y-of-all-sessions"),
    ]:
        with pytest.raises(SealBroken) as refused:
            SessionSeal(key).open(name, broken)
        assert "SHOAL_SESSION_KEY" in refused.value.hint
    with pytest.raises(UsageError, match="there is no key"):
        SessionSeal("")
