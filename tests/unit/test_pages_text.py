"""What pages do to text from elsewhere, where they lead, and how deeds are told as commands and calls."""

from __future__ import annotations

import shlex

import pytest

from shoal.web.pages.action_forms import local_path
from shoal.web.pages.actions import PAGE_ACTIONS
from shoal.web.pages.render import environment, percent, query, rate, segment
from shoal.web.pages.text import printable, safe_link, shorten, shorten_middle


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("übergroß 東京 🐟", "übergroß 東京 🐟"),
        ("a\u202eb", "a‹U+202E›b"),
        ("a\u2066b\u2069", "a‹U+2066›b‹U+2069›"),
        ("a\x00b\x1b[31m", "a␀b␛[31m"),
        ("zero\u200bwidth\ufeff", "zero‹U+200B›width‹U+FEFF›"),
        ("half \ud800", "half ‹U+D800›"),
        ("family 👩\u200d👧", "family 👩\u200d👧"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(given: str, shown: str) -> None:
    assert printable(given) == shown
    assert printable(given).encode()  # a page can hold it


@pytest.mark.parametrize(
    ("url", "linked"),
    [
        ("https://a.example/x?y=1#z", True),
        ("http://127.0.0.1:8000/", True),
        ("javascript:alert(1)", False),
        ("JavaScript:alert(1)", False),
        ("data:text/html,<script>", False),
        ("vbscript:x", False),
        ("//a.example/", False),
        ("/runs", False),
        ("https://", False),
        ("https://a.example/\n", False),
        (" https://a.example/", False),
        ("https://a.example/\u202e", False),
        ("https://[::1", False),
        ("ftp://a.example/", False),
        ("", False),
    ],
)
def test_only_web_urls_are_linked_to(url: str, linked: bool) -> None:
    assert bool(safe_link(url)) is linked


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:x",
        "",
        "runs",
        "/a\nb",
        "/" + "x" * 9000,
    ],
)
def test_nobody_is_led_away(path: str) -> None:
    assert local_path(path) == "/"


@pytest.mark.parametrize("path", ["/", "/runs?state=running", "/runs/a%2Fb/tasks?url=https://x.example/*"])
def test_own_paths_are_kept(path: str) -> None:
    assert local_path(path) == path


def test_long_texts_are_cut_with_a_mark() -> None:
    assert shorten("x" * 500, 10) == "x" * 9 + "…"
    assert shorten("a  b\n c") == "a b c"
    assert shorten_middle("https://shop.example/" + "a" * 200 + "/end", 40).endswith("/end")
    assert len(shorten_middle("y" * 500, 40)) == 40


@pytest.mark.parametrize("about", ["plain", "it's; rm -rf /", "$(x)", "a b{0}{about}", "--all"])
@pytest.mark.parametrize("name", PAGE_ACTIONS)
def test_commands_and_calls_hold_names_as_names(name: str, about: str) -> None:
    form = PAGE_ACTIONS[name].form(about, {"cause": about, "host": "h.example", "run": about})
    for text in (form["cli"], form["curl"]):
        words = shlex.split(text)
        assert ";" not in words and not any(word.startswith("rm") for word in words)
    if form["cli"] and not name.startswith("scale."):  # there is one scaler, and it has no name
        assert any(about in word for word in shlex.split(form["cli"]))


def test_templates_escape_what_they_are_given() -> None:
    made = environment().from_string("<a title='{{ x }}'>{{ x|printable }}{{ x|shorten }}</a>").render(x="'\"><script>")
    assert "<script>" not in made and "'>" not in made.removeprefix("<a title='").partition("'>")[0]


@pytest.mark.parametrize(
    ("some", "of", "words"), [(0, 0, "–"), (1, 3, "33 %"), (1, 1000, "0.1 %"), (999, 1000, "99.9 %"), (5, 5, "100 %")]
)
def test_shares(some: int, of: int, words: str) -> None:
    assert percent(some, of) == words


def test_small_words_of_pages() -> None:
    assert [rate(n) for n in (0, 0.25, 9.24, 12.34, 593.4, 12_345)] == ["0", "0.25", "9.24", "12.3", "593", "12,345"]
    assert query(state="", host="a b", after=0) == "?host=a+b"
    assert segment("a/b c") == "a%2Fb%20c"
