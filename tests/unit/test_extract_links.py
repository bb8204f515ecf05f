from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.core.url import request_digest, resolve
from shoal.extract.links import Found, LinkGate, Memory, is_trap, start_tasks
from shoal.extract.page import Follow

URL = "http://h.example/a/b.html"


class Gate(LinkGate):
    """A gate that counts what it asks."""

    def __init__(self, *, max_depth: int | None = None, cache_size: int = 200_000) -> None:
        self.asked: list[str] = []
        super().__init__(self.scoped, max_depth, self.allowed, cache_size)

    def scoped(self, lane: str) -> bool:
        self.asked.append(lane)
        return lane in ("h.example", "o.example", "127.0.0.1:8000")

    def allowed(self, lane: str, url: str) -> bool | None:
        return None if "unknown" in url else "private" not in url

    def see(self, *hrefs: str, base: str = URL, depth: int = 0, commit: bool = True, **rest: Any) -> Found:
        follows = (Follow(hrefs, base, **rest),)
        found = self.admit(follows, depth=depth, parent=5, origin_url=base)
        if commit:
            self.committed(found.tasks)
        return found


def urls(found: Found) -> list[str]:
    return [task.url for task in found.tasks]


def test_new_links_become_tasks() -> None:
    (task,) = Gate().see("/x?y", depth=2, meta={"k": 1}, priority=3).tasks
    assert task.url == "http://h.example/x?y"
    assert task.lane == "h.example"
    assert task.digest == request_digest(task.url)
    assert (task.depth, task.parent, task.meta, task.priority) == (3, 5, {"k": 1}, 3)


def test_links_come_once_per_page_and_never_to_the_page_itself() -> None:
    gate = Gate()
    found = gate.see(
        "/x", "/x#y", "http://H.example/x", "../x", "b.html", URL, "#top", "", "/z", commit=False
    )
    assert urls(found) == ["http://h.example/x", "http://h.example/z"]
    assert found.skipped == ()
    many = [Follow(("/x",), URL), Follow(("/x",), URL, {"other": 1}), Follow(("/y",), URL)]
    assert len(gate.admit(many, depth=0, parent=None, origin_url=URL).tasks) == 2


@pytest.mark.parametrize(
    "first", ["/x", "../x", "http://h.example/x", "//h.example/x", "/x#f", "/./x", "/%78"]
)
@pytest.mark.parametrize(
    "again", ["/x", "../x", "http://h.example/x", "//h.example/x", "/x#f", "/./x", "/%78"]
)
def test_a_committed_link_is_known_in_every_spelling(first: str, again: str) -> None:
    gate = Gate()
    assert len(gate.see(first).tasks) == 1
    for _ in range(3):
        assert gate.see(again) == Found()


def test_a_link_is_known_only_once_its_settle_was_acknowledged() -> None:
    gate = Gate()
    assert len(gate.see("/x", commit=False).tasks) == 1
    assert len(gate.see("/x", commit=True).tasks) == 1
    assert gate.see("/x") == Found()


def test_known_links_cost_no_judgement() -> None:
    gate = Gate()
    links = (
        "/x",
        "y.html",
        "../z",
        "http://o.example/o",
        "http://bad.example/",
        "mailto:a@b.example",
        "#top",
    )
    gate.see(*links)
    gate.see(*links)
    gate.asked.clear()
    assert gate.see(*links) == Found()
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
    assert gate.see(href) == Found((), ((reason, shown),))
    assert gate.see(href) == Found()


@pytest.mark.parametrize(
    "href", ["mailto:x@y.example", "javascript:void(0)", "tel:1", "data:,x", "#top", "", " ", "#"]
)
def test_what_is_no_page_is_not_counted_as_refused(href: str) -> None:
    gate = Gate()
    assert gate.see(href) == Found()
    assert gate.see(href) == Found()


def test_a_link_whose_robots_rules_are_not_known_yet_is_admitted() -> None:
    assert len(Gate().see("/unknown").tasks) == 1


def test_depth_is_a_limit_of_the_way_and_not_of_the_link() -> None:
    gate = Gate(max_depth=2)
    assert gate.see("/x", depth=2) == Found((), (("depth", "http://h.example/x"),))
    assert gate.see("/x", depth=2) == Found()
    assert [task.depth for task in gate.see("/x", depth=1).tasks] == [2]
    assert gate.see("/x", depth=2) == Found()
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
@example([visit(1, "%78")] * 3 + [visit(0, "%78")], 200_000)
def test_no_link_is_ever_dropped_that_was_not_committed(
    pages: list[tuple[str, list[str], bool]], size: int
) -> None:
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
    memory = Memory(100)
    for number in range(10_000):
        memory.add("shelf", f"/{number}")
        assert len(memory) <= 100
    assert memory.has("shelf", "/9999")
    assert memory.unknown("shelf", ["/9999", "/9960", "/1", "/new"]) == {"/1", "/new"}
    for number in range(10_000):
        memory.add(f"shelf {number}", "/")
        assert len(memory) <= 100
    memory = Memory(100)
    for number in range(1_000):
        memory.add("shelf", f"/{number}" + "long" * 1000)
        assert len(memory) <= 6


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
    gate = LinkGate(lambda lane: lane == "example.com", None, lambda lane, url: None)
    at_home = Follow(("http://www.example.com/a", "/b"), "http://example.com/", None, 0)
    found = gate.admit([at_home], depth=0, parent=1, origin_url="http://example.com/")
    assert [task.url for task in found.tasks] == ["http://example.com/b"]
    assert found.skipped == (("scope", "http://www.example.com/a"),)
    moved = Follow(("/a", "http://other.example/c"), "http://www.example.com/", None, 0)
    found = gate.admit([moved], depth=0, parent=1, origin_url="http://www.example.com/")
    assert [task.url for task in found.tasks] == ["http://www.example.com/a"]
    assert found.skipped == (("scope", "http://other.example/c"),)
