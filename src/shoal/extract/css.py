"""CSS: what a selector finds in a document, with `::text` and `::attr(name)` as Scrapy users know them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from shoal.errors import UsageError

Match = LexborNode | str
Root = LexborHTMLParser | LexborNode

_TEXT = "::text"  # kinds of a compiled part: "" for elements, _TEXT, or the name of an attribute
_pseudo = re.compile(r"::\s*(?:(text)|attr\(\s*([^\s()]+)\s*\))\s*$").search


def select(root: Root, selector: str) -> list[Match]:
    """What a selector finds below a root, in document order and each once."""
    parts = _compile(selector)
    try:
        if len(parts) == 1:
            (query, kind), *_ = parts
            return _read(_find_nodes(root, query), kind)
        return _read_mixed(root, parts)
    except SelectolaxError as error:
        raise _selector_error(selector) from error


def select_first(root: Root, selector: str) -> Match | None:
    """What `select` would give first, where that can be told from the first element found."""
    ((query, kind), *more) = _compile(selector)
    if more or "," in query:
        return None
    try:
        node = root.css_first(query)
    except SelectolaxError as error:
        raise _selector_error(selector) from error
    if node is None or not kind:
        return node
    if kind != _TEXT:
        return node.attrs.sget(kind) if kind in node.attrs else None
    child = node.first_child
    # Text of the element itself comes first; text further in may belong to another element found.
    return child.text_content or "" if child is not None and child.is_text_node else None


def _find_nodes(root: Root, query: str) -> list[LexborNode]:
    nodes = root.css(query)
    if "," in query and len(nodes) > 1:  # lexbor repeats an element for each part that matches it
        nodes = list({node.mem_id: node for node in nodes}.values())
    return nodes


def _read(nodes: list[LexborNode], kind: str) -> list[Match]:
    if not kind:
        return list(nodes)
    if kind != _TEXT:
        return [node.attrs.sget(kind) for node in nodes if kind in node.attrs]
    if len(nodes) == 1:
        return [child.text_content or "" for child in nodes[0].iter(include_text=True) if child.is_text_node]
    return _walk(nodes, {node.mem_id: (_TEXT,) for node in nodes})


def _read_mixed(root: Root, parts: tuple[tuple[str, str], ...]) -> list[Match]:
    wanted: dict[int, tuple[str, ...]] = {}
    for query, kind in parts:
        for node in _find_nodes(root, query):
            wanted[node.mem_id] = (*wanted.get(node.mem_id, ()), kind)
    return _walk(_find_nodes(root, ", ".join(query for query, _ in parts)), wanted)


def _walk(nodes: list[LexborNode], wanted: dict[int, tuple[str, ...]]) -> list[Match]:
    """Read nodes that may lie in each other, so that all pieces come in document order."""
    items: list[Match] = []
    passed: set[int] = set()
    for top in nodes:
        if top.mem_id in passed:
            continue
        for node in top.traverse(include_text=True):
            if node.is_text_node:
                parent = node.parent
                if parent is not None and _TEXT in wanted.get(parent.mem_id, ()):
                    items.append(node.text_content or "")
            elif kinds := wanted.get(node.mem_id):
                passed.add(node.mem_id)
                if "" in kinds:
                    items.append(node)
                items += [value or "" for name, value in node.attributes.items() if name in kinds]
    return items


@lru_cache(maxsize=1024)
def check_selector(selector: str) -> None:
    """Say what is wrong with a selector, here and now."""
    select(LexborHTMLParser(""), selector)


@lru_cache(maxsize=1024)
def _compile(selector: str) -> tuple[tuple[str, str], ...]:
    """Pairs of (plain selector, kind), one for each kind asked for."""
    if "::" not in selector:
        return ((selector, ""),)
    by_kind: dict[str, list[str]] = {}
    for start, part in _split(selector):
        found = _pseudo(part)
        query = part[: found.start()] if found else part
        if "::" in _outside_strings(query):
            at = start + query.index("::")
            raise UsageError(
                f"cannot understand the CSS selector {selector!r}: unknown pseudo-element"
                f" at character {at + 1}, {selector[at : at + 20]!r}",
                hint="Only ::text and ::attr(name) exist, each at the end of a part.",
            )
        kind = "" if not found else _TEXT if found[1] else found[2]
        by_kind.setdefault(kind, []).append(_owner(query) if found else query)
    return tuple((", ".join(queries), kind) for kind, queries in by_kind.items())


def _owner(query: str) -> str:
    """The elements a pseudo-element belongs to; "div ::text" means div and everything in it."""
    plain = query.strip()
    if not plain or plain == "*":
        return "*"
    if plain[-1] in ">+~":
        return plain + " *"
    if query[-1].isspace():
        plain += " *"
    above = plain[:-2].rstrip() if plain.endswith(" *") else ""
    return f"{above}, {plain}" if above and above[-1] not in ">+~" else plain


def _split(selector: str) -> Iterator[tuple[int, str]]:
    """The comma-separated parts of a selector with their positions."""
    plain = _outside_strings(selector)
    start = depth = 0
    for at, char in enumerate(plain):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth <= 0:
            yield start, selector[start:at]
            start = at + 1
    yield start, selector[start:]


def _outside_strings(selector: str) -> str:
    """The selector with quoted strings and escapes blanked out, at the same length."""
    return re.sub(r"\\.|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?", lambda m: "_" * len(m[0]), selector)


def _selector_error(selector: str) -> UsageError:
    at = _error_position(selector)
    if selector.lstrip().startswith(("/", "./", "@")):
        hint = "This looks like XPath: use page.xpath()."
    elif ":contains(" in selector:
        hint = 'Write :lexbor-contains("text"), or use page.xpath().'
    else:
        hint = "Selectors are those of browsers, with ::text and ::attr(name) at the end of a part."
    where = f"character {at + 1}, {selector[at : at + 20]!r}" if selector[at:] else "its end"
    return UsageError(f"cannot understand the CSS selector {selector!r}: error at {where}", hint=hint)


def _error_position(selector: str) -> int:
    """Where a selector stops making sense: the end of its longest beginning that can be parsed."""
    empty = LexborHTMLParser("")
    plain = re.sub(r"::(?:text|attr\([^)]*\))", lambda m: " " * len(m[0]), selector[:500])
    for end in range(len(plain), 0, -1):
        try:
            empty.css(plain[:end])
        except SelectolaxError:
            continue
        good = len(plain[:end].rstrip())
        return good + len(selector[good:]) - len(selector[good:].lstrip())
    return 0
