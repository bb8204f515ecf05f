"""Follow rules: which links of a page a template wants visited, and what travels along them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from selectolax.lexbor import LexborNode

from shoal.extract.scraper import Scraper
from shoal.extract.selection import note_miss
from shoal.extract.template import model, selectors
from shoal.extract.template.extractors import RecordExtractor, element_language
from shoal.extract.template.page_view import PageView

if TYPE_CHECKING:
    from shoal.extract.page import Follow

PAGING = "_paging"  # in meta: which page of its chain a page is, from 1
_LINKS = "a[href], area[href]"


class FollowRule:
    __slots__ = ("_each", "_find", "_match", "_meta", "rule")

    def __init__(self, rule: model.FollowSpec) -> None:
        self.rule = rule
        context = element_language(rule.each.language) if rule.each else None
        self._each = selectors.finder(rule.each, None) if rule.each else None
        self._find = selectors.finder(rule.at, context) if rule.at else None
        self._match = any_pattern_matcher(rule.match) if rule.match else None
        self._meta = RecordExtractor(rule.meta, context) if rule.meta else None

    def follows(self, view: PageView) -> Iterator[Follow]:
        left = self.rule.max or -1
        for here in self._each(view, None) if self._each else (None,):
            hrefs = self._hrefs(view, here)
            if left >= 0:
                hrefs = hrefs[:left]
                left -= len(hrefs)
            if hrefs:
                meta = self._meta.read(view, here) if self._meta else None
                rule = self.rule
                yield from view.page.follow(hrefs, meta=meta, priority=rule.priority, ttl=rule.ttl, ack=rule.ack)
            if not left:
                return

    def _hrefs(self, view: PageView, here: Any) -> list[str]:
        if self._find is not None:
            hrefs = hrefs_of(self._find(view, here))
            if not hrefs:
                note_miss(view.page, str(self.rule.at))
        elif here is not None:
            hrefs = hrefs_of([here])
        else:
            return [url for url in view.page.links() if self._match is None or self._match(url)]
        if self._match is None:
            return hrefs
        urls = dict.fromkeys(map(view.absolute, hrefs))
        return [url for url in urls if url is not None and self._match(url)]


class PagingRule:
    __slots__ = ("_find", "_max")

    def __init__(self, rule: model.PagingSpec) -> None:
        self._find = selectors.finder(rule.next, None)
        self._max = rule.max

    def follows(self, view: PageView) -> Iterable[Follow]:
        meta, number = view.page.meta, 1
        if self._max:
            came = meta.get(PAGING, 1)
            number = came if isinstance(came, int) else 1
            if number >= self._max:
                return ()
            meta = {**meta, PAGING: number + 1}
        # What came along to the first page of a chain holds for all of it.
        return view.page.follow(hrefs_of(self._find(view, None))[:1], meta=meta or None, priority=1)


def hrefs_of(items: Iterable[Any]) -> list[str]:
    """The links that found things are or hold, each once."""
    hrefs: dict[str, None] = {}
    for item in items:
        if isinstance(item, LexborNode):
            attributes = item.attrs
            if href := attributes.sget("href"):
                hrefs[href] = None
            elif "href" not in attributes:
                hrefs |= dict.fromkeys(inner.attrs.sget("href") for inner in item.css(_LINKS))
        elif isinstance(item, str):
            hrefs[item] = None
        elif hasattr(item, "itertext"):
            own = item.get("href")
            hrefs |= dict.fromkeys([own] if own is not None else item.xpath(".//a/@href | .//area/@href"))
    hrefs.pop("", None)
    return list(hrefs)


def any_pattern_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a canonical URL matches any of the patterns, as those of page kinds do."""
    judge = Scraper("patterns")
    for pattern in patterns:
        judge.page(pattern)(any_pattern_matcher)
    return judge.matches
