"""The URL code against the test data of the URL Standard, on the string path and on the parser's."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from shoal.core import url as url_module
from shoal.core.url import MAX_LENGTH, Resolver, UrlNormalizer, canonical, host_of, lane_of, path_of, problem
from shoal.core.url_shape import shape_of
from shoal.errors import InvalidUrl

DATA = Path(__file__).parents[1] / "data" / "wpt-url"
WEB = ("http://", "https://")
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"


def load(name: str) -> list[dict[str, Any]]:
    return [case for case in json.loads((DATA / name).read_text("utf-8")) if isinstance(case, dict)]


CASES = load("urltestdata.json") + load("urltestdata-javascript-only.json")
HOSTS = [case for name in ("toascii.json", "IdnaTestV2.json") for case in load(name) if case["input"]]


def ours(href: str | None) -> str | None:
    """What our canonical form makes of an answer of the standard."""
    if href is None or not href.startswith(WEB):
        return None
    url = href.partition("#")[0]
    if "@" in url.split("/")[2]:
        return None
    if re.search("%(?![0-9A-Fa-f]{2})", url):
        return url
    first, *rest = url.split("%")
    for part in rest:
        char = chr(int(part[:2], 16))
        first += (char if char in UNRESERVED else "%" + part[:2].upper()) + part[2:]
    return first


def ascii_host_as_it_is(text: str) -> str | None:
    """The rule that is newer than the data: a host in ASCII need not decode."""
    found = re.fullmatch(r"(https?)://([0-9A-Za-z.=*-]*xn--[0-9A-Za-z.=*-]*)/?", text, re.IGNORECASE)
    return f"{found[1].lower()}://{found[2].lower()}/" if found else None


def expected(case: dict[str, Any]) -> str | None:
    if case.get("failure"):
        return ascii_host_as_it_is(case["input"])
    return ours(case["href"])


def answer(text: str) -> str | None:
    try:
        return canonical(text)
    except InvalidUrl:
        return None


def by_parser(text: str) -> str | None:
    head, mark, _ = text.partition("#")
    return url_module._fetchable(url_module._read(head + mark))


def link_by_parser(resolver: Resolver, href: str) -> str | None:
    head, mark, _ = href.partition("#")
    return resolver._parsed(head, mark)


def on_page(base: str) -> bool:
    return base.startswith(WEB) and "@" not in base


def same_page(href: str) -> bool:
    return not href.partition("#")[0].strip("".join(map(chr, range(33))))


def name(case: dict[str, Any]) -> str:
    return ascii(case["input"])[:60]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_url_means_what_the_standard_says(case: dict[str, Any]) -> None:
    text, base = case["input"], case.get("base") or ""
    if on_page(base):
        resolver = Resolver(base)
        # A link to the page itself leads nowhere new; everything else is as in the standard.
        assert resolver.resolve(text) == (None if same_page(text) else expected(case))
        assert resolver.resolve(text) == link_by_parser(resolver, text)
    elif "@" not in base:
        assert answer(text) == expected(case)
    assert answer(text) == by_parser(text)
    assert bool(problem(text)) is (answer(text) is None)


def test_the_data_is_there_and_both_paths_are_taken() -> None:
    assert len(CASES) > 850
    assert len(HOSTS) > 2_700
    answers = [url for case in CASES if (url := expected(case))]
    plain = [url for url in answers if url_module._plain_absolute(url) and "/." not in url]
    assert len(plain) > 100
    assert len(answers) - len(plain) > 50


@pytest.mark.parametrize("url", sorted({url for case in CASES if (url := expected(case))}), ids=ascii)
def test_every_way_to_write_an_answer_leads_to_it(url: str) -> None:
    assert canonical(url) == url
    root = url[: len(url) - len(path_of(url))]
    for base in (root + "/", root + "/x/y?z", "https://other.example/a/b"):
        resolver = Resolver(base)
        assert resolver.resolve(url) == url
        assert resolver.resolve(url + "#x") == url
        if base.startswith(root) and path_of(url)[1:2] != "/":
            for href in (path_of(url), ".." + path_of(url), "../.." + path_of(url)):
                assert resolver.resolve(href) == url == resolver._parsed(href)
        if url.startswith("https:"):
            assert resolver.resolve(url[6:]) == (url if base.startswith("https:") else "http:" + url[6:])


def test_host_names_become_ascii_as_the_standard_says() -> None:
    wrong = []
    for case in HOSTS:
        text, want = f"https://{case['input']}/x", case["output"]
        url = f"https://{want}/x" if want is not None else None
        if want is None and re.fullmatch(r"[!-~]*xn--[!-~]*", text, re.I) and "%" not in text:
            url = text.lower()
        if answer(text) != url or answer(text) != by_parser(text):
            wrong.append((case["input"], answer(text), url))
    assert wrong == []


PIECES = [
    "/", "//", "\\", "..", ".", "%2e", "%", "%41", "%zz", "?", "&", "=", "#", " #", "@", ":", ":80", ";",
    "::1", ";jsessionid=1", "utm_source=1", "&b&a", "sid=0123456789abcdef", "http:", "https://", "xn--", "é",
    " ", "\t", "\n", "\0", "[", "]", "1", "0x7f.1", "|", "^", "\ud800", "ß", "。", "/(S(a1))", "a",
]  # fmt: skip


def mutants(count: int) -> list[str]:
    """Inputs of the data with something put in, taken out, doubled or spliced to another."""
    dice = random.Random(20_240)
    inputs = [case["input"] for case in CASES]
    found = []
    for _ in range(count):
        text = dice.choice(inputs)
        for _ in range(dice.randint(1, 4)):
            at, to = sorted((dice.randint(0, len(text)), dice.randint(0, len(text))))
            change = dice.choice(("put", "put", "drop", "double", "splice"))
            if change == "put":
                text = text[:at] + dice.choice(PIECES) + text[at:]
            elif change == "drop":
                text = text[:at] + text[min(to, at + 5) :]
            elif change == "double":
                text = text[:to] + text[at:to] + text[to:]
            else:
                other = dice.choice(inputs)
                text = text[:at] + other[dice.randint(0, len(other)) :]
        found.append(text[: MAX_LENGTH + 100])
    return found


REWRITES = [UrlNormalizer(sort_query=True), UrlNormalizer(drop_tracking=True), UrlNormalizer(True, True)]
BASES = [Resolver(base) for base in ("http://h.example/a/b;c?d", "https://h.example:8443//x/", "http://[::1]/%2F")]


def check_canonical(url: str) -> None:
    assert canonical(url) == url
    assert url == url[: url.index("/") + 2] + lane_of(url) + path_of(url)
    assert lane_of(url).startswith(host_of(url))
    assert shape_of(url).startswith(lane_of(url) + "/")
    for rewrite in REWRITES:
        changed = rewrite(url)
        assert canonical(changed) == changed == rewrite(changed)
        assert lane_of(changed) == lane_of(url)


def test_no_mutant_of_the_data_gets_a_wrong_answer() -> None:
    good = 0
    for text in mutants(4_000):
        url = answer(text)
        assert url == (by_parser(text)), ascii(text)
        assert bool(problem(text)) is (url is None)
        for resolver in BASES:
            link = resolver.resolve(text)
            assert link == link_by_parser(resolver, text), ascii(text)
            if link is not None:
                check_canonical(link)
                good += 1
    assert good > 4_000
