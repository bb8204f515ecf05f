"""HostBlocks: twelve walls are found and twelve kinds of odd pages are not taken for one, as a table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from shoal.core.block_page import CONTENT_AFTER, MIN_URLS
from shoal.core.host_blocks import (
    MAX_BLOCK_PAGES,
    MAX_USUAL,
    NEW_SITE,
    BlockDocument,
    HostBlocks,
    Judgement,
    read_document,
)
from shoal.core.page_print import likeness, look_at, text_hash, title_hash
from shoal.core.usual_page import PageSeen

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

from walled.pages import ODD, WALLS, Answer, Wall, good

SITE = "http://shop.test"
HTTP, BROWSER = ("http", "direct"), ("browser", "direct")
OWN_PATHS = {"empty_category": "/category", "print_version": "/print", "contact": "/contact", "login_page": "/account"}
USUAL_PAGES = 40
# From the first page there is nothing to compare with: it has a title of its own each time, as good pages have.
NOT_AT_FIRST = {"consent_with_title"}


class Visitor:
    """Somebody who reads the shop's pages: their heading, price and text, and follows their links."""

    def __init__(self, blocks: HostBlocks | None = None) -> None:
        self.blocks = blocks or HostBlocks()
        self.now = 1_000
        self.requests = 0

    def usual(self, number: int = USUAL_PAGES) -> None:
        for one in range(1, number + 1):
            assert self.visit(f"/product/{one}").verdict == "good"

    def visit(self, path: str, wall: Wall | None = None, odd: str = "", way: tuple[str, str] = HTTP) -> Judgement:
        self.now += 1
        self.requests += 1
        answer, final = self._answer(path, wall, odd)
        seen = page_seen(SITE + path, answer.body, text_hash(SITE + final) if final != path else 0)
        return self.blocks.judge("shop", SITE + path, seen, way, lambda: look_at(answer.body), self.now)

    def _answer(self, path: str, wall: Wall | None, odd: str) -> tuple[Answer, str]:
        answer = wall(path, self.requests) if wall is not None else ODD[odd](path) if odd else good(path)
        if answer.status != 302 or wall is None:
            return answer, path
        final = answer.headers["location"].partition("?")[0]
        return wall(final, self.requests), final


def page_seen(url: str, body: bytes, landed: int = 0) -> PageSeen:
    text = body.decode()
    fields = [
        re.search(r"<h1>(.*?)</h1>", text), re.search(r'class="?price"?>', text), re.search(r'class="?text"?>', text)
    ]  # fmt: skip
    links = set(re.findall(r'<li class="(?:related|item)"><a href="([^"]+)"', text))
    filled = (1 + sum(map(bool, fields))) / 4  # its URL is always there
    return PageSeen(text_hash(url), len(body), title_hash(body), landed, 1, len(links), filled)


@pytest.mark.parametrize("name", WALLS)
def test_a_wall_is_found_and_nothing_of_it_is_taken(name: str) -> None:
    visitor = Visitor()
    visitor.usual()
    paths = [f"/product/{number}" for number in range(41, 71)]
    verdicts = [visitor.visit(path, WALLS[name]).verdict for path in paths]
    assert "good" not in verdicts
    # Whatever is not decided is asked for again; three pages by turns take three times as long.
    assert verdicts.index("block") <= 3 * (MIN_URLS - 1)
    assert {visitor.visit(path, WALLS[name]).verdict for path in paths} == {"block"}
    assert {visitor.visit(path).verdict for path in paths} == {"good"}, "the way back"


@pytest.mark.parametrize("name", [name for name in WALLS if name not in NOT_AT_FIRST])
def test_a_wall_from_the_first_page_is_found(name: str) -> None:
    visitor = Visitor()
    verdicts = [visitor.visit(f"/product/{number}", WALLS[name]).verdict for number in range(1, 41)]
    assert set(verdicts[-20:]) == {"block"}
    assert verdicts.count("good") <= 2 * 3, "of each page that comes by turns"


@pytest.mark.parametrize("name", ODD)
def test_odd_pages_count_in_the_end(name: str) -> None:
    visitor = Visitor()
    visitor.usual()
    for number in range(1, 9):
        visitor.visit(f"/category/{number}")
    waiting = [f"{OWN_PATHS.get(name, '/product')}/{number}" for number in range(200, 230)]
    asked = 0
    for round in range(4):
        again = []
        for number, path in enumerate(waiting):
            asked += 1
            if visitor.visit(path, odd=name).verdict != "good":
                again.append(path)
            if name != "redesigned":  # then there are no others
                assert visitor.visit(f"/product/{1000 * (round + 1) + number}").verdict == "good"
        waiting = again
    assert not waiting
    assert asked <= 30 * (2 if name == "not_found" else 1) + NEW_SITE


def test_the_same_answer_under_many_urls_is_what_is_at_them_if_others_are_fine_meanwhile() -> None:
    visitor = Visitor()
    visitor.usual()
    paths = [f"/product/{number}" for number in range(200, 206)]
    for path in paths:
        visitor.visit(path, odd="not_found")
        visitor.visit(path.replace("/2", "/9"))
    assert visitor.blocks.pages[0].status() == "block"
    for path in paths[1 : CONTENT_AFTER + 2]:
        visitor.visit(path.replace("/2", "/8"))
        last = visitor.visit(path, odd="not_found").verdict
    assert visitor.blocks.pages[0].status() == "content"
    assert last == "good"


def test_a_login_page_that_stays_at_its_urls_stays_a_block() -> None:
    visitor = Visitor()
    visitor.usual()
    for _ in range(3):
        for number in range(200, 206):
            verdict = visitor.visit(f"/product/{number}", WALLS["login_redirect"]).verdict
            visitor.visit(f"/product/{number + 100}")
    assert verdict == "block"
    assert visitor.blocks.pages[0].is_for_good


def test_a_wall_for_some_requests_is_not_what_is_at_their_urls() -> None:
    visitor = Visitor()
    visitor.usual()
    for round in range(4):
        for number in range(200, 220):
            visitor.visit(f"/product/{number}", WALLS["challenge"] if (number + round) % 3 == 0 else None)
    assert visitor.blocks.pages[0].status() == "block"


def test_pages_that_are_odd_in_one_way_alone_count_at_once() -> None:
    visitor = Visitor()
    visitor.usual()
    for name in ("short_article", "sold_out", "very_long", "with_video", "other_language"):
        assert visitor.visit(f"/product/{300 + len(name)}", odd=name).verdict == "good", name


def test_blocks_are_counted_by_fetcher_and_exit() -> None:
    visitor = Visitor()
    visitor.usual()
    for number in range(50, 60):
        visitor.visit(f"/product/{number}", WALLS["captcha"])
        visitor.visit(f"/product/{number}", way=BROWSER)
    document = visitor.blocks.added_to(BlockDocument())
    counted = {(way.fetcher, way.exit): (way.pages, way.blocked) for way in document.ways}
    assert counted == {HTTP: (USUAL_PAGES + 10, 8), BROWSER: (10, 0)}
    assert visitor.blocks.streaks == {HTTP: 8}


def test_what_one_process_has_seen_counts_for_the_others() -> None:
    first, second = Visitor(), Visitor()
    first.usual()
    stored = first.blocks.added_to(BlockDocument())
    first.blocks.adopt(stored, is_saved=True)
    second.blocks.adopt(stored)
    # Each sees two URLs, and tokens in them differ: together they are enough.
    for visitor, numbers in ((first, (50, 51)), (second, (60, 61))):
        for number in numbers:
            assert visitor.visit(f"/product/{number}", WALLS["challenge"]).verdict == "odd"
        stored = visitor.blocks.added_to(stored)
        visitor.blocks.adopt(stored, is_saved=True)
    assert len(stored.pages) == 1
    assert second.visit("/product/70", WALLS["challenge"]).verdict == "block"
    first.blocks.adopt(stored)
    assert first.visit("/product/71", WALLS["challenge"]).verdict == "block"


def test_nothing_is_counted_twice_however_often_it_is_shared() -> None:
    visitor, stored = Visitor(), BlockDocument()
    visitor.usual(10)
    for _ in range(3):
        stored = visitor.blocks.added_to(stored)
        visitor.blocks.adopt(stored, is_saved=True)
    assert [(way.pages, way.blocked) for way in stored.ways] == [(10, 0)]


def test_what_is_kept_of_a_host_is_bounded() -> None:
    visitor = Visitor()
    visitor.usual()
    for number in range(400):
        path = f"/{'abcdefghijklmnopqrst'[number % 20]}{'uvwxyz'[number % 6]}/{number}"
        body = f"<html><title>t{number}</title><form>{'<p>' + 'x' * number}</form></html>".encode()
        seen = page_seen(SITE + path, body)
        visitor.blocks.judge("shop", SITE + path, seen, HTTP, lambda body=body: look_at(body), number)  # type: ignore[misc]
    document = visitor.blocks.added_to(BlockDocument())
    assert len(document.pages) <= MAX_BLOCK_PAGES
    assert len(document.usual) <= MAX_USUAL
    assert len(msgspec.json.encode(document)) < 200_000


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pages": 3}', '{"pages": [{"id": -1}]}', "x" * 300_000])
def test_a_document_that_somebody_else_wrote_is_no_more_than_empty(text: str) -> None:
    assert read_document(text) == BlockDocument()


def test_a_person_who_says_that_it_is_no_block_is_believed() -> None:
    visitor = Visitor()
    visitor.usual()
    for number in range(50, 56):
        visitor.visit(f"/product/{number}", WALLS["captcha"])
    stored = visitor.blocks.added_to(BlockDocument())
    stored.pages[0].is_content = True
    visitor.blocks.adopt(stored)
    assert visitor.visit("/product/57", WALLS["captcha"]).verdict == "good"


def test_pages_are_compared_by_their_tags_and_not_by_what_changes_in_them() -> None:
    one, other = (look_at(WALLS["captcha"]("/product/1", number).body) for number in (1, 2))
    assert likeness(one.sketch, other.sketch) == 1.0
    one, other = (look_at(good(f"/product/{number}").body) for number in (1, 2))
    assert 0.1 < likeness(one.sketch, other.sketch) < 0.8
