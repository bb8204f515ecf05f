from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.core.task import RequestOptions
from shoal.core.url import UrlNormalizer, request_digest, resolve
from shoal.core.url_shape import ShapeCounter
from shoal.errors import InvalidUrl
from shoal.extract.links import AdmittedLinks, JudgedLinks, LinkFilter, SeenLinks, is_trap
from shoal.extract.page import Follow
from shoal.sources.start_task import start_task, start_tasks

URL = "http://h.example/a/b.html"


class Gate(LinkFilter):
    """A gate that counts what it asks."""

    def __init__(self, *, max_depth: int | None = None, cache_size: int = 200_000, **rules: Any) -> None:
        self.asked: list[str] = []
        super().__init__(self.scoped, max_depth, self.allowed, cache_size, **rules)

    def scoped(self, lane: str) -> bool:
        self.asked.append(lane)
        return lane in ("h.example", "o.example", "127.0.0.1:8000")

    def allowed(self, lane: str, url: str) -> bool | None:
        return None if "unknown" in url else "private" not in url

    def see(self, *hrefs: str, base: str = URL, depth: int = 0, commit: bool = True, **rest: Any) -> AdmittedLinks:
        follows = (Follow(hrefs, base, **rest),)
        found = self.admit(follows, depth=depth, parent=5, origin_url=base)
        if commit:
            self.mark_committed(found.tasks)
        return found


def urls(found: AdmittedLinks) -> list[str]:
    return [task.url for task in found.tasks]


def test_new_links_become_tasks() -> None:
    (task,) = Gate().see("/x?y", depth=2, meta={"k": 1}, priority=3).tasks
    assert task.url == "http://h.example/x?y"
    assert task.lane == "h.example"
    assert task.digest == request_digest(task.url)
    assert (task.depth, task.parent, task.meta, task.priority) == (3, 5, {"k": 1}, 3)


def test_links_come_once_per_page_and_never_to_the_page_itself() -> None:
    gate = Gate()
    found = gate.see("/x", "/x#y", "http://H.example/x", "../x", "b.html", URL, "#top", "", "/z", commit=False)
    assert urls(found) == ["http://h.example/x", "http://h.example/z"]
    assert found.skipped == ()
    many = [Follow(("/x",), URL), Follow(("/x",), URL, {"other": 1}), Follow(("/y",), URL)]
    assert len(gate.admit(many, depth=0, parent=None, origin_url=URL).tasks) == 2


@pytest.mark.parametrize("first", ["/x", "../x", "http://h.example/x", "//h.example/x", "/x#f", "/./x", "/%78"])
@pytest.mark.parametrize("again", ["/x", "../x", "http://h.example/x", "//h.example/x", "/x#f", "/./x", "/%78"])
def test_a_committed_link_is_known_in_every_spelling(first: str, again: str) -> None:
    gate = Gate()
    assert len(gate.see(first).tasks) == 1
    for _ in range(3):
        assert gate.see(again) == AdmittedLinks()


def test_a_link_is_known_only_once_its_settle_was_acknowledged() -> None:
    gate = Gate()
    assert len(gate.see("/x", commit=False).tasks) == 1
    assert len(gate.see("/x", commit=True).tasks) == 1
    assert gate.see("/x") == AdmittedLinks()


def test_known_links_cost_no_judgement() -> None:
    gate = Gate()
    links = ("/x", "y.html", "../z", "http://o.example/o", "http://bad.example/", "mailto:a@b.example", "#top")
    gate.see(*links)
    gate.see(*links)
    gate.asked.clear()
    assert gate.see(*links) == AdmittedLinks()
    assert gate.asked == []


@pytest.mark.parametrize(
    ("href", "reason", "shown"),
    [
        ("http://bad.example/x", "scope", "http://bad.example/x"),
        ("http://h.example:81/", "scope", "http://h.example:81/"),
        ("/private/x", "robots", "http://h.example/private/x"),
        ("http://[bad", "invalid", "http://[bad"),
        ("http://user:secret@h.example/", "invalid", "http://h.example/"),
        ("/" + "a" * 2001, "trap", "http://h.example/" + "a" * 2001),
        ("/a/b/a/b/a/b/a/b/a/b/a/b", "trap", "http://h.example/a/b/a/b/a/b/a/b/a/b/a/b"),
        ("x" * 9000, "invalid", "x" * 200),
    ],
)
def test_a_refused_link_is_reported_once_with_its_reason(href: str, reason: str, shown: str) -> None:
    gate = Gate()
    assert gate.see(href) == AdmittedLinks((), ((reason, shown),))
    assert gate.see(href) == AdmittedLinks()


@pytest.mark.parametrize("href", ["mailto:x@y.example", "javascript:void(0)", "tel:1", "data:,x", "#top", "", " ", "#"])
def test_what_is_no_page_is_not_counted_as_refused(href: str) -> None:
    gate = Gate()
    assert gate.see(href) == AdmittedLinks()
    assert gate.see(href) == AdmittedLinks()


def test_a_link_whose_robots_rules_are_not_known_yet_is_admitted() -> None:
    assert len(Gate().see("/unknown").tasks) == 1


def test_depth_is_a_limit_of_the_way_and_not_of_the_link() -> None:
    gate = Gate(max_depth=2)
    assert gate.see("/x", depth=2) == AdmittedLinks((), (("depth", "http://h.example/x"),))
    assert gate.see("/x", depth=2) == AdmittedLinks()
    assert [task.depth for task in gate.see("/x", depth=1).tasks] == [2]
    assert gate.see("/x", depth=2) == AdmittedLinks()
    assert len(Gate(max_depth=None).see("/x", depth=1000).tasks) == 1
    assert Gate(max_depth=0).see("/x", depth=0).skipped == (("depth", "http://h.example/x"),)


@pytest.mark.parametrize(
    ("path", "trap"),
    [
        ("/", False),
        ("/a/a/a/a/a", False),
        ("/a/a/a/a/a/a", True),
        ("/x/a/y/a/z/a/b/a/c/a/d/a", True),
        ("//////", True),
        ("/" + "/".join(map(str, range(30))), False),
        ("/" + "/".join(map(str, range(31))), True),
        ("/" + "a" * 1999, False),
        ("/" + "a" * 2000, True),
        ("/x?" + "a/" * 2000, False),
    ],
)
def test_mazes_are_known_by_their_paths(path: str, trap: bool) -> None:
    assert is_trap("http://h.example" + path) is trap


ODD = [
    "/x", "x", "./x", "../x", "../../x", "..//x", "//x", "///x", "/\\x", "\\x", "../\\x", "../\t/x", " x",
    "/ x", "?x", "x?x", "/a/?x", "#x", "/x#x", "/a/x", "x:x", "/x:x", "http:x", "http:/x", "http://h.example/x",
    "http://o.example/x", "//o.example/x", "//h.example/a/x", "http://h.example//x", "/a//x", "..", ".", "",
    "http://h.example//o.example/x", "/a/http://h.example/x", "%78", "/%78", "/a/%2e%2e/x", "é", "mailto:x",
    "/a/../x", "x/../x", "//", "/",
]  # fmt: skip
WHERE = [
    "http://h.example/", "http://h.example/a/b.html", "http://h.example//", "http://h.example//o.example/y",
    "http://o.example/a/", "http://h.example/a/b/?x", "http://127.0.0.1:8000/a/b/c/d",
]  # fmt: skip


def visit(where: int, *links: str) -> tuple[str, list[str], bool]:
    return WHERE[where], list(links), True


visits = st.lists(
    st.tuples(st.sampled_from(WHERE), st.lists(st.sampled_from(ODD), max_size=6), st.booleans()), max_size=12
)


@settings(max_examples=400, deadline=None)
@given(visits, st.sampled_from([4, 40, 200_000]))
@example([visit(0, "//o.example/x")] * 3 + [visit(2, "o.example/x")], 200_000)
@example([visit(0, "http://h.example//o.example/x"), visit(0, "//o.example/x")], 200_000)
@example([visit(0, "/ x")] * 3 + [visit(0, " x")], 200_000)
@example([visit(1, "/a/?x"), visit(1, "?x")], 200_000)
@example([visit(1, "?x", "http:x")] * 3 + [visit(5, "?x", "http:x")], 200_000)
@example([visit(1, "x")] * 3 + [visit(0, "x")], 200_000)
@example([visit(1, "%78")] * 3 + [visit(0, "%78")], 200_000)
def test_no_link_is_ever_dropped_that_was_not_committed(pages: list[tuple[str, list[str], bool]], size: int) -> None:
    gate = Gate(cache_size=size)
    committed: set[str] = set()
    for base, links, commit in pages:
        found = gate.see(*links, base=base, commit=commit)
        leads = {url for href in links if (url := resolve(base, href)) and url != base}
        wanted = {url for url in leads if url.split("/")[2] in ("h.example", "o.example", "127.0.0.1:8000")}
        admitted = set(urls(found))
        assert len(admitted) == len(found.tasks)
        assert admitted <= wanted
        assert wanted - committed <= admitted
        if commit:
            committed |= admitted


def test_the_memory_is_bounded_and_keeps_the_newer_half() -> None:
    memory = SeenLinks(100)
    for number in range(10_000):
        memory.add("shelf", f"/{number}")
        assert len(memory) <= 100
    assert memory.has("shelf", "/9999")
    assert memory.unseen("shelf", ["/9999", "/9960", "/1", "/new"]) == {"/1", "/new"}
    for number in range(10_000):
        memory.add(f"shelf {number}", "/")
        assert len(memory) <= 100
    memory = SeenLinks(100)
    for number in range(1_000):
        memory.add("shelf", f"/{number}" + "long" * 1000)
        assert len(memory) <= 6


def test_judged_links_are_bounded_however_many_and_long_they_are() -> None:
    judged = JudgedLinks(100)
    for number in range(1_000):
        judged.add("http://h.example/", {f"/{number}"})
        assert len(judged.of("http://h.example/")) <= 100
    assert "/999" in judged.of("http://h.example/") and not judged.of("http://o.example/")
    judged.add("http://o.example/", {"/" + "long" * 10_000})
    assert not judged.of("http://h.example/")


def test_start_urls_become_tasks_once_and_bad_ones_are_named() -> None:
    tasks, rejected = start_tasks(
        ["HTTP://H.example", "http://h.example/#x", "h.example", "ftp://x/", "https://h.example:8/"]
    )
    assert [(task.url, task.lane, task.depth, task.parent) for task in tasks] == [
        ("http://h.example/", "h.example", 0, None),
        ("https://h.example:8/", "h.example:8", 0, None),
    ]
    assert tasks[0].digest == request_digest("http://h.example/")
    assert [line for line, _ in rejected] == ["h.example", "ftp://x/"]
    assert all(reason for _, reason in rejected)


def test_a_pages_own_host_is_in_scope_wherever_a_redirect_led() -> None:
    gate = LinkFilter(lambda lane: lane == "example.com", None, lambda lane, url: None)
    at_home = Follow(("http://www.example.com/a", "/b"), "http://example.com/", None, 0)
    found = gate.admit([at_home], depth=0, parent=1, origin_url="http://example.com/")
    assert [task.url for task in found.tasks] == ["http://example.com/b"]
    assert found.skipped == (("scope", "http://www.example.com/a"),)
    moved = Follow(("/a", "http://other.example/c"), "http://www.example.com/", None, 0)
    found = gate.admit([moved], depth=0, parent=1, origin_url="http://www.example.com/")
    assert [task.url for task in found.tasks] == ["http://www.example.com/a"]
    assert found.skipped == (("scope", "http://other.example/c"),)


def test_links_that_rewriting_makes_one_are_one_task() -> None:
    gate = Gate(rewrite=UrlNormalizer(sort_query=True, drop_tracking=True))
    found = gate.see("/x?b=1&a=2", "/x?a=2&b=1&utm_source=y", "../x;jsessionid=1?a=2&b=1", "/y?gclid=1")
    assert urls(found) == ["http://h.example/x?a=2&b=1", "http://h.example/y"]
    for again in ("/x?a=2&b=1", "/x?b=1&a=2", "http://h.example/x?fbclid=1&b=1&a=2", "/y", "/y?utm_medium=1"):
        assert gate.see(again) == AdmittedLinks()
    gate.asked.clear()
    assert gate.see("/x?b=1&a=2") == AdmittedLinks()
    assert gate.asked == []


def test_a_page_does_not_link_to_itself_in_another_spelling() -> None:
    gate = Gate(rewrite=UrlNormalizer(drop_tracking=True))
    moved = "http://h.example/x?utm_source=a"
    assert gate.see("?utm_source=b", "/x", base=moved) == AdmittedLinks()


def test_a_rewrite_with_nothing_to_do_changes_nothing() -> None:
    assert urls(Gate(rewrite=UrlNormalizer()).see("/x?utm_source=1")) == ["http://h.example/x?utm_source=1"]


def test_links_that_patterns_keep_out_are_reported_once_however_they_are_written() -> None:
    gate = Gate(allow=lambda url: "/print/" not in url)
    assert gate.see("../print/x", "/x").skipped == (("scope", "http://h.example/print/x"),)
    for again in ("../print/x", "/print/x", "http://h.example/print/x", "//h.example/print/x"):
        assert gate.see(again) == AdmittedLinks()


def test_more_of_one_shape_than_allowed_is_a_trap() -> None:
    gate = Gate(shapes=ShapeCounter(2))
    found = gate.see("/day/1", "/day/2", "/day/3", "/about")
    assert urls(found) == ["http://h.example/day/1", "http://h.example/day/2", "http://h.example/about"]
    assert found.skipped == (("trap", "http://h.example/day/3"),)
    assert gate.see("/day/1", "/day/3", "/day/4") == AdmittedLinks((), (("trap", "http://h.example/day/4"),))


def test_only_links_that_become_tasks_are_counted_by_shape() -> None:
    gate = Gate(shapes=ShapeCounter(2), max_depth=1)
    for _ in range(5):
        gate.see("/day/1", "/private/1", "http://bad.example/1", "/a/1#b")
    assert gate.see("/deep/1", "/deep/2", "/deep/3", depth=1).skipped[-1][0] == "depth"
    assert len(gate.see("/deep/1", "/deep/2").tasks) == 2
    assert len(gate.see("/day/2").tasks) == 1
    assert gate.see("/day/3").skipped == (("trap", "http://h.example/day/3"),)


POST = RequestOptions(method="POST", body=b"q=1")


def test_an_ask_makes_another_task_of_the_same_url() -> None:
    gate = Gate()
    (plain,) = gate.see("/search").tasks
    (asked,) = gate.see("/search", request_options=POST).tasks
    assert asked.request_options == POST
    assert asked.url == plain.url
    assert asked.digest == request_digest(asked.url, POST) != plain.digest
    assert len(gate.see("/search", request_options=RequestOptions(method="POST", body=b"q=2")).tasks) == 1
    assert len(gate.see("b.html", request_options=POST).tasks) == 1, "a form may well lead to its own page"


def test_what_was_asked_for_specially_is_not_known_as_a_plain_page() -> None:
    gate = Gate()
    for href in ("/search", "http://h.example/search", "../search"):
        gate.see(href, request_options=POST)
        assert gate.see(href, request_options=POST) == AdmittedLinks()
    assert len(gate.see("/search").tasks) == 1


def test_the_same_ask_comes_once_per_page_and_is_known_once_committed() -> None:
    gate = Gate()
    assert len(gate.see("/s", "/s", "/s#x", "../s", request_options=POST, commit=False).tasks) == 1
    assert len(gate.see("/s", request_options=POST).tasks) == 1
    assert gate.see("/s", request_options=POST) == AdmittedLinks()


def test_asks_are_judged_like_other_links() -> None:
    gate = Gate(max_depth=2, shapes=ShapeCounter(1))
    hrefs = ("/private/x", "http://bad.example/", "http://[bad", "mailto:x", "/a/1", "/a/2")
    found = gate.see(*hrefs, request_options=POST)
    assert urls(found) == ["http://h.example/a/1"]
    assert [reason for reason, _ in found.skipped] == ["robots", "scope", "invalid", "trap"]
    assert gate.see("/b", request_options=POST, depth=2).skipped == (("depth", "http://h.example/b"),)
    assert gate.see("/private/x") == AdmittedLinks(), "refused is refused, however it is asked for"


@pytest.mark.parametrize(
    ("line", "url"),
    [
        (" http://h.example/a ", "http://h.example/a"),
        ("\ufeffhttp://h.example/a\u00a0\u200b", "http://h.example/a"),
        ("http://h.example/a b", "http://h.example/a%20b"),
        ("HTTP://H.example:80/?utm_source=x&b&a#c", "http://h.example/?a&b"),
    ],
)
def test_a_line_becomes_a_task(line: str, url: str) -> None:
    task = start_task(line, rewrite=UrlNormalizer(True, True), meta={"row": 1})
    assert (task.url, task.lane, task.digest) == (url, "h.example", request_digest(url))
    assert (task.parent, task.depth, task.meta, task.request_options) == (None, 0, {"row": 1}, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "empty"),
        ("\u200b", "empty"),
        ("hello world", "not a URL"),
        ("h.example/a", "no http:// or https://"),
        ("ftp://h.example/", "ftp: is not http or https"),
        ("http://", "no host"),
        ("http://h.example:99999/", "port 99999 does not exist"),
        ("http://h exam.ple/", "its host contains a space"),
        ("http://a.example/ http://b.example/", "several URLs on one line"),
        ("http://a.example/\thttps://b.example/", "several URLs on one line"),
        ("http://user:pass@h.example/", "carries a user name or password"),
        ("http://h.example/" + "a" * 9000, "9,017 characters long, at most 8,192 are allowed"),
    ],
)
def test_a_line_that_is_no_url_is_refused_in_a_few_words(line: str, reason: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        start_task(line)
    assert str(caught.value) == reason
    assert caught.value.hint
    assert start_tasks([line]) == ([], [(line, reason)])


def test_start_urls_that_rewriting_makes_one_are_one_task() -> None:
    tasks, rejected = start_tasks(
        ["http://h.example/?utm_source=a", "http://h.example/"], rewrite=UrlNormalizer(drop_tracking=True)
    )
    assert [task.url for task in tasks] == ["http://h.example/"]
    assert rejected == []


SPELT = [
    "/x", "../x", "x", "/x?b&a", "/x?a&b", "?b&a", "/x?gclid=1", "?gclid=1", "/x;jsessionid=1", "/",
    "x;jsessionid=1", "/a/", "/a/b.html", "b.html?utm_x", "/x?utm_x&b&a#c", "http://o.example/x?b&a",
    "//o.example/x?gclid=1", "/(S(a1))/x", "http://h.example//(S(a1))//x", "/a/;jsessionid=1",
    ";jsessionid=1", "..;jsessionid=1",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(WHERE),
            st.lists(st.sampled_from(SPELT), max_size=6),
            st.sampled_from([None, None, POST, RequestOptions(session="s")]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.sampled_from([4, 200_000]),
)
def test_nor_is_it_by_rewriting_or_by_what_was_asked_for_specially(
    pages: list[tuple[str, list[str], RequestOptions | None, bool]], size: int
) -> None:
    rewrite = UrlNormalizer(sort_query=True, drop_tracking=True)
    gate = Gate(cache_size=size, rewrite=rewrite)
    committed: set[bytes] = set()
    for base, links, request_options, commit in pages:
        found = {
            task.digest for task in gate.see(*links, base=base, request_options=request_options, commit=commit).tasks
        }
        leads = {rewrite(url) for href in links if (url := resolve(base, href))}
        if request_options is None:
            leads -= {base, rewrite(base)}
        wanted = {request_digest(url, request_options) for url in leads}
        assert wanted - committed <= found <= wanted
        if commit:
            committed |= found


def test_links_to_pages_without_a_handler_are_told_once_and_can_still_be_followed() -> None:
    gate = Gate()
    links = ["http://h.example/about", "http://elsewhere.example/", "http://o.example/x", URL]
    told = (("no_handler", "http://h.example/about"), ("no_handler", "http://o.example/x"))
    assert gate.note_unhandled(links, origin_url=URL) == told
    assert gate.note_unhandled(links, origin_url=URL) == ()
    assert urls(gate.see("/about")) == ["http://h.example/about"]  # a handler asked for it
