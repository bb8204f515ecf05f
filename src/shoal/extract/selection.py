"""Selection: what a search on a page found, and what it means as text, numbers, dates and URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from re import Pattern
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

from selectolax.lexbor import LexborHTMLParser, LexborNode

from shoal.core.run_counters import MAX_SELECTORS
from shoal.errors import UsageError
from shoal.extract import css, values
from shoal.extract.css import select as select
from shoal.extract.css import select_first as select_first

if TYPE_CHECKING:
    from shoal.extract.page import Page
    from shoal.extract.xpath import LxmlElement

    Item = LexborNode | LxmlElement | str

_D = TypeVar("_D")
_V = TypeVar("_V")
# The methods of these names hide the types in the class.
_Int: TypeAlias = int
_Float: TypeAlias = float
_Bool: TypeAlias = bool

_INVISIBLE_TAGS = frozenset(("script", "style"))
_URL_ATTRIBUTES = ("href", "src", "action", "data", "content")  # attributes that hold one, likeliest first


class Selection:
    """Elements, texts or attribute values in document order; iterating gives single Selections."""

    __slots__ = ("_found", "_page", "_query", "_root")

    def __init__(self, items: list[Item], page: Page | None = None) -> None:
        self._found: list[Item] | None = items
        self._page = page
        self._root: LexborHTMLParser | LexborNode | None = None
        self._query = ""

    @classmethod
    def of(cls, root: LexborHTMLParser | LexborNode, selector: str, page: Page | None = None) -> Selection:
        """A selection that searches when it is looked at, and no further than it is looked at."""
        css.check_selector(selector)  # what is wrong with it is said here and now
        selection = cls.__new__(cls)
        selection._found, selection._root, selection._query, selection._page = None, root, selector, page
        return selection

    @property
    def _items(self) -> list[Item]:
        if self._found is None:
            assert self._root is not None
            self._found = list(select(self._root, self._query))
            if not self._found and self._page is not None:
                note_miss(self._page, self._query)
        return self._found

    def css(self, selector: str) -> Selection:
        """Search in and below each element, as parsel does."""
        elements = self.nodes
        if len(elements) == 1 and isinstance(elements[0], LexborNode):
            return Selection.of(elements[0], selector, self._page)
        found: list[Item] = []
        for element in elements:
            found += select(element, selector) if isinstance(element, LexborNode) else element.css(selector)
        return Selection(found, self._page)

    def xpath(self, expression: str) -> Selection:
        """Search by XPath from each element; "//" begins at the page, ".//" at the element."""
        found: list[Item] = []
        for element in self._elements():
            found += element.xpath(expression)
        return Selection(found, self._page)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: _D) -> str | _D: ...
    def get(self, default: _D | None = None) -> str | _D | None:
        """The first text, attribute value or outer HTML."""
        if self._found is None and self._root is not None:
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
    def text(self) -> str:
        """The visible text, its pieces joined by single spaces."""
        return " ".join(text for text in self.texts if text)

    @property
    def texts(self) -> list[str]:
        """The visible text of each element, text or value, with single spaces."""
        return [_text(item) for item in self._items]

    @overload
    def int(self) -> _Int | None: ...
    @overload
    def int(self, default: _D) -> _Int | _D: ...
    def int(self, default: _D | None = None) -> _Int | _D | None:
        """The first whole number; the default where there is none, as with all that follow."""
        return self._value(values.integer, default)

    @overload
    def float(self) -> _Float | None: ...
    @overload
    def float(self, default: _D) -> _Float | _D: ...
    def float(self, default: _D | None = None) -> _Float | _D | None:
        """The first number, in whatever way its thousands and decimals are parted."""
        return self._value(values.number, default)

    number = float

    @overload
    def price(self) -> _Float | None: ...
    @overload
    def price(self, default: _D) -> _Float | _D: ...
    def price(self, default: _D | None = None) -> _Float | _D | None:
        """The first amount of money; 1.234 € is more than a thousand."""
        return self._value(lambda text: values.price(text).amount, default)

    @overload
    def currency(self) -> str | None: ...
    @overload
    def currency(self, default: _D) -> str | _D: ...
    def currency(self, default: _D | None = None) -> str | _D | None:
        """The ISO code of the first currency, such as EUR."""
        return self._value(values.currency, default)

    @overload
    def bool(self) -> _Bool | None: ...
    @overload
    def bool(self, default: _D) -> _Bool | _D: ...
    def bool(self, default: _D | None = None) -> _Bool | _D | None:
        """Whether it says true, yes, on or 1, or the opposite."""
        return self._value(values.boolean, default)

    @overload
    def date(self, *, day_first: _Bool | None = None) -> str | None: ...
    @overload
    def date(self, default: _D, *, day_first: _Bool | None = None) -> str | _D: ...
    def date(self, default: _D | None = None, *, day_first: _Bool | None = None) -> str | _D | None:
        """The first day, as 2024-05-31; of 3/4/2024 you have to say whether the day comes first."""
        return self._value(lambda text: values.date(text, day_first=day_first), default)

    @overload
    def datetime(self, *, day_first: _Bool | None = None) -> str | None: ...
    @overload
    def datetime(self, default: _D, *, day_first: _Bool | None = None) -> str | _D: ...
    def datetime(self, default: _D | None = None, *, day_first: _Bool | None = None) -> str | _D | None:
        """The first day and its time, in ISO 8601."""
        return self._value(lambda text: values.datetime(text, day_first=day_first), default)

    @overload
    def attr(self, name: str) -> str | None: ...
    @overload
    def attr(self, name: str, default: _D) -> str | _D: ...
    def attr(self, name: str, default: _D | None = None) -> str | _D | None:
        """An attribute of the first element."""
        return self.attrib.get(name, default)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first element."""
        for node in self.nodes[:1]:
            return {name: value or "" for name, value in node.attributes.items()}
        return {}

    @overload
    def html(self) -> str | None: ...
    @overload
    def html(self, default: _D) -> str | _D: ...
    def html(self, default: _D | None = None) -> str | _D | None:
        """The outer HTML of the first element."""
        for node in self.nodes[:1]:
            return node.html or ""
        return default

    @overload
    def url(self) -> str | None: ...
    @overload
    def url(self, default: _D) -> str | _D: ...
    def url(self, default: _D | None = None) -> str | _D | None:
        """The URL that the first thing holds or is, in full."""
        return next(iter(self[:1].urls()), default)

    def urls(self) -> list[str]:
        """The URLs in full, without what is no URL; each as often as it was found."""
        if self._page is None:
            raise UsageError("this selection belongs to no page", hint="Start from page.css() or page.xpath().")
        found = [self._page.absolute(_url_text(item)) for item in self._items]
        return [url for url in found if url is not None]

    @property
    def first(self) -> Selection:
        """The first thing alone; empty if nothing was found."""
        return self[:1]

    @property
    def nodes(self) -> list[LexborNode | LxmlElement]:
        """The elements as the parser knows them."""
        return [item for item in self._items if not isinstance(item, str)]

    @property
    def strings(self) -> list[str]:
        """The texts and attribute values, without the elements."""
        return [item for item in self._items if isinstance(item, str)]

    def __len__(self) -> _Int:
        return len(self._items)

    def __iter__(self) -> Iterator[Selection]:
        return (Selection([item], self._page) for item in self._items)

    def __getitem__(self, index: _Int | slice) -> Selection:
        items = self._items[index] if isinstance(index, slice) else [self._items[index]]
        return Selection(items, self._page)

    def __repr__(self) -> str:
        shown = ", ".join(repr(_markup(item)[:40]) for item in self._items[:3])
        return f"<Selection of {len(self)}: {shown}{', …' if len(self) > 3 else ''}>"

    def _value(self, read: Callable[[str], _V], default: _D | None) -> _V | _D | None:
        for item in self._items[:1]:
            try:
                return read(_value_text(item))
            except ValueError:
                return default
        return default

    def _elements(self) -> Iterable[LxmlElement]:
        for node in self.nodes:
            if not isinstance(node, LexborNode):
                yield node
            elif self._page is not None:
                yield self._page._lxml_element(node)
            else:
                raise UsageError("this selection belongs to no page", hint="Start from page.css() or page.xpath().")


def note_miss(page: Page, selector: str) -> None:
    """A selector found nothing on a page; only the first few are kept."""
    missed = page._missed
    if len(missed) < MAX_SELECTORS and selector not in missed:
        missed.append(selector)


def missed_selectors(page: Page) -> list[str]:
    return page._missed


def find_all(pattern: str | Pattern[str], texts: Iterable[str]) -> list[str]:
    """All matches in all texts; groups are flattened."""
    try:
        search: Callable[[str], list[str | tuple[str, ...]]] = re.compile(pattern).findall
    except re.error as error:
        hint = "See the syntax of Python's re module."
        raise UsageError(f"cannot understand the regular expression {pattern!r}: {error}", hint=hint) from error
    found: list[str] = []
    for text in texts:
        for match in search(text):
            if isinstance(match, str):
                found.append(match)
            else:
                found += match
    return found


def visible_words(node: LexborNode) -> list[str]:
    """The words that people see of an element."""
    words: list[str] = []
    for piece in node.traverse(include_text=True, skip_empty=True):
        if piece.is_text_node:
            parent = piece.parent
            if parent is None or parent.tag not in _INVISIBLE_TAGS or parent.mem_id == node.mem_id:
                words += (piece.text_content or "").split()
    return words


def _markup(item: Item) -> str:
    return item if isinstance(item, str) else item.html or ""


def _text(item: Item) -> str:
    if isinstance(item, str):
        return " ".join(item.split())
    return " ".join(visible_words(item) if isinstance(item, LexborNode) else item.words())


def _value_text(item: Item) -> str:
    """The text of an item; some elements say it for machines, in an attribute."""
    if isinstance(item, str):
        return item
    attribute = {"meta": "content", "time": "datetime", "input": "value", "data": "value"}.get(item.tag or "")
    return (item.attributes.get(attribute) if attribute else None) or _text(item)


def _url_text(item: Item) -> str:
    if isinstance(item, str):
        return item
    attributes = item.attributes
    return next((value for name in _URL_ATTRIBUTES if (value := attributes.get(name))), "")
