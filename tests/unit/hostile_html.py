"""HTML that is made to stop a parser: by depth, by attributes, or by formatting elements."""

from __future__ import annotations

from collections.abc import Callable


def repeated(unit: str, then: str = "") -> Callable[[int], bytes]:
    """`unit` over and over; with `then`, only for the first half."""

    def make(size: int) -> bytes:
        if not then:
            return (unit * (size // len(unit))).encode()
        half = size // 2
        return (unit * (half // len(unit)) + then * (half // len(then))).encode()

    return make


def counted(unit: str, before: str = "", after: str = "", then: str = "") -> Callable[[int], bytes]:
    """`unit` with a number in it."""

    def make(size: int) -> bytes:
        room = (size // 2 if then else size) - len(before) - len(after)
        parts, length = [before], 0
        while length < room:
            parts.append(unit % len(parts))
            length += len(parts[-1])
        return ("".join(parts) + after + then * (size // 2 // len(then) if then else 0)).encode()

    return make


_TWENTY = " ".join(f"a{n}" for n in range(20))

SLOW = {
    "nested divs": repeated("<div>"),
    "nested lists": repeated("<ul><li>"),
    "nested definitions": repeated("<dl><dd>"),
    "deep, then wrong ends": repeated("<div>", "</p>"),
    "deep in svg, then wrong ends": repeated("<svg><g>", "</x>"),
    "deep, then rules": repeated("<div>", "<hr>"),
    "deep ruby": repeated("<div>", "<rt>"),
    "links in links": repeated("<a><div>"),
    "attributes of one tag": counted(" a%x", "<p", ">"),
    "attributes parted by slashes": counted("a%x/", "<p ", ">"),
    "attributes with quoted ends": counted('a%x=">"', "<p ", ">"),
    "attributes of many formatting tags": counted(f"<b {_TWENTY} x=%d>"),
    "attributes of many html tags": counted(
        "<html " + " ".join(f"a{n}x%d" for n in range(20)).replace("%d", "", 19) + ">"
    ),
}
LARGE = {
    "formatting made anew": counted("<p><b a=%d></p>"),
    "formatting, then paragraphs": counted("<b %x>", "<p>", then="<p>x"),
    "fonts in paragraphs": counted("<font a=%d><p>x"),
}
