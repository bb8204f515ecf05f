"""Page: an answer as a handler sees it, parsed only as far as it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import Pattern
from typing import TYPE_CHECKING, Any

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from shoal.core.page import Response
from shoal.core.task import Ask
from shoal.core.url import Resolver
from shoal.errors import GiveUp, Usage
from shoal.extract.charset import decode, encoding_of
from shoal.extract.selection import Selection, find_all

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

# Without mutation events parsing is 8 % cheaper; they only fill <selectedcontent>.
_OPTIONS = int(LexborDocumentOptions.WO_EVENTS)
_ADDRESS = ("http://", "https://", "/", "./", "../", "?")
# What no selector looks like: a path, a query or the name of a web page.
_address_like = re.compile(r"[^\s\[\]()\"']*[/?%&=][^\s\[\]()\"']*|[\w.~-]+\.(html?|php|aspx?|jsp)").fullmatch
_LINKS = "a[href], area[href]"


class Follow(msgspec.Struct, frozen=True):
    """Links to follow, as written on the page; the worker resolves and judges them."""

    hrefs: tuple[str, ...]
    base: str
    meta: dict[str, Any] | None = None
    priority: int = 0
    ask: Ask | None = None  # where a plain GET will not do


What = str | Selection | Iterable[str | Selection] | None


class Page:
    """One fetched page. `follow` gives what a handler yields to have links visited."""

    __slots__ = (
        "_base", "_encoding", "_headers", "_html", "_resolver", "_text", "_xpath",
        "depth", "meta", "response", "run", "task", "url",
    )  # fmt: skip

    def __init__(
        self,
        response: Response,
        *,
        meta: dict[str, Any] | None = None,
        depth: int = 0,
        run: str = "",
        task: int = 0,
    ) -> None:
        self.response = response
        self.url = response.url
        self.meta: dict[str, Any] = {} if meta is None else meta
        self.depth = depth
        self.run = run
        self.task = task
        self._base: str | None = None
        self._encoding: str | None = None
        self._headers: dict[str, str] | None = None
        self._html: LexborHTMLParser | None = None
        self._resolver: Resolver | None = None
        self._text: str | None = None
        self._xpath: Selector | None = None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def body(self) -> bytes:
        return self.response.body

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case; the first value where a name came twice."""
        if self._headers is None:
            self._headers = dict(reversed(self.response.headers))
        return self._headers

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case; empty if the server named none."""
        return self.response.header("content-type").partition(";")[0].strip().lower()

    @property
    def encoding(self) -> str:
        """The Python codec of the body, found as browsers do, but UTF-8 if undeclared and valid."""
        if self._encoding is None:
            self._encoding = encoding_of(self.body, self.response.header("content-type"))
        return self._encoding

    @property
    def text(self) -> str:
        """The decoded body."""
        if self._text is None:
            self._text = decode(self.body, self.encoding)
        return self._text

    @property
    def html(self) -> LexborHTMLParser:
        """The parsed document."""
        if self._html is None:
            body = self.body
            plain = self.encoding == "utf-8" and not body.startswith(b"\xef\xbb\xbf")
            self._html = LexborHTMLParser(body if plain else self.text, options=_OPTIONS)
        return self._html

    @property
    def base(self) -> str:
        """What relative links are relative to: the address of the page, or its <base href>."""
        if self._base is None:
            self._base = self.url
            for node in self.html.tags("base") if self._may_have_links() else ():
                if "href" in node.attrs:
                    self._base = Resolver(self.url).resolve(node.attrs.sget("href")) or self.url
                    break
        return self._base

    def css(self, selector: str) -> Selection:
        return Selection.of(self.html, selector)

    def xpath(self, expression: str) -> SelectorList[Selector]:
        """Search by XPath, with parsel; the page is parsed a second time for it."""
        from parsel import Selector  # late: lxml is big and few pages need it

        if self._xpath is None:
            self._xpath = Selector(text=self.text, type="html")
        try:
            return self._xpath.xpath(expression)
        except ValueError as error:
            hint = "XPath 1.0 is understood; for CSS selectors use page.css()."
            raise Usage(f"cannot understand the XPath {expression!r}: {error}", hint=hint) from error

    def re(self, pattern: str | Pattern[str]) -> list[str]:
        """All matches of a regular expression in the text of the page."""
        return find_all(pattern, (self.text,))

    def json(self) -> Any:
        """The body read as JSON; a page that is none is given up with cause "decode"."""
        try:
            return msgspec.json.decode(self.body if self.encoding == "utf-8" else self.text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise GiveUp("decode", f"{self.url} is not JSON: {error}") from error

    def links(self, selector: str | None = None) -> list[str]:
        """The canonical addresses of all links, or of those a selector finds, each once."""
        if self._resolver is None or self._resolver.base != self.base:
            self._resolver = Resolver(self.base)
        hrefs = self._all_hrefs() if selector is None else self._hrefs(selector)
        urls = map(self._resolver.resolve, hrefs)
        return list(dict.fromkeys(url for url in urls if url is not None))

    def follow(
        self, what: What = _LINKS, *, meta: dict[str, Any] | None = None, priority: int = 0
    ) -> tuple[Follow, ...]:
        """Links to visit: all of them, or those of a selector, a Selection, an address or several.

        A string is an address if it looks like one ("/a", "?page=2", "page-2.html"), else a
        selector; in a list every string is an address. None, as an empty `.get()` gives, is nothing.
        """
        if what is _LINKS:
            hrefs = self._all_hrefs()
        elif isinstance(what, str | Selection):
            hrefs = self._hrefs(what)
        else:
            hrefs = list(self._several(what or ()))
        return (Follow(tuple(hrefs), self.base, meta, priority),) if hrefs else ()

    def _all_hrefs(self) -> list[str]:
        if not self._may_have_links():
            return []
        nodes = self.html.tags("a") + self.html.tags("area")
        return [href for node in nodes if (href := node.attrs.sget("href"))]

    def _hrefs(self, what: str | Selection) -> list[str]:
        if isinstance(what, Selection):
            return what.strings + _hrefs_of(what.nodes)
        if what.startswith(_ADDRESS) or _address_like(what):
            return [what]
        if "::" in what:
            return self._hrefs(self.css(what))
        try:
            return _hrefs_of(self.html.css(what))
        except SelectolaxError:
            return self._hrefs(self.css(what))  # which says what is wrong with it

    def _several(self, what: Iterable[str | Selection]) -> Iterator[str]:
        for one in what:
            if isinstance(one, str):
                yield one
            else:
                yield from self._hrefs(one)

    def _may_have_links(self) -> bool:
        kind = self.content_type
        return not kind or kind.startswith("text/") or "html" in kind or "xml" in kind

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url} {self.content_type or 'no type'}, {len(self.body):,} bytes>"


def _hrefs_of(nodes: list[LexborNode]) -> list[str]:
    """The href of each element, or of the links in it where it has none itself."""
    hrefs = [node.attrs.sget("href") for node in nodes]
    if all(hrefs):
        return hrefs
    for at in range(len(hrefs) - 1, -1, -1):
        if not hrefs[at]:
            inner = nodes[at].css(_LINKS) if "href" not in nodes[at].attrs else []
            hrefs[at : at + 1] = [href for node in inner if (href := node.attrs.sget("href"))]
    return hrefs
