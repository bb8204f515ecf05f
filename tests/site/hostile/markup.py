"""Markup: small pages that cost a parser dearly, and large ones."""

from __future__ import annotations

from functools import cache

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, html

group = Group("markup")
HEAVY = "too_complex"
EITHER = "too_complex|done"

PAGES = {
    "deep-divs": (HEAVY, "100,000 elements, one inside the other", lambda: "<div>" * 100_000),
    "deep-spans": (EITHER, "100,000 spans, one inside the other", lambda: "<span>" * 100_000),
    "deep-small": (EITHER, "6,000 elements, one inside the other, in 30 KB", lambda: "<div>" * 6_000),
    "attributes-40000": (HEAVY, "one element with 40,000 attributes", lambda: _attributes(40_000)),
    "attributes-same": (EITHER, "the same attribute 100,000 times", lambda: f"<p {'a=1 ' * 100_000}>"),
    "formatting": (HEAVY, "bold within bold, begun anew in each paragraph", lambda: _formatting(2_000)),
    "formatting-small": (EITHER, "the same in a few KB", lambda: _formatting(200)),
    "adoption": (EITHER, "formatting elements that cross each other", lambda: _crossing(8_000)),
    "open-links": (EITHER, "50,000 links that are never closed", lambda: "<a href=#><div>" * 50_000),
    "tables": (EITHER, "20,000 tables within tables", lambda: "<table><tr><td>" * 20_000),
    "table-misplaced": (EITHER, "text where a table wants rows", lambda: "<table>" + "<b>x" * 20_000),
    "selects": (EITHER, "50,000 selects", lambda: "<select><option>" * 50_000),
    "svg": (EITHER, "50,000 levels of svg", lambda: "<svg><g>" * 25_000),
    "templates": (EITHER, "20,000 templates within templates", lambda: "<template>" * 20_000),
    "angles-2mb": (EITHER, "2 MB of <", lambda: "<" * 2_000_000),
    "open-tags-2mb": (EITHER, "2 MB of <a<a<a", lambda: "<a" * 1_000_000),
    "end-tags": (EITHER, "300,000 end tags for nothing", lambda: "</p>" * 300_000),
    "comment-5mb": (EITHER, "a comment of 5 MB that is never closed", lambda: "<!--" + "-" * 5_000_000),
    "text-10mb": (EITHER, "one text of 10 MB", lambda: "x" * 10_000_000),
    "title-5mb": (EITHER, "a title of 5 MB", lambda: f"<title>{'t' * 5_000_000}</title>"),
    "entities": (EITHER, "a million entities", lambda: "&amp;&notin;&nothing;" * 250_000),
    "script-5mb": (EITHER, "a script that never ends", lambda: "<script>" + "<!--<script>" * 400_000),
    "plaintext": (EITHER, "an element after which all is text", lambda: "<plaintext>" + "<b>" * 500_000),
    "frameset": (EITHER, "100,000 framesets", lambda: "<frameset>" * 100_000),
    "page-30mb": (EITHER, "an ordinary page of 30 MB", lambda: "<p>word word word</p>\n" * 1_400_000),
    "elements-1m": (EITHER, "a million small elements", lambda: "<i></i>" * 1_000_000),
}  # fmt: skip


def _attributes(count: int) -> str:
    return "<p " + " ".join(f"a{n}=1" for n in range(count)) + ">"


def _formatting(count: int) -> str:
    opened = "".join(f"<b a={n}>" for n in range(count))
    return f"<p>{opened}</p>" + "<p>x</p>" * count


def _crossing(count: int) -> str:
    return "<a><b><div>" * count + "</a></b>" * count


@cache
def body_of(name: str) -> bytes:
    return html(name, PAGES[name][2]()).encode()


def _declare(name: str) -> None:
    expect, why, _ = PAGES[name]

    @group.does(name, expect, why)
    async def page(connection: ClientConnection, request: Request) -> None:
        await connection.send(answer(body_of(name)))


for _name in PAGES:
    _declare(_name)

_DEEP = "[" * 100_000 + "]" * 100_000
group.says("json-as-html", "done", "5 MB of JSON, 100,000 levels deep, called HTML", answer(_DEEP + " " * 4_800_000))
group.says("json-deep", "done", "JSON 100,000 levels deep", answer(_DEEP, "Content-Type: application/json"))
group.says(
    "html-as-image", "done", "a page that is called a picture", answer(html("picture"), "Content-Type: image/png")
)
group.says(
    "pdf",
    "done",
    "a PDF",
    answer(b"%PDF-1.7\n" + bytes(range(256)) * 2_000 + b"<a href='/x'>", "Content-Type: application/pdf"),
)
group.says(
    "pdf-as-html", "done|too_complex", "a PDF that is called HTML", answer(b"%PDF-1.7\n" + bytes(range(256)) * 20_000)
)
group.says("xml-laughs", "done", "entities of entities, a billion times",
           answer(b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">' +
                  b"".join(b'<!ENTITY %c "%b">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(12)) +
                  b"]><x>&m;</x>", "Content-Type: application/xml"))  # fmt: skip
group.says("empty", "done", "nothing at all", answer(""))
