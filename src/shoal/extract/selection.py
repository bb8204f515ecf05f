"""Selection: what a CSS selector found, with `::text` and `::attr(name)` as Scrapy users know them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from re import Pattern
from typing import TypeVar, overload

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from shoal.errors import Usage

Item = LexborNode | str
_D = TypeVar("_D")

_TEXT = "::text"  # kinds of a compiled part: "" for elements, _TEXT, or the name of an attribute
_pseudo = re.compile(r"::\s*(?:(text)|attr\(\s*([^\s()]+)\s*\))\s*$").search
_UNSPOKEN = frozenset(("script", "style"))


class Selection:
    """Elements, texts or attribute values in document order; iterating gives single Selections."""

    __slots__ = ("_known", "_query", "_root")

    def __init__(self, items: list[Item]) -> None:
        self._known: list[Item] | None = items
        self._root: LexborHTMLParser | LexborNode | None = None
        self._query = ""

    @classmethod
    def of(cls, root: LexborHTMLParser | LexborNode, selector: str) -> Selection:
        """A selection that searches when it is looked at, and no further than it is looked at."""
        _checked(selector)  # what is wrong with it is said here and now
        selection = cls.__new__(cls)
        selection._known, selection._root, selection._query = None, root, selector
        return selection

    @property
    def _items(self) -> list[Item]:
        if self._known is None:
            assert self._root is not None
            self._known = select(self._root, self._query)
        return self._known

    def css(self, selector: str) -> Selection:
        """Search in and below each element, as parsel does."""
        nodes = self.nodes
        if len(nodes) == 1:
            return Selection.of(nodes[0], selector)
        found: list[Item] = []
        for node in nodes:
            found += select(node, selector)
        return Selection(found)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: _D) -> str | _D: ...
    def get(self, default: _D | None = None) -> str | _D | None:
        """The first text, attribute value or outer HTML."""
        if self._known is None and self._root is not None:
            first = select_first(self._root, self._query)
            if first is not None:
                return _markup(first)
        return _markup(self._items[0]) if self._items else default

    def getall(self) -> list[str]:
        return [_markup(item) for item in self._items]

    def re(self, pattern: str | Pattern[str]) -> list[str]:
        """All matches of a regular expression; its groups, one after the other, if it has any."""
        return find_all(pattern, self.getall())

    @overload
    def re_first(self, pattern: str | Pattern[str]) -> str | None: ...
    @overload
    def re_first(self, pattern: str | Pattern[str], default: _D) -> str | _D: ...
    def re_first(self, pattern: str | Pattern[str], default: _D | None = None) -> str | _D | None:
        for item in self._items:
            for match in find_all(pattern, (_markup(item),)):
                return match
        return default

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first element."""
        for node in self.nodes[:1]:
            return {name: value or "" for name, value in node.attributes.items()}
        return {}

    @property
    def text(self) -> str:
        """The visible text, its pieces joined by single spaces."""
        pieces: list[str] = []
        for item in self._items:
            pieces += item.split() if isinstance(item, str) else _words(item)
        return " ".join(pieces)

    @property
    def nodes(self) -> list[LexborNode]:
        """The elements as the parser knows them."""
        return [item for item in self._items if not isinstance(item, str)]

    @property
    def strings(self) -> list[str]:
        """The texts and attribute values, without the elements."""
        return [item for item in self._items if isinstance(item, str)]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Selection]:
        return (Selection([item]) for item in self._items)

    def __getitem__(self, index: int | slice) -> Selection:
        return Selection(self._items[index] if isinstance(index, slice) else [self._items[index]])

    def __repr__(self) -> str:
        shown = ", ".join(repr(_markup(item)[:40]) for item in self._items[:3])
        return f"<Selection of {len(self)}: {shown}{', …' if len(self) > 3 else ''}>"


def select(root: LexborHTMLParser | LexborNode, selector: str) -> list[Item]:
    """What a selector finds below a root, in document order and each once."""
    parts = _compiled(selector)
    try:
        if len(parts) == 1:
            (query, kind), *_ = parts
            return _read(_found(root, query), kind)
        return _read_mixed(root, parts)
    except SelectolaxError as error:
        raise _not_understood(selector) from error


def select_first(root: LexborHTMLParser | LexborNode, selector: str) -> Item | None:
    """What `select` would give first, where that can be told from the first element found."""
    ((query, kind), *more) = _compiled(selector)
    if more or "," in query:
        return None
    try:
        node = root.css_first(query)
    except SelectolaxError as error:
        raise _not_understood(selector) from error
    if node is None or not kind:
        return node
    if kind != _TEXT:
        return node.attrs.sget(kind) if kind in node.attrs else None
    child = node.first_child
    # Text of the element itself comes first; text further in may belong to another element found.
    return child.text_content or "" if child is not None and child.is_text_node else None


def find_all(pattern: str | Pattern[str], texts: Iterable[str]) -> list[str]:
    """All matches in all texts; groups are flattened."""
    try:
        search: Callable[[str], list[str | tuple[str, ...]]] = re.compile(pattern).findall
    except re.error as error:
        hint = "See the syntax of Python's re module."
        raise Usage(f"cannot understand the regular expression {pattern!r}: {error}", hint=hint) from error
    found: list[str] = []
    for text in texts:
        for match in search(text):
            if isinstance(match, str):
                found.append(match)
            else:
                found += match
    return found


def _found(root: LexborHTMLParser | LexborNode, query: str) -> list[LexborNode]:
    nodes = root.css(query)
    if "," in query and len(nodes) > 1:  # lexbor repeats an element for each part that matches it
        nodes = list({node.mem_id: node for node in nodes}.values())
    return nodes


def _read(nodes: list[LexborNode], kind: str) -> list[Item]:
    if not kind:
        return list(nodes)
    if kind != _TEXT:
        return [node.attrs.sget(kind) for node in nodes if kind in node.attrs]
    if len(nodes) == 1:
        return [child.text_content or "" for child in nodes[0].iter(include_text=True) if child.is_text_node]
    return _walk(nodes, {node.mem_id: (_TEXT,) for node in nodes})


def _read_mixed(root: LexborHTMLParser | LexborNode, parts: tuple[tuple[str, str], ...]) -> list[Item]:
    wanted: dict[int, tuple[str, ...]] = {}
    for query, kind in parts:
        for node in _found(root, query):
            wanted[node.mem_id] = (*wanted.get(node.mem_id, ()), kind)
    return _walk(_found(root, ", ".join(query for query, _ in parts)), wanted)


def _walk(nodes: list[LexborNode], wanted: dict[int, tuple[str, ...]]) -> list[Item]:
    """Read nodes that may lie in each other, so that all pieces come in document order."""
    items: list[Item] = []
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


def _markup(item: Item) -> str:
    return item if isinstance(item, str) else item.html or ""


def _words(node: LexborNode) -> list[str]:
    words: list[str] = []
    for piece in node.traverse(include_text=True, skip_empty=True):
        if piece.is_text_node:
            parent = piece.parent
            if parent is None or parent.tag not in _UNSPOKEN or parent.mem_id == node.mem_id:
                words += (piece.text_content or "").split()
    return words


@lru_cache(maxsize=1024)
def _checked(selector: str) -> None:
    select(LexborHTMLParser(""), selector)


@lru_cache(maxsize=1024)
def _compiled(selector: str) -> tuple[tuple[str, str], ...]:
    """Pairs of (plain selector, kind), one for each kind asked for."""
    if "::" not in selector:
        return ((selector, ""),)
    by_kind: dict[str, list[str]] = {}
    for start, part in _split(selector):
        found = _pseudo(part)
        query = part[: found.start()] if found else part
        if "::" in _outside_strings(query):
            at = start + query.index("::")
            raise Usage(
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


def _not_understood(selector: str) -> Usage:
    at = _trouble(selector)
    if selector.lstrip().startswith(("/", "./", "@")):
        hint = "This looks like XPath: use page.xpath()."
    elif ":contains(" in selector:
        hint = 'Write :lexbor-contains("text"), or use page.xpath().'
    else:
        hint = "Selectors are those of browsers, with ::text and ::attr(name) at the end of a part."
    where = f"character {at + 1}, {selector[at : at + 20]!r}" if selector[at:] else "its end"
    return Usage(f"cannot understand the CSS selector {selector!r}: trouble at {where}", hint=hint)


def _trouble(selector: str) -> int:
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
