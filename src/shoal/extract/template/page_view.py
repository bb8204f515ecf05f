"""PageView: a page while a template reads it; every way of reading it is prepared once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from selectolax.lexbor import LexborHTMLParser

from shoal.core.url import Resolver, host_of
from shoal.extract import values
from shoal.extract.template.text import main_text, visible_text

if TYPE_CHECKING:
    from shoal.extract.page import Page

_TITLE = ("title", "meta[property='og:title']", "h1")
_DESCRIPTION = ("meta[name=description i]", "meta[property='og:description']")
_PUBLISHED = (
    "meta[property='article:published_time']", "meta[itemprop=datePublished]", "meta[name=date i]",
    "meta[name=pubdate i]", "meta[name='dc.date' i]", "meta[name='dc.date.issued' i]",
    "[itemprop=datePublished]", "time[pubdate]", "article time[datetime]", "time[datetime]",
)  # fmt: skip
MAX_HTML = 1_000_000
_linked_date = re.compile(r'"datePublished"\s*:\s*"([^"]{4,40})"').search


class PageView:
    __slots__ = ("_data", "_html", "_json", "_resolver", "_tree", "item", "kind", "notes", "page")

    def __init__(self, page: Page, kind: str = "") -> None:
        self.page = page
        self.kind = kind
        self.item = 0  # number of the element at hand, where a page has several records
        self.notes: list[tuple[str, str]] = []  # (field, what was wrong with it) where nothing failed of it
        self._html: LexborHTMLParser | None = None
        self._json: Any = msgspec.UNSET
        self._data: list[Any] | None = None
        self._tree: Any = None
        self._resolver: Resolver | None = None

    @property
    def is_markup(self) -> bool:
        kind = self.page.content_type
        return "html" in kind or "xml" in kind or (kind in ("", "text/plain") and b"<" in self.page.body[:1000])

    @property
    def html(self) -> LexborHTMLParser:
        """The parsed page; an image or a JSON answer has no elements."""
        if self._html is None:
            self._html = self.page.html if self.is_markup else LexborHTMLParser("")
        return self._html

    @property
    def json(self) -> Any:
        if self._json is msgspec.UNSET:
            self._json = self.page.json()
        return self._json

    @property
    def tree(self) -> Any:
        """The root element as lxml has it."""
        if self._tree is None:
            self._tree = self.page.tree
        return self._tree

    @property
    def data(self) -> list[Any]:
        """What pages say about themselves in scripts: JSON-LD and other JSON."""
        if self._data is None:
            self._data = self.page.data()
        return self._data

    def absolute(self, href: str) -> str | None:
        if self._resolver is None:
            self._resolver = Resolver(self.page.base)
        return self._resolver.resolve(href)


def _url(view: PageView) -> str:
    redirects = view.page.response.redirects
    return redirects[0] if redirects else view.page.url


def _input(view: PageView) -> str:
    written = view.page.meta.get("input")
    return written if isinstance(written, str) else _url(view)


def _fetched_at(view: PageView) -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _first(view: PageView, selectors: tuple[str, ...]) -> str | None:
    html = view.html
    for selector in selectors:
        for node in html.css(selector):
            text = values.text(element_text(node))
            if text:
                return text
    return None


def _lang(view: PageView) -> str | None:
    root = view.html.css_first("html[lang]")
    lang = root.attrs.sget("lang") if root is not None else view.page.headers.get("content-language", "")
    return lang.partition(",")[0].strip() or None


def _published(view: PageView) -> str | None:
    html = view.html
    found = [date_text(node) for selector in _PUBLISHED for node in html.css(selector)[:1]]
    for node in html.css("script[type='application/ld+json' i]"):
        if linked := _linked_date(node.text(deep=True)):
            found.insert(0, linked[1])
    for text in found:
        for read in (values.datetime, values.date):
            try:
                return read(text)
            except ValueError:
                continue
    return None


def _text(view: PageView) -> str | None:
    page = view.page
    if view.is_markup:
        return main_text(view.html)
    if page.content_type.startswith("text/") or page.content_type.endswith(("json", "xml")):
        return page.text.encode("utf-8", "replace")[:100_000].decode("utf-8", "ignore")
    return None


def _html(view: PageView) -> str | None:
    """The page as it came, as far as it is text; at most 1 MB of it."""
    if not view.page.is_text:
        return None
    return view.page.text.encode("utf-8", "replace")[:MAX_HTML].decode("utf-8", "ignore")


PAGE_VALUES: dict[str, Callable[[PageView], Any]] = {
    "url": _url,
    "final_url": lambda view: view.page.url,
    "input": _input,
    "line": lambda view: view.page.meta.get("line"),
    "status": lambda view: view.page.status,
    "fetched_at": _fetched_at,
    "title": lambda view: _first(view, _TITLE),
    "description": lambda view: _first(view, _DESCRIPTION),
    "lang": _lang,
    "published": _published,
    "text": _text,
    "html": _html,
    "kind": lambda view: view.kind,
    "depth": lambda view: view.page.depth,
    "content_type": lambda view: view.page.content_type or None,
    "host": lambda view: host_of(view.page.url),
}


def element_text(node: Any) -> str:
    """What an element says: some have it in an attribute."""
    if node.tag == "meta":
        return str(node.attrs.sget("content"))
    if node.tag == "input":
        return str(node.attrs.sget("value"))
    return visible_text(node)


def date_text(node: Any) -> str:
    """The date of an element, from its attribute if it has one for that."""
    return node.attrs.sget("datetime") or node.attrs.sget("content") or visible_text(node)
