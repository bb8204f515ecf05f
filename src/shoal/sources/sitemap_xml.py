"""SitemapXml: the entries of a sitemap, an index or a feed in XML, while it comes.

libxml2 reads it without network, external DTDs or huge trees; what entities expand to is bounded here, for its push
parser expands them whatever it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from typing import Any

from shoal.core.sitemap import SitemapEntry, parse_date
from shoal.core.url import MAX_LENGTH
from shoal.errors import GiveUp
from shoal.sources.plain_sitemap import PlainEntries

MAX_XML_DEPTH = 64
MAX_EXPANDED = 1_000_000  # characters that entities may add to what a file has itself
_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "feed", "RDF"})
_ENTRIES = frozenset({"url", "sitemap", "item", "entry"})
_TEXTS = frozenset({"loc", "link", "lastmod", "pubDate", "updated", "published", "date"})


def not_a_sitemap(what: str) -> GiveUp:
    return GiveUp("not_a_sitemap", f"it is {what}, neither a sitemap nor a feed nor a list of URLs")


class SitemapXml:
    """Broken XML is read as far as it makes sense. Raises GiveUp where it is no sitemap, or a bomb."""

    def __init__(self) -> None:
        etree: Any = import_module("lxml.etree")  # late: few workers read XML; it has no types

        self._plain = PlainEntries()
        self._target = _Target()
        self._error = etree.LxmlError
        self._parser = etree.XMLParser(
            target=self._target, resolve_entities=False, no_network=True, load_dtd=False, recover=True, huge_tree=False
        )

    @property
    def lost(self) -> int:
        return self._plain.lost + self._target.lost

    def feed(self, data: bytes) -> Iterator[SitemapEntry]:
        entries, rest = self._plain.feed(data)
        self._parse(rest)
        return chain(entries, self._taken())

    def close(self) -> Iterator[SitemapEntry]:
        self._parse(self._plain.close())
        if not self._target.has_root:
            raise not_a_sitemap("XML without an element that can be read")
        self._drive(self._parser.close)
        return self._taken()

    def _parse(self, data: bytes) -> None:
        if data:
            self._target.fed += len(data)
            self._drive(self._parser.feed, data)

    def _drive(self, act: Any, *data: bytes) -> None:
        try:
            act(*data)
        except self._error as error:
            raise self._target.problem or not_a_sitemap(f"XML that cannot be read ({str(error)[:200]})") from error

    def _taken(self) -> Iterator[SitemapEntry]:
        entries, self._target.entries = self._target.entries, []
        return iter(entries)


class _Target:
    """What libxml2 calls; an exception raised in here ends the parsing."""

    def __init__(self) -> None:
        self.lost = 0
        self.entries: list[SitemapEntry] = []
        self.problem: GiveUp | None = None
        self.fed = 0
        self.has_root = False
        self._told = 0
        self._path: list[str] = []
        self._url = self._date = ""
        self._text: list[str] | None = None
        self._size = 0  # of the text that is being read

    def start(self, tag: str, attributes: Any) -> None:
        name, path = tag.rpartition("}")[2], self._path
        if not path:
            self._check_root(name)
        path.append(name)
        if len(path) > MAX_XML_DEPTH:
            self._stop(GiveUp("too_complex", f"its elements are nested more than {MAX_XML_DEPTH} deep"))
        if name in _ENTRIES:
            self._url = self._date = ""
        elif name in _TEXTS and path[-2:-1] and path[-2] in _ENTRIES:
            self._text, self._size = [], 0
            if name == "link" and attributes.get("rel", "alternate") == "alternate":
                self._url = self._url or attributes.get("href", "")

    def data(self, text: str) -> None:
        self._told += len(text)
        if self._told > self.fed + MAX_EXPANDED:
            self._stop(GiveUp("too_complex", "its entities expand to far more than it has itself"))
        if self._text is not None and self._size <= MAX_LENGTH:
            self._size += len(text)
            self._text.append(text[: MAX_LENGTH + 1])

    def end(self, tag: str) -> None:
        path, name = self._path, tag.rpartition("}")[2]
        if path:
            path.pop()
        if name in _ENTRIES:
            self._end_entry(name)
        elif self._text is not None:
            text, self._text = "".join(self._text).strip(), None
            if name in ("loc", "link"):
                self._url = self._url or text
            elif not self._date or name in ("lastmod", "updated"):
                self._date = text

    def close(self) -> None:
        self.lost += any(name in _ENTRIES for name in self._path)  # it broke off in the middle of one

    def _check_root(self, name: str) -> None:
        if self.has_root:
            self._stop(not_a_sitemap("several documents in one"))
        self.has_root = True
        if name not in _ROOTS:
            what = "an HTML page" if name.lower() == "html" else f"XML of another kind, <{name[:40]}>"
            self._stop(not_a_sitemap(what))

    def _end_entry(self, name: str) -> None:
        if not self._url or len(self._url) > MAX_LENGTH or "\ufffd" in self._url:
            self.lost += 1
            return
        lastmod = self._date if parse_date(self._date) is not None else ""
        self.entries.append(SitemapEntry(self._url, lastmod, is_sitemap=name == "sitemap"))
        self._url = ""

    def _stop(self, problem: GiveUp) -> None:
        self.problem = problem
        raise problem
