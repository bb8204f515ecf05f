"""Text: the text of elements as people see it, words apart where the page shows them apart."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_TEXT = 100_000
_HIDDEN_TAGS = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "object", "head", "title"))
_BOILERPLATE_TAGS = frozenset(("nav", "header", "footer", "aside", "form", "button", "select", "dialog"))
_INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "ins", "kbd", "label", "mark", "q", "rb", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
))  # fmt: skip
_CELLS = frozenset(("td", "th"))
_lines = re.compile(r"[^\S\n]*\n\s*").sub
_spaces = re.compile(r"[^\S\n]+").sub
_line_break = re.compile(r"[\n\r\f]+").sub


def visible_text(node: LexborNode) -> str:
    """The text of an element on one line."""
    child = node.first_child
    if child is None:
        return ""
    if child.is_text_node and child.next is None:
        return " ".join((child.text_content or "").split())
    return " ".join("".join(_text_pieces(node, frozenset(), 0)).split())


def main_text(html: LexborHTMLParser) -> str:
    """The text of a page without what stands around it, a line for each paragraph, at most 100 KB."""
    top, skipped_tags = _main_element(html)
    if top is None:
        return ""
    text = "".join(_text_pieces(top, skipped_tags, MAX_TEXT))
    text = _spaces(" ", _lines("\n", text)).strip()
    return text.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore")


def visible_text_of_tree(element: Any) -> str:
    """The text of an element of lxml on one line."""
    etree = import_module("lxml.etree")  # late, as wherever XPath is
    pieces: list[str] = []
    hidden_depth = 0
    for event, one in etree.iterwalk(element, events=("start", "end", "comment", "pi")):
        if event in ("start", "end"):
            hidden = one.tag in _HIDDEN_TAGS and one is not element
            apart = "" if one.tag in _INLINE else " "
            hidden_depth += hidden if event == "start" else -hidden
            text = one.text if event == "start" else one.tail if one is not element else ""
            pieces.append(apart)
        else:
            text = one.tail
        if text and not hidden_depth:
            pieces.append(text)
    return " ".join("".join(pieces).split())


def _main_element(html: LexborHTMLParser) -> tuple[LexborNode | None, frozenset[str]]:
    for selector in ("main, [role=main]", "article"):
        found = html.css(selector)
        if len(found) == 1 and len(found[0].text(deep=True)) > 200:
            return found[0], frozenset(("nav", "aside", "form", "button", "select", "dialog"))
    return html.body or html.root, _BOILERPLATE_TAGS


def _text_pieces(top: LexborNode, skipped_tags: frozenset[str], most: int) -> list[str]:
    """Texts in document order, with a line break where a block begins or ends and a tab between cells."""
    pieces: list[str] = []
    size, end = 0, top.mem_id
    node: LexborNode | None = top.first_child
    while node is not None:
        tag = node.tag
        inner = None
        if node.is_text_node:
            text = node.text_content or ""
            pieces.append(_line_break(" ", text))
            size += len(text)
            if most and size > most:
                break
        elif tag in _HIDDEN_TAGS or tag in skipped_tags or not node.is_element_node:
            pass
        else:
            if tag not in _INLINE:
                pieces.append(" \t " if tag in _CELLS else "\n")
            inner = node.first_child
        if inner is not None:
            node = inner
            continue
        while node is not None and (following := node.next) is None:
            node = node.parent
            if node is None or node.mem_id == end:
                return pieces
            if node.tag not in _INLINE and node.tag not in _CELLS:
                pieces.append("\n")
        node = following
    return pieces
