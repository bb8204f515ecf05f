"""robots.txt as RFC 9309 has it, as tables: which group is ours, and what its rules say of a path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.politeness import robots_group as module
from shoal.politeness.robots_group import MAX_FILE_SIZE, RobotsGroup, parse_group, product_token
from shoal.politeness.robots_rules import MAX_WILDCARD_RULES, RobotsRules


def allows(text: str | bytes, path: str, agent: str = "shoal") -> bool:
    body = text.encode() if isinstance(text, str) else text
    return RobotsRules(parse_group(body, agent).rules).allows(path)


NO = "Disallow: /x\n"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (f"User-agent: shoal\n{NO}", False),
        (f"User-agent: SHOAL\n{NO}", False),
        (f"USER-AGENT: Shoal/2.0 (bot)\n{NO}", False),
        (f"User-agent: shoal*\n{NO}", False),
        (f"User-agent: *\n{NO}", False),
        (f"User-agent: * # all of you\n{NO}", False),
        (f"User-agent: other\n{NO}", True),
        (f"User-agent: shoals\n{NO}", True),
        (f"User-agent: sho\n{NO}", True),
        (f"User-agent:\n{NO}", True),
        (NO, True),  # rules before any group belong to nobody
        (f"User-agent: *\n{NO}User-agent: shoal\nDisallow: /y\n", True),
        (f"User-agent: shoal\nDisallow: /y\n\nUser-agent: *\n{NO}", True),
        (f"User-agent: shoal\nDisallow:\n\nUser-agent: *\n{NO}", True),
        (f"User-agent: shoal\nDisallow: /y\nUser-agent: other\nAllow: /\nUser-agent: shoal\n{NO}", False),
        (f"User-agent: *\nDisallow: /y\n\nUser-agent: *\n{NO}", False),
        (f"User-agent: other\nUser-agent: shoal\n{NO}", False),
        (f"User-agent: shoal\nUser-agent: other\n{NO}", False),
        (f"User-agent: shoal\n\n\nUser-agent: other\n\n{NO}", False),
        (f"User-agent: shoal\n\nUser-agent: *\n{NO}", False),
        (f"User-agent: shoal\nSitemap: http://a.test/s.xml\nUser-agent: other\n{NO}", False),
        (f"User-agent: shoal\nFoo: bar\nwhat is this\nUser-agent: other\n{NO}", False),
        (f"User-agent: shoal\nSitemap: /s.xml\n{NO}", False),
        (f"User-agent: shoal\nCrawl-delay: 1\nUser-agent: other\n{NO}", True),
        (f"User-agent: shoal\nAllow:\nUser-agent: other\n{NO}", True),
    ],
)
def test_the_groups_that_name_us_count_and_are_merged(text: str, allowed: bool) -> None:
    assert allows(text, "/x") is allowed


@pytest.mark.parametrize(
    ("agent", "name", "ours"),
    [
        ("newsbot", "newsbot", True),
        ("newsbot-images", "newsbot", True),
        ("newsbot-images", "newsbot-images", True),
        ("newsbot_images", "newsbot", True),
        ("newsbot", "newsbot-images", False),
        ("newsbots", "newsbot", False),
    ],
)
def test_a_name_also_speaks_to_its_branches(agent: str, name: str, ours: bool) -> None:
    assert allows(f"User-agent: {name}\n{NO}", "/x", agent) is not ours


def test_the_longest_name_is_the_one_that_counts() -> None:
    text = f"User-agent: a-b\nAllow: /x\nUser-agent: a\n{NO}User-agent: *\nDisallow: /\n"
    assert allows(text, "/x", "a-b-c")
    assert allows(text, "/z", "a-b-c")
    assert not allows(text, "/x", "a-c")
    assert not allows(text, "/z", "b")


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("shoal/0.1", "shoal"),
        ("Shoal", "shoal"),
        ("books-research (+https://example.org/bot)", "books-research"),
        ("archive.org_bot/2", "archive.org_bot"),
        ("Mozilla/5.0 (compatible; NiceBot/1.0; +http://nice.test)", "nicebot"),
        ("Mozilla/5.0 (X11; Linux) Firefox/1", "mozilla"),
        ("", ""),
        ("(nobody)", ""),
        ("été/1", ""),
    ],
)
def test_product_token(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token
    assert not allows(f"User-agent: *\n{NO}", "/x", token)
    assert allows(f"User-agent: elsebot\n{NO}", "/x", token)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n",
        b"User-agent: *\r\nDisallow: /x\r\n",
        b"User-agent: *\rDisallow: /x\r",
        b"User-agent: *\n\rDisallow: /x",
        b"User-agent:*\nDisallow:/x",
        b" \t user-AGENT \t : \t * \t \n \t DISALLOW \t : \t /x \t ",
        b"User-agent: * # us\nDisallow: /x # that\n",
        b"User-agent: *\n# Disallow: nothing\nDisallow: /x#y\n",
        b"User-agent *\nDisallow /x\n",
        b"Useragent: *\nDissallow: /x\n",
        b"User agent: *\nDisalow: /x\n",
        b"User-agent: *\nDisallow: x\n",
        b"User-agent: *\nDisallow: http://site.test/x\n",
        b"User-agent: *\nAllow: \nDisallow: /x\n",
        b"User-agent: *\nNoindex: /z\nDisallow: /x\n",
        b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /x\n",
        b"User-agent: *\n\x00\nDisallow: /x\n\x00\x00",
        b"User-agent: *\nDisallow: /x\x0b\n",
        b"User-agent: *\nDisallow: /x*\n",
        b"User-agent: *\nDisallow: /x***\n",
        b"User-agent: *\nDisallow: /x*$\n",
        b"User-agent: *\nDisallow: *x\n",
        b"<!doctype html>\n<pre>\nUser-agent: *\nDisallow: /x\n</pre>",
    ],
)
def test_every_way_to_write_it(text: bytes) -> None:
    assert not allows(text, "/x")
    assert allows(text, "/y")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00" * 1000,
        b"\xff\xfe\x00",
        b"<html><body>Disallow: everything</body></html>",
        b"User-agent: *\nDisallow:\n",
        b"User-agent: *\nDisallow: # nothing\n",
        b"User-agent: *\nAllow: /\n",
        b"User-agent: *\n# Disallow: /x\n",
        b"User-agent: *\nDisallow\n",
        b"User-agent: *\nDis\x00allow: /x\n",
        b"User-agent: *\nDisallowed: /x\n",
        b"#User-agent: *\nDisallow: /x\n",
        b"User-agent: *",
    ],
)
def test_what_says_nothing_allows_everything(text: bytes) -> None:
    assert allows(text, "/x")


# A pattern, a path, whether the pattern matches it.
MATCHES = [
    ("/", "/", True),
    ("/", "/a?b", True),
    ("/fish", "/fish", True),
    ("/fish", "/fish.html", True),
    ("/fish", "/fish/salmon.html", True),
    ("/fish", "/fishheads/yummy.html", True),
    ("/fish", "/fish?id=anything", True),
    ("/fish", "/Fish.asp", False),
    ("/fish", "/catfish", False),
    ("/fish", "/desert/fish", False),
    ("/fish", "/fis", False),
    ("/fish/", "/fish", False),
    ("/fish/", "/fish/", True),
    ("/*.php", "/index.php", True),
    ("/*.php", "/folder/file.php?p=1", True),
    ("/*.php", "/file.php5", True),
    ("/*.php", "/", False),
    ("/*.php", "/windows.PHP", False),
    ("/*.php$", "/file.php", True),
    ("/*.php$", "/file.php?p=1", False),
    ("/*.php$", "/file.php/", False),
    ("/*.php$", "/.php.php", True),
    ("/fish*.php", "/fish.php", True),
    ("/fish*.php", "/fishheads/catfish.php?p=1", True),
    ("/fish*.php", "/Fish.PHP", False),
    ("*", "/anything", True),
    ("*/b", "/a/b", True),
    ("/a*b*c", "/a-b-c", True),
    ("/a*b*c", "/abc", True),
    ("/a*b*c", "/acb", False),
    ("/a*ab", "/ab", False),
    ("/a*ab", "/aab", True),
    ("/*aab", "/aaab", True),
    ("/a*a$", "/a", False),
    ("/a*a$", "/aa", True),
    ("/a*bc*bc$", "/abc", False),
    ("/a*bc*bc$", "/abcbc", True),
    ("/a**b", "/axb", True),
    ("/x$", "/x", True),
    ("/x$", "/x/", False),
    ("/x$", "/x?", False),
    ("/$", "/", True),
    ("/$", "/a", False),
    ("$", "/", True),
    ("/a$b", "/a$b", True),
    ("/a$b", "/a", False),
    ("/a$*b", "/a$xb", True),
    ("/x%24", "/x$", True),
    ("/x%24", "/x", False),
    ("/x%24$", "/x$", True),
    ("/file-with-a-%2A.html", "/file-with-a-*.html", True),
    ("/file-with-a-%2A.html", "/file-with-a-%2a.html", True),
    ("/file-with-a-%2A.html", "/file-with-a-b.html", False),
    ("/*%2A$", "/a*", True),
    ("/*%2A$", "/a", False),
    ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
    ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", True),
    ("/foo/bar?baz=https%3a%2f%2ffoo.bar", "/foo/bar?baz=https://foo.bar", True),
    ("/*=https%3A%2F%2F", "/a?b=https%3A%2F%2Fc", True),
    ("/foo/bar/ツ", "/foo/bar/%E3%83%84", True),
    ("/foo/bar/%E3%83%84", "/foo/bar/ツ", True),
    ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", True),
    ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
    ("/foo/bar/baz", "/foo/bar/%62%61%7A", True),
    ("/*/%E3%83%84$", "/a/ツ", True),
    ("/%7Ejoe/", "/~joe/index.html", True),
    ("/~joe/", "/%7ejoe/index.html", True),
    ("/a b", "/a%20b", True),
    ("/a|b", "/a%7Cb", True),
    ("/a%20b", "/a b", True),
    ("/a%25b", "/a%25b", True),
    ("/a%25b", "/a%b", False),
    ("/100%", "/100%", True),
    ("/100%2", "/100%2", True),
    ("/à", "/%C3%A0", True),
    ("/robots.txt", "/robots.txt", False),  # always allowed
    ("/robots.txt", "/robots.txt?", True),
]


@pytest.mark.parametrize(("pattern", "path", "matches"), MATCHES)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert allows(f"User-agent: *\nDisallow: {pattern}\n", path) is not matches
    if matches:
        assert allows(f"User-agent: *\nDisallow: {pattern}\nAllow: {pattern}\n", path)


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("Disallow: /\nAllow: /p", "/page", True),
        ("Allow: /p\nDisallow: /", "/page", True),
        ("Allow: /folder\nDisallow: /folder", "/folder/page", True),
        ("Disallow: /folder\nAllow: /folder", "/folder/page", True),
        ("Allow: /page\nDisallow: /*.htm", "/page.htm", False),
        ("Allow: /page\nDisallow: /*.ph", "/page.php5", True),
        ("Allow: /$\nDisallow: /", "/", True),
        ("Allow: /$\nDisallow: /", "/page.htm", False),
        ("Allow: /x\nDisallow: /x$", "/x", False),
        ("Allow: /*x$\nDisallow: /abx", "/abx", True),
        ("Allow: /a*c\nDisallow: /abc", "/abc", True),
        ("Allow: /a*\nDisallow: /a", "/abc", True),
        ("Disallow: /a*\nAllow: /a", "/abc", True),
        ("Disallow: /a/b/c\nAllow: /a/b\nDisallow: /a", "/a/b/x", True),
        ("Disallow: /a/b/c\nAllow: /a/b\nDisallow: /a", "/a/b/cc", False),
        ("Disallow: /a/b/c\nAllow: /a/b\nDisallow: /a", "/a/c", False),
        ("Disallow: /a/b/c\nAllow: /a/b\nDisallow: /a", "/b", True),
        ("Disallow: /*a\nAllow: /*aa\nDisallow: /*aaa", "/xaa", True),
        ("Disallow: /*a\nAllow: /*aa\nDisallow: /*aaa", "/xaaa", False),
        ("Disallow: /%61%61%61\nAllow: /aaaa", "/aaaa", True),
    ],
)
def test_the_longest_match_decides_and_allowing_wins_a_tie(rules: str, path: str, allowed: bool) -> None:
    assert allows(f"User-agent: *\n{rules}\n", path) is allowed


@pytest.mark.parametrize(
    ("lines", "delay"),
    [
        ("Crawl-delay: 2", 2.0),
        ("crawl-delay:.5", 0.5),
        ("Crawl-delay: 0", 0.0),
        ("Crawl delay: 3. # seconds", 3.0),
        ("Crawl-delay: 1\nCrawl-delay: 4\nCrawl-delay: 2", 4.0),
        ("Crawl-delay: 1e9", None),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: inf", None),
        ("Crawl-delay: ٣", None),
        ("Crawl-delay:", None),
        ("Crawl-delay: 999999999", module.MAX_CRAWL_DELAY),
        ("Crawl-delay: " + "9" * 1000, None),
        ("Request-rate: 1/10", 10.0),
        ("Request-rate: 1/10s", 10.0),
        ("Request-rate: 30/1m 0600-0845", 2.0),
        ("Request-rate: 1/1h", module.MAX_CRAWL_DELAY),
        ("Request-rate: 0/5", None),
        ("Request-rate: 5/0", None),
        ("Request-rate: 5", None),
        ("Request-rate: 1/10\nCrawl-delay: 20", 20.0),
        ("Disallow: /x", None),
    ],
)
def test_crawl_delay_and_request_rate(lines: str, delay: float | None) -> None:
    assert parse_group(f"User-agent: *\n{lines}\n".encode(), "shoal").crawl_delay == delay
    assert parse_group(f"User-agent: other\n{lines}\n".encode(), "shoal").crawl_delay is None


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 5])
def test_a_line_that_the_limit_cuts_is_dropped(ending: bytes, beyond: int) -> None:
    rule = b"Disallow: /x/y"
    head = b"User-agent: *" + ending
    filler = b"#" * (MAX_FILE_SIZE - len(head) - len(ending) - len(rule) + beyond) + ending
    cut = head + filler + rule + ending + b"Disallow: /z" + ending
    assert allows(cut, "/x/y") is (beyond > 0)
    assert allows(cut, "/z")
    assert parse_group(cut.removesuffix(ending + b"Disallow: /z" + ending), "shoal") == RobotsGroup(
        () if beyond > 0 else ((False, b"/x/y"),)
    )


def test_rules_beyond_ten_thousand_do_not_count() -> None:
    lines = [f"Disallow: /{n}." for n in range(module.MAX_RULES + 5)]
    text = "\n".join(["User-agent: *", *lines])
    assert not allows(text, f"/{module.MAX_RULES - 1}.")
    assert allows(text, f"/{module.MAX_RULES}.")
    wild = "\n".join(["User-agent: *", *(f"Disallow: /*x{n}y" for n in range(MAX_WILDCARD_RULES + 5))])
    assert not allows(wild, f"/x{MAX_WILDCARD_RULES - 1}y")
    assert allows(wild, f"/x{MAX_WILDCARD_RULES}y")


def naively(rules: list[tuple[bool, str]], path: str) -> bool:
    """The rules as one would write them on a slate: try all, take the longest."""
    best = (0, True)
    for allowed, pattern in rules:
        anchored = pattern.endswith("$")
        body = re.sub(r"\*+", "*", pattern.removesuffix("$"))
        if body.endswith("*"):
            body, anchored = body[:-1], False
        made = ".*".join(re.escape(piece) for piece in body.split("*"))
        if re.match(made + ("$" if anchored else ""), path, re.DOTALL):
            best = max(best, (len(body) + anchored, allowed))
    return best[1]


SHORT = st.text("a*", max_size=4) | st.text("ab*/", max_size=8)
PATTERNS = st.builds("/{}{}".format, SHORT, st.sampled_from(["", "", "$"]))
PATHS = (st.text("a", max_size=4) | st.text("ab/", max_size=12)).map("/".__add__)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.booleans(), PATTERNS), max_size=40), PATHS)
def test_the_index_agrees_with_trying_every_rule(rules: list[tuple[bool, str]], path: str) -> None:
    assert RobotsRules([(allowed, text.encode()) for allowed, text in rules]).allows(path) is naively(rules, path)


@given(st.binary() | st.text("user-agent:dislow */$%2A\n\r\t#").map(str.encode), st.text(max_size=50))
def test_any_bytes_can_be_read_and_any_path_judged(body: bytes, path: str) -> None:
    group = parse_group(b"User-agent: *\nDisallow: " + body, "shoal")
    assert RobotsRules(group.rules).allows("/" + path) in (True, False)
