"""Page: a response as a handler sees it, parsed only as far as it is asked for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from re import Pattern
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from shoal.core import units
from shoal.core.capability import capability_names
from shoal.core.page import Response
from shoal.core.task import Ack, RequestOptions
from shoal.core.task_kind import handler_name
from shoal.core.url import Resolver, canonical
from shoal.errors import BrowserNeeded, GiveUp, UsageError
from shoal.extract.charset import decode, encoding_of
from shoal.extract.fetching import page_fetching
from shoal.extract.hrefs import LINKS, hrefs_of, hrefs_of_any, looks_like_url
from shoal.extract.jmespath_search import search_jmespath
from shoal.extract.media import MediaKind, media_kind, media_type
from shoal.extract.memory_limit import MemoryLimit
from shoal.extract.request_options import RequestBody, RequestHeaders, make_request_options
from shoal.extract.selection import Selection, find_all, note_miss

if TYPE_CHECKING:
    from shoal.extract.form import Form
    from shoal.extract.table import Header
    from shoal.extract.xpath import LxmlElement, LxmlTree

# Without mutation events parsing is 8 % cheaper; they only fill <selectedcontent>.
_OPTIONS = int(LexborDocumentOptions.WO_EVENTS)
_long_reference = re.compile("&(?:nGt|nLt);").search
_long_reference_bytes = re.compile(b"&(?:nGt|nLt);").search


class Follow(msgspec.Struct, frozen=True):
    """Links to follow, as written on the page; the worker resolves and judges them."""

    hrefs: tuple[str, ...]
    base: str
    meta: dict[str, Any] | None = None
    priority: int | None = None  # None: as routes say, or 0
    request_options: RequestOptions | None = None  # where a plain GET will not do
    needs: tuple[str, ...] = ()  # capabilities that its worker must have
    handler: str = ""  # the name of the handler to give them to; "": the first whose pattern matches
    again: bool = False  # also what the run has visited
    ttl: float | None = None  # seconds for which they are worth a visit
    ack: Ack | None = None  # None: as routes say, or manual
    kind: str = ""  # a built-in kind ("page:…") that they are tasks of; "": pages


HandlerReference = str | Callable[..., Any]
FollowTarget = str | Selection | Iterable[str | Selection] | None
# Given by the worker: an absolute URL, and how to ask for it.
PageFetch = Callable[[str, RequestOptions | None], Awaitable["Page"]]
NewCircuit = Callable[[], Awaitable[None]]


class LivePageTools(Protocol):
    """Given by the worker: what a handler can ask of a page that is open in a browser."""

    @property
    def console_errors(self) -> Sequence[str]: ...

    async def perform(self, steps: Sequence[Any]) -> Page: ...

    async def responses(self, pattern: str) -> list[Page]: ...

    async def screenshot(self, *, full_page: bool) -> bytes: ...

    async def pdf(self) -> bytes: ...


class Page:
    """One fetched page. `follow` gives what a handler yields to have links visited."""

    __slots__ = (
        "_base", "_encoding", "_fetch", "_headers", "_html", "_kind", "_live", "_missed", "_new_circuit", "_resolver",
        "_text", "_tree", "depth", "is_browser_needed", "meta", "response", "run", "task", "url",
    )  # fmt: skip

    def __init__(
        self,
        response: Response,
        *,
        meta: dict[str, Any] | None = None,
        depth: int = 0,
        run: str = "",
        task: int = 0,
        fetch: PageFetch | None = None,
        live: LivePageTools | None = None,
        new_circuit: NewCircuit | None = None,
    ) -> None:
        self.response = response
        self.url = response.url
        self.meta: dict[str, Any] = {} if meta is None else meta
        self.depth = depth
        self.run = run
        self.task = task
        self._missed: list[str] = []  # selectors that found nothing, for people who wonder why there is no record
        self._fetch = fetch
        self._live = live
        self._new_circuit = new_circuit
        self.is_browser_needed = False  # as its handler said
        self._base: str | None = None
        self._encoding: str | None = None
        self._headers: dict[str, str] | None = None
        self._html: LexborHTMLParser | None = None
        self._kind: MediaKind | None = None
        self._resolver: Resolver | None = None
        self._text: str | None = None
        self._tree: LxmlTree | None = None

    @classmethod
    def from_html(
        cls,
        html: str | bytes,
        url: str = "https://example.com/",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Page:
        """A page that was not fetched, for tests and experiments."""
        given = {name.lower(): value for name, value in (headers or {}).items()}
        pairs = {"content-type": "text/html; charset=utf-8" if isinstance(html, str) else "text/html"} | given
        body = html.encode() if isinstance(html, str) else html
        return cls(Response(canonical(url), status, tuple(pairs.items()), body), meta=meta)

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def body(self) -> bytes:
        return self.response.body

    @property
    def from_cache(self) -> bool:
        """Whether the body was not sent again for this page, but is one that the fleet had."""
        return self.response.from_cache

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case; the first value where a name came twice."""
        if self._headers is None:
            self._headers = dict(reversed(self.response.headers))
        return self._headers

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case; empty if the server named none."""
        return media_type(self.response.header("content-type"))

    @property
    def is_html(self) -> bool:
        """Whether it is HTML, by its type or, where that says nothing, its first bytes."""
        return self._media_kind == "html"

    @property
    def is_text(self) -> bool:
        """Whether it can be read at all; of a PDF or an image there is only `body`."""
        return self._media_kind != "binary"

    @property
    def encoding(self) -> str:
        """The codec of the body, found as browsers do, but UTF-8 if undeclared and valid."""
        if self._encoding is None:
            self._encoding = encoding_of(self.body, self.response.header("content-type"))
        return self._encoding

    @property
    def text(self) -> str:
        """The decoded body; empty for a binary file."""
        if self._text is None:
            try:
                with MemoryLimit(len(self.body)):
                    self._text = decode(self.body, self.encoding) if self.is_text else ""
            except MemoryError as error:
                raise GiveUp("too_complex", "its text takes too much memory") from error
        return self._text

    @property
    def html(self) -> LexborHTMLParser:
        """The parsed document; empty for JSON and binary files."""
        if self._html is None:
            try:
                with MemoryLimit(len(self.body)):
                    self._html = LexborHTMLParser(self._source(), options=_OPTIONS)
            except (SelectolaxError, MemoryError) as error:
                raise GiveUp("too_complex", "parsing it takes too much memory") from error
        return self._html

    @property
    def tree(self) -> Any:
        """The root element as lxml reads the page, for XPath; XML is read as XML, without its namespaces."""
        return self._lxml.root.node

    @property
    def base(self) -> str:
        """What relative links are relative to: the URL of the page, or its <base href>."""
        if self._base is None:
            self._base = self.url
            for node in self.html.tags("base") if self._may_have_links() else ():
                if "href" in node.attrs:
                    self._base = Resolver(self.url).resolve(node.attrs.sget("href")) or self.url
                    break
        return self._base

    def absolute(self, href: str) -> str | None:
        """The canonical URL that a link of this page leads to; None if it leads nowhere."""
        return self._link_resolver.resolve(href)

    def css(self, selector: str) -> Selection:
        return Selection.of(self.html, selector, self)

    def xpath(self, expression: str) -> Selection:
        """Search by XPath; the page is parsed by a second parser for it, once."""
        found = self._lxml.root.xpath(expression)
        if not found:
            note_miss(self, expression)
        return Selection(list(found), self)

    def re(self, pattern: str | Pattern[str]) -> list[str]:
        """All matches of a regular expression in the text of the page."""
        return find_all(pattern, (self.text,))

    def json(self, path: str | None = None) -> Any:
        """The body as JSON, or what a JMESPath finds in it; given up with cause "decode" if it is none."""
        plain = self.encoding == "utf-8" and not self.body.startswith(b"\xef\xbb\xbf")
        try:
            with MemoryLimit(len(self.body)):
                value = msgspec.json.decode(self.body if plain else self.text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise GiveUp("decode", f"{self.url} is not JSON: {error}") from error
        except MemoryError as error:
            raise GiveUp("too_complex", "reading it as JSON takes too much memory") from error
        return value if path is None else search_jmespath(path, value)

    def data(self, path: str | None = None) -> list[Any]:
        """What JSON stands in the page's scripts: JSON-LD and the like, each block a value."""
        found: list[Any] = []
        for node in self.html.css("script[type$='json' i]") if self.is_text else ():
            try:
                found.append(msgspec.json.decode(node.text(deep=True).strip()))
            except (msgspec.DecodeError, RecursionError):
                continue  # one of many on a page, often broken
        if path is None:
            return found
        return [hit for one in found if (hit := search_jmespath(path, one)) is not None]

    def table(self, what: str | Selection = "table", *, header: Header = None) -> list[dict[str, str]]:
        """The rows of the first table found, as dicts.

        header: how many rows are the header, the names themselves, or "column" if each column is a record;
        without it, th and thead tell.
        """
        from shoal.extract.table import table_records  # late: few handlers need it

        for node in (self.css(what) if isinstance(what, str) else what).nodes:
            # What xpath() found belongs to another parser, and is read by this one.
            here = node if isinstance(node, LexborNode) else LexborHTMLParser(node.html)
            inner = here if isinstance(here, LexborNode) and here.tag == "table" else here.css_first("table")
            if inner is not None:
                return table_records(inner, header)
        return []

    async def fetch(
        self,
        url: str,
        *,
        method: str = "",
        headers: RequestHeaders | None = None,
        body: RequestBody | None = None,
        json: Any = None,
        session: str = "",
        proxy: str = "",
        auth: str = "",
    ) -> Page:
        """Fetch another page from inside a handler, as politely as any."""
        if self._fetch is None:
            raise UsageError(
                "page.fetch works in a running scraper only", hint="Yield page.follow(…), or run the scraper."
            )
        target = self.absolute(url)
        if target is None:
            raise UsageError(f"{url!r} is not a URL that can be fetched", hint="Use http or https.")
        return await self._fetch(target, make_request_options(method, headers, body, json, session, proxy, auth))

    async def new_circuit(self) -> None:
        """Leave by a new circuit of Tor from the next request on: this page's session at its host, and nobody else.

        Where its exit is not Tor, nothing changes.
        """
        if self._new_circuit is not None:
            await self._new_circuit()

    @property
    def browser(self) -> LivePageTools:
        """The page as it is open in the browser; only of pages that were fetched by one, while their handler runs."""
        if self._live is None:
            raise UsageError(
                "this page was not fetched by a browser", hint='Write fetch="browser" for its handler, or run with it.'
            )
        return self._live

    def need_browser(self) -> None:
        """Read this page in a browser: its handler is called again with it, and what was yielded so far is dropped.

        Does nothing if it was fetched by one.
        """
        if self._live is None:
            self.is_browser_needed = True
            raise BrowserNeeded(f"{self.url} is to be read in a browser")

    @property
    def console_errors(self) -> Sequence[str]:
        """Errors that the page's scripts have made, in the browser."""
        return self.browser.console_errors

    async def perform(self, *steps: Any) -> Page:
        """Take further steps in the browser, such as "click .more"; the page as it is then."""
        return await self.browser.perform(steps)

    async def responses(self, pattern: str = "*") -> list[Page]:
        """What the page's scripts have loaded, by a pattern for the URL, such as "*/api/*"."""
        return await self.browser.responses(pattern)

    async def screenshot(self, *, full_page: bool = False) -> bytes:
        """The page as a PNG image."""
        return await self.browser.screenshot(full_page=full_page)

    async def pdf(self) -> bytes:
        """The page as a PDF file."""
        return await self.browser.pdf()

    def links(self, selector: str | None = None) -> list[str]:
        """The canonical URLs of all links, or of those a selector finds, each once."""
        hrefs = self._all_hrefs() if selector is None else self._hrefs(selector)
        urls = map(self._link_resolver.resolve, hrefs)
        return list(dict.fromkeys(url for url in urls if url is not None))

    def follow(
        self,
        what: FollowTarget = LINKS,
        *,
        meta: dict[str, Any] | None = None,
        priority: int | None = None,
        method: str = "",
        headers: RequestHeaders | None = None,
        body: RequestBody | None = None,
        json: Any = None,
        session: str = "",
        proxy: str = "",
        auth: str = "",
        needs: str | Iterable[str] = (),
        to: HandlerReference = "",
        again: bool = False,
        ttl: float | str | None = None,
        ack: Ack | None = None,
        fetch: str = "",
        steps: object = (),
        exit: str = "",
    ) -> tuple[Follow, ...]:
        """Links to visit: all of them, or those of a selector, a Selection, a URL or several.

        A string is a URL if it looks like one ("/a", "?page=2", "page-2.html"), else a
        selector; in a list every string is a URL. None, as an empty `.get()` gives, is nothing.
        needs: capabilities, such as "browser"; only workers that have them (--has browser) visit the links.
        to: the handler that gets them, whatever their URL: a function of the scraper, or its name.
        again: visit them also if this run has done so; pages in a row can ask for that 100 times.
        ttl: seconds, or "30m", for which they are worth a visit; after that they are dead letters (expired).
        ack: "auto" hands each out once at most, whatever becomes of it; "manual" until it is settled.
        fetch: "browser", "http" or "auto", if not as their handler or the run says; steps: as in docs/browser.md.
        exit: the name of the exit that their requests leave by, as in docs/exits.md; "direct": none.
        What is said here wins over the run's routes; of two TTLs the smaller.
        """
        if what is LINKS:
            hrefs = self._all_hrefs()
        elif isinstance(what, str | Selection):
            hrefs = self._hrefs(what)
        else:
            hrefs = list(self._several(what or ()))
        if not hrefs:
            return ()
        request_options = None
        by = page_fetching(fetch, steps, exit)
        if method or headers or body is not None or json is not None or session or proxy or auth or by.fetch or by.exit:
            request_options = make_request_options(method, headers, body, json, session, proxy, auth, by)
        names, name = capability_names(needs), handler_name(to)
        seconds = None if ttl is None else _ttl(ttl)
        if ack not in (None, "manual", "auto"):
            raise UsageError(f"ack {ack!r} is not known", hint='Write ack="auto" or ack="manual".')
        return (Follow(tuple(hrefs), self.base, meta, priority, request_options, names, name, again, seconds, ack),)

    def form(self, what: str = "form", **options: Any) -> Form:
        """A form of the page, by its name or id, or by a selector; options are those of follow, for submitting it."""
        from shoal.extract.form import find_form  # late: few handlers need it

        return find_form(self, what, options)

    def _all_hrefs(self) -> list[str]:
        if not self._may_have_links():
            return []
        nodes = self.html.tags("a") + self.html.tags("area")
        return [href for node in nodes if (href := node.attrs.sget("href"))]

    def _hrefs(self, what: str | Selection) -> list[str]:
        if isinstance(what, Selection):
            return what.strings + hrefs_of_any(what.nodes)
        if looks_like_url(what):
            return [what]
        if "::" in what:
            return self._hrefs(self.css(what))
        try:
            nodes = self.html.css(what)
            if not nodes:
                note_miss(self, what)
            return hrefs_of(nodes)
        except SelectolaxError:
            return self._hrefs(self.css(what))  # which says what is wrong with it

    def _several(self, what: Iterable[str | Selection]) -> Iterator[str]:
        for one in what:
            if isinstance(one, str):
                yield one
            else:
                yield from self._hrefs(one)

    @property
    def _media_kind(self) -> MediaKind:
        if self._kind is None:
            self._kind = media_kind(self.response.header("content-type"), self.response.body)
        return self._kind

    def _source(self) -> bytes | str:
        """What there is to parse; UTF-8 need not be decoded for it."""
        if self._media_kind in ("json", "binary"):
            return ""
        plain = self.encoding == "utf-8" and not self.body.startswith(b"\xef\xbb\xbf")
        return _without_long_references(self.body if plain else self.text)

    @property
    def _link_resolver(self) -> Resolver:
        if self._resolver is None:
            self._resolver = Resolver(self.base)
        return self._resolver

    @property
    def _lxml(self) -> LxmlTree:
        if self._tree is None:
            from shoal.extract.xpath import LxmlTree  # late: lxml is big and few pages need it

            text = "" if self._media_kind == "json" else self.text
            self._tree = LxmlTree(text, xml=self._media_kind == "xml")
        return self._tree

    def _lxml_element(self, node: LexborNode) -> LxmlElement:
        return self._lxml.element_for(node, self.html)

    def _may_have_links(self) -> bool:
        return self._media_kind in ("html", "xml", "text")

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url} {self.content_type or 'no type'}, {len(self.body):,} bytes>"


def _without_long_references(source: bytes | str) -> bytes | str:
    """Without the two references that are longer when read than when written: lexbor overruns its buffer."""
    if len(source) < 12_000:  # its buffer has 16,384 bytes
        return source
    if isinstance(source, bytes):
        # Looking for one character is twenty times as fast as for any longer text.
        if b"&" not in source or not _long_reference_bytes(source):
            return source
        return source.replace(b"&nGt;", "≫⃒".encode()).replace(b"&nLt;", "≪⃒".encode())
    if not _long_reference(source):
        return source
    return source.replace("&nGt;", "≫⃒").replace("&nLt;", "≪⃒")


def _ttl(value: float | str) -> float:
    try:
        return units.seconds()(value)
    except (ValueError, TypeError):
        raise UsageError(f"ttl {value!r} is not a time", hint='Write seconds above 0, or ttl="30m".') from None
