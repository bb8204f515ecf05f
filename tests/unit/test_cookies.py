"""Which cookies are kept and where they go, as tables."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fetch.cookie_date import parse_cookie_date
from shoal.fetch.cookies import (
    MAX_COOKIE,
    MAX_COOKIES,
    MAX_LIFETIME,
    MAX_PER_DOMAIN,
    MAX_SESSIONS,
    CookieJar,
    CookieJars,
)

NOW = 1_800_000_000.0


def after(line: str, url: str, *, at: str = "https://www.example.com/a/b", now: float = NOW) -> str:
    jar = CookieJar()
    jar.store(at, [line], NOW)
    return jar.header(url, now)


WWW = "https://www.example.com/a/b"
SUB = "https://x.www.example.com/a/b"
OTHER = "https://example.com/a/b"


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("a=1", "a=1"),
        ("a=1;", "a=1"),
        (" a = 1 ; Path=/", "a=1"),
        ("a=b=c", "a=b=c"),
        ("a=", "a="),
        ("=a", "a"),
        ("lonely", "lonely"),
        ("", ""),
        ("=", ""),
        (";Path=/", ""),
        ('a="quo ted"', 'a="quo ted"'),
        ("a=1; Path=/; Path=/zzz", ""),
        ("a=1; SameSite=Strict; HttpOnly; Priority=High", "a=1"),
        ("a=1; UnKnown=x; SECURE", "a=1"),
        ("a=\x07b", ""),
        ("a=b\x00c", ""),
        ("a=b\r\nSet-Cookie: c=d", ""),
        ("a=1; Path=/\x01", ""),
        ("a=\tb\t", "a=b"),
        ("a=é", "a=é"),
        ("a=" + "x" * (MAX_COOKIE - 1), "a=" + "x" * (MAX_COOKIE - 1)),
        ("a=" + "x" * MAX_COOKIE, ""),
        ("a=" + "é" * (MAX_COOKIE // 2), ""),
    ],
)
def test_names_and_values_are_kept_as_they_are_or_not_at_all(line: str, sent: str) -> None:
    assert after(line, WWW) == sent


@pytest.mark.parametrize(
    ("domain", "at", "url", "goes"),
    [
        ("", WWW, WWW, True),
        ("", WWW, SUB, False),
        ("", WWW, OTHER, False),
        ("", WWW, "https://WWW.Example.COM/a/b", True),
        ("example.com", WWW, OTHER, True),
        ("example.com", WWW, SUB, True),
        (".example.com", WWW, OTHER, True),
        ("..example.com", WWW, WWW, False),
        ("EXAMPLE.com", WWW, SUB, True),
        ("www.example.com", WWW, SUB, True),
        ("example.com", WWW, "https://notexample.com/a/b", False),
        ("x.www.example.com", WWW, SUB, False),
        ("other.com", WWW, "https://other.com/a/b", False),
        ("com", WWW, WWW, False),
        (".com", WWW, WWW, False),
        ("co.uk", "https://a.co.uk/a/b", "https://a.co.uk/a/b", False),
        ("github.io", "https://me.github.io/a/b", "https://you.github.io/a/b", False),
        ("github.io", "https://github.io/a/b", "https://github.io/a/b", True),
        ("github.io", "https://github.io/a/b", "https://you.github.io/a/b", False),
        ("localhost", "https://localhost/a/b", "https://localhost/a/b", True),
        ("", "https://10.0.0.1/a/b", "https://10.0.0.1/a/b", True),
        ("10.0.0.1", "https://10.0.0.1/a/b", "https://10.0.0.1/a/b", True),
        ("0.0.1", "https://10.0.0.1/a/b", "https://10.0.0.1/a/b", False),
        ("0.0.1", "https://10.0.0.1/a/b", "https://11.0.0.1/a/b", False),
        ("", "https://[::1]:8/a/b", "https://[::1]:9/a/b", True),
        ("münchen.example.com", "https://xn--mnchen-3ya.example.com/a/b",
         "https://a.xn--mnchen-3ya.example.com/a/b", True),
    ],
)  # fmt: skip
def test_a_domain_reaches_its_subdomains_and_never_beyond_a_public_suffix(
    domain: str, at: str, url: str, goes: bool
) -> None:
    line = f"a=1; Domain={domain}" if domain else "a=1"
    assert after(line, url, at=at) == ("a=1" if goes else "")


@pytest.mark.parametrize(
    ("wanted", "path", "goes"),
    [
        (None, "/a/b", True),
        (None, "/a/", True),
        (None, "/a", True),
        (None, "/ab", False),
        (None, "/", False),
        (None, "/a/c/d", True),
        ("/", "/", True),
        ("/", "/x", True),
        ("/x", "/x", True),
        ("/x", "/x/y", True),
        ("/x", "/xy", False),
        ("/x/", "/x", False),
        ("/x/", "/x/y", True),
        ("x", "/a/b", True),
        ("", "/a/b", True),
        ("/X", "/x", False),
        ("/x", "/x?q=/", True),
    ],
)
def test_a_path_reaches_what_lies_below_it(wanted: str | None, path: str, goes: bool) -> None:
    line = "a=1" if wanted is None else f"a=1; Path={wanted}"
    assert after(line, "https://www.example.com" + path) == ("a=1" if goes else "")


@pytest.mark.parametrize(
    ("line", "seconds", "goes"),
    [
        ("a=1; Max-Age=10", 9, True),
        ("a=1; Max-Age=10", 10, False),
        ("a=1; Max-Age=0", 0, False),
        ("a=1; Max-Age=-1", 0, False),
        ("a=1; Max-Age=1x", 10**6, True),
        ("a=1; Max-Age=" + "9" * 900, 399 * 86400, True),
        ("a=1; Max-Age=" + "9" * 900, 401 * 86400, False),
        ("a=1; Max-Age=-" + "9" * 900, 0, False),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", 0, False),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=10", 5, True),
        ("a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT", 100, True),
        ("a=1; Expires=nonsense", 10**9, True),
        ("a=1", 10**9, True),
    ],
)
def test_cookies_end_when_they_said(line: str, seconds: float, goes: bool) -> None:
    assert after(line, WWW, now=NOW + seconds) == ("a=1" if goes else "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 1445412480),
        ("Wed Oct 21 07:28:00 2015", 1445412480),
        ("21 oct 2015 7:28:0", 1445412480),
        ("2015 October 21st 07:28:00", 1445412480),
        ("07:28:00 21 October 2015 UTC+0200", 1445412480),
        ("Thu, 01-Jan-70 00:00:10 GMT", 10),
        ("Fri, 01-Jan-69 00:00:00 GMT", 3124224000),
        ("01 Jan 1601 00:00:00", -11644473600),
        ("31 Dec 9999 23:59:59", 253402300799),
        ("31 Feb 2015 00:00:00", None),
        ("01 Jan 1600 00:00:00", None),
        ("01 Jan 2015 24:00:00", None),
        ("01 Jan 2015 00:60:00", None),
        ("01 Jan 2015", None),
        ("00:00:00", None),
        ("", None),
        ("1" * 100_000, None),
    ],
)
def test_dates_are_read_in_any_order(text: str, seconds: int | None) -> None:
    assert parse_cookie_date(text) == seconds


DATE_PARTS = st.sampled_from(["31", "feb", "Dec", "1600", "9999", "99", "24:00:00", "23:59:59", "0:0:0", "0", "²", "٣"])


@given(st.text() | st.lists(DATE_PARTS).map(" ".join))
def test_no_text_is_too_odd_for_a_date(text: str) -> None:
    if (found := parse_cookie_date(text)) is not None:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=found)
        assert at.year > 1600 and parse_cookie_date(f"{at:%d %b %Y %H:%M:%S}") == found
    assert parse_cookie_date(f"21 Oct 2015 07:28:00 {text}") == 1445412480, "what follows a date changes nothing"


@pytest.mark.parametrize(
    ("line", "at", "url", "goes"),
    [
        ("a=1; Secure", "https://h.example/", "https://h.example/", True),
        ("a=1; Secure", "https://h.example/", "http://h.example/", False),
        ("a=1; Secure", "http://h.example/", "https://h.example/", False),
        ("__Secure-a=1; Secure", "https://h.example/", "https://h.example/", True),
        ("__Secure-a=1", "https://h.example/", "https://h.example/", False),
        ("__secure-a=1", "https://h.example/", "https://h.example/", False),
        ("__Host-a=1; Secure; Path=/", "https://h.example/", "https://h.example/", True),
        ("__Host-a=1; Secure", "https://h.example/", "https://h.example/", False),
        ("__Host-a=1; Secure; Path=/x", "https://h.example/", "https://h.example/x", False),
        ("__Host-a=1; Secure; Path=/; Domain=h.example", "https://h.example/", "https://h.example/", False),
        ("__Host-a=1; Path=/", "https://h.example/", "https://h.example/", False),
        ("=__Host-a=1; Path=/", "https://h.example/", "https://h.example/", False),
    ],
)
def test_secure_cookies_and_names_that_promise_something(line: str, at: str, url: str, goes: bool) -> None:
    assert bool(after(line, url, at=at)) is goes


def test_a_plain_answer_cannot_replace_or_hide_a_secure_cookie() -> None:
    jar = CookieJar()
    jar.store("https://h.example/", ["a=real; Secure; Path=/"], NOW)
    jar.store("http://h.example/", ["a=fake; Path=/", "b=fine; Path=/"], NOW)
    jar.store("http://h.example/", ["a=fake; Path=/deep"], NOW)
    assert jar.header("https://h.example/deep", NOW) == "a=real; b=fine"
    jar.store("https://h.example/", ["a=new; Path=/"], NOW)
    assert jar.header("http://h.example/", NOW) == "a=new; b=fine"


def test_longer_paths_come_first_then_older_ones_and_a_change_keeps_its_place() -> None:
    jar = CookieJar()
    jar.store("https://h.example/x/y", ["a=1; Path=/", "b=2; Path=/x", "c=3; Path=/"], NOW)
    jar.store("https://h.example/x/y", ["a=9; Path=/"], NOW)
    assert jar.header("https://h.example/x/z", NOW) == "b=2; a=9; c=3"
    jar.store("https://h.example/", ["a=; Path=/; Max-Age=0"], NOW)
    assert jar.header("https://h.example/", NOW) == "c=3"
    assert len(jar) == 2


def test_a_domain_keeps_its_newest_cookies() -> None:
    jar = CookieJar()
    jar.store("https://h.example/", ["short=1; Max-Age=1"], NOW)
    jar.store("https://h.example/", [f"n{n}={n}" for n in range(MAX_PER_DOMAIN)], NOW + 5)
    assert jar.header("https://h.example/", NOW + 5).startswith("n0=0; ")  # the expired one went first
    jar.store("https://h.example/", ["more=1"], NOW + 5)
    assert jar.header("https://h.example/", NOW + 5).startswith("n1=1; ")
    assert len(jar) == MAX_PER_DOMAIN


def test_a_jar_is_bounded_and_the_oldest_go_first() -> None:
    jar = CookieJar()
    for n in range(MAX_COOKIES + 10):
        jar.store(f"https://h{n}.example/", ["a=1"], NOW)
    assert len(jar) == MAX_COOKIES
    assert jar.header("https://h9.example/", NOW) == ""
    assert jar.header("https://h10.example/", NOW) == "a=1"


def test_sessions_are_apart_and_the_least_used_is_forgotten() -> None:
    sessions = CookieJars()
    sessions.jar("").store("https://h.example/", ["a=run"], NOW)
    sessions.jar("one").store("https://h.example/", ["a=one"], NOW)
    assert sessions.jar("empty") is sessions.jar("empty")
    for n in range(MAX_SESSIONS - 2):
        sessions.jar(f"s{n}")
        sessions.jar("one")
    assert sessions.jar("one").header("https://h.example/", NOW) == "a=one"
    for n in range(MAX_SESSIONS):
        sessions.jar(f"t{n}")
    assert sessions.jar("one").header("https://h.example/", NOW) == ""
    assert sessions.jar("").header("https://h.example/", NOW) == "a=run"


def test_the_list_of_public_suffixes_is_read_only_for_a_domain_attribute() -> None:
    program = (
        "import sys; from shoal.fetch.cookies import CookieJar; j = CookieJar();"
        "j.store('https://a.example/', ['a=1'], 0); assert j.header('https://a.example/', 0) == 'a=1';"
        "assert 'publicsuffixlist' not in sys.modules;"
        "j.store('https://a.example/', ['a=1; Domain=example'], 0); assert 'publicsuffixlist' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@given(st.lists(st.text(max_size=40), max_size=5))
def test_no_set_cookie_line_can_break_a_header(lines: list[str]) -> None:
    jar = CookieJar()
    jar.store(WWW, lines, NOW)
    sent = jar.header(WWW, NOW)
    assert not any(sign in sent for sign in "\r\n\0")


@pytest.mark.parametrize(
    "lifetime", ["Expires=Fri, 31 Dec 9999 23:59:59 GMT", f"Max-Age={10**12}", f"Max-Age={10**30}"]
)
def test_no_cookie_outlives_the_longest_lifetime(lifetime: str) -> None:
    line = f"a=1; {lifetime}"
    assert after(line, WWW, now=NOW + MAX_LIFETIME - 1) == "a=1"
    assert after(line, WWW, now=NOW + MAX_LIFETIME + 1) == ""
