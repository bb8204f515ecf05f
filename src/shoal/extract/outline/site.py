"""Site outline: from a few pages of a site to the template that reads it.

A site is either a collection, whose lists lead to items with a price or a date, or all of its pages are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from shoal.core.url import lane_of, path_of
from shoal.extract.links import is_trap
from shoal.extract.outline.fields import Fields, common_fields, has_evidence, is_in_content, title_field
from shoal.extract.outline.next_link import next_selector, next_url
from shoal.extract.outline.url_groups import UrlGroup, UrlPath, group_urls, is_page_url
from shoal.extract.page import Page
from shoal.extract.scope import url_matcher
from shoal.extract.template.model import FieldSpec, PageKind, PagingSpec, Selector, Template

MIN_ITEMS = 3  # links to items that make a page a list of them
MIN_SHARE = 0.5  # of a site's links must be below the start's folder for the crawl to stay there
MAX_PATTERNS = 6
GROUPS_TOLD = 20
MAX_LINKS = 2_000  # of one page: more say nothing new about its kind
URL_FIELD = FieldSpec(Selector("page", "final_url"), type="any")


class SiteSample:
    """The pages that were looked at, in that order; the first is the start."""

    def __init__(self, start: Page) -> None:
        self.pages: list[Page] = []
        self.start = start
        self.next_selector = ""  # of the links from one page of a list to the next
        self._lane = lane_of(start.url)
        self._links: dict[str, None] = {}  # of the start's host, each once, those of contents first
        self.add(start)

    def add(self, page: Page) -> None:
        self.pages.append(page)
        self._links |= dict.fromkeys(url for url in _content_first(page) if self.has(url))
        self.next_selector = self.next_selector or next_selector([page])

    @property
    def urls(self) -> list[str]:
        """The pages of the start's host that those link to."""
        return list(self._links)

    def has(self, url: str) -> bool:
        return lane_of(url) == self._lane and is_page_url(url) and not is_trap(url)

    def next_urls(self, pages: Iterable[Page]) -> list[str]:
        """Where the next links of some of the pages lead to."""
        selector = self.next_selector
        return [url for page in pages if (url := next_url(page, selector))] if selector else []

    def groups(self) -> list[UrlGroup]:
        paging = set(self.next_urls(self.pages))
        return group_urls(url for url in self._links if url not in paging)

    def pages_of(self, group: UrlGroup) -> list[Page]:
        wanted = set(group.urls)
        return [page for page in self.pages if page.url in wanted]


@dataclass(frozen=True)
class SiteOutline:
    template: Template
    pages: int  # looked at
    links: int  # to pages of the site, found on those
    groups: tuple[tuple[str, int], ...]  # pattern and how many links, the largest first
    is_collection: bool


def outline_site(name: str, sample: SiteSample) -> SiteOutline:
    """What is known of a site, as a template with patterns and selectors that match its pages."""
    groups = sample.groups()
    items = item_group(sample, groups)
    kinds = _page_kinds(sample) if items is None else _Collection(sample, items, groups).kinds
    return SiteOutline(
        Template(name, kinds, start=(sample.start.url,)),
        pages=len(sample.pages),
        links=len(sample.urls),
        groups=tuple((group.pattern, len(group.urls)) for group in groups[:GROUPS_TOLD]),
        is_collection=items is not None,
    )


def item_group(sample: SiteSample, groups: Sequence[UrlGroup]) -> UrlGroup | None:
    """The group of pages that are worth a record each, where a list leads to them."""
    found: list[tuple[bool, int, UrlGroup]] = []
    for group in groups:
        pages = sample.pages_of(group) if len(group.urls) >= MIN_ITEMS else []
        others = (page for page in sample.pages if page not in pages)
        if pages and any(_links_to(page, group) >= MIN_ITEMS for page in others):
            fields = common_fields(pages)
            if has_evidence(pages, fields):
                found.append((any(one.type == "price" for one in fields.values()), len(group.urls), group))
    best = max(found, key=lambda one: one[:2])[2] if found else None
    return _listed_by_start(sample, groups, best) or best


def _listed_by_start(sample: SiteSample, groups: Sequence[UrlGroup], best: UrlGroup | None) -> UrlGroup | None:
    """Of a site of several collections the one that is meant: that of the list which was named as the start."""
    folder = sample.start.url.rpartition("/")[0] + "/"
    if best is None or urlsplit(folder).path == "/" or _links_to(sample.start, best) >= MIN_ITEMS:
        return None
    below = [group for group in groups if all(url.startswith(folder) for url in group.urls)]
    listed = [(_links_to(sample.start, group), group) for group in below if sample.pages_of(group)]
    links, group = max(listed, key=lambda one: one[0], default=(0, None))
    return group if links >= MIN_ITEMS else None


class _Collection:
    """A site of lists and items."""

    def __init__(self, sample: SiteSample, items: UrlGroup, groups: Sequence[UrlGroup]) -> None:
        self._sample, self._items = sample, items
        self._lists = [page for page in sample.pages if self._is_list(page)]
        self._groups = [group for group in groups if group is not items]

    @cached_property
    def kinds(self) -> tuple[PageKind, ...]:
        pages = self._sample.pages_of(self._items)
        item = PageKind("item", match=(self._items.pattern,), fields=with_title(pages, common_fields(pages)))
        patterns = self._list_patterns()
        if not patterns:
            return (item,)
        paging = PagingSpec(Selector("css", self._sample.next_selector)) if self._sample.next_selector else None
        listing = PageKind("listing", match=patterns, usual=True, paging=paging)
        # The first kind that matches takes a page: whichever order takes fewer of the other's.
        is_usual = self._taken_wrongly(item) <= self._taken_wrongly(listing)
        return (item, listing) if is_usual else (listing, item)

    def _is_list(self, page: Page) -> bool:
        return page.url not in self._items.urls and _links_to(page, self._items) >= MIN_ITEMS

    def _list_patterns(self) -> tuple[str, ...]:
        """One for the groups all of whose pages are lists; else the paths of the pages that are."""
        lists = {page.url for page in self._lists}
        patterns: dict[str, None] = {}
        for group in self._groups:
            pages = self._sample.pages_of(group)
            known = [page for page in pages if page.url in lists]
            if len(known) >= 2 and len(known) == len(pages):
                patterns[group.pattern] = None
            else:
                patterns |= dict.fromkeys(path_of(page.url) for page in known)
        paging = group_urls(self._sample.next_urls(self._lists))
        patterns |= dict.fromkeys(group.pattern for group in paging)
        return tuple(patterns)[:MAX_PATTERNS]

    def _taken_wrongly(self, first: PageKind) -> int:
        others = [page.url for page in self._lists] if first.kind == "item" else self._items.urls
        return sum(_is_matched(url, first.match) for url in others)


def _page_kinds(sample: SiteSample) -> tuple[PageKind, ...]:
    """One kind, for the pages at and below the start's folder."""
    urls = [sample.start.url, *sample.urls]
    folder = UrlPath(sample.start.url).path.rpartition("/")[0] + "/"
    below = [url for url in urls if path_of(url).startswith(folder)]
    if len(below) < MIN_SHARE * len(urls):
        folder, below = "/", urls
    suffixes = Counter(UrlPath(url).suffix for url in below)
    patterns = [f"{folder}*"] if suffixes[""] else [f"{folder}*{suffix}" for suffix, _ in suffixes.most_common()]
    if not _is_matched(sample.start.url, patterns):
        patterns.append(UrlPath(sample.start.url).path)
    fields = {name: found for name, found in common_fields(sample.pages[:1]).items() if found.type != "price"}
    return (PageKind("page", match=tuple(patterns), fields=with_title(sample.pages, fields), usual=True),)


def with_title(pages: Sequence[Page], fields: Fields) -> Fields:
    return {"title": title_field(pages), **fields, "url": URL_FIELD}


def _content_first(page: Page) -> list[str]:
    """The links of a page, those of its content before those of menus."""
    inner: list[str] = []
    outer: list[str] = []
    for node in page.html.css("a[href]")[:MAX_LINKS] if page.is_html else ():
        url = page.absolute(node.attrs.sget("href"))
        if url is not None:
            (inner if is_in_content(node) else outer).append(url)
    return list(dict.fromkeys((*inner, *outer)))


def _links_to(page: Page, group: UrlGroup) -> int:
    wanted = set(group.urls)
    return sum(url in wanted for url in page.links())


def _is_matched(url: str, patterns: Iterable[str]) -> bool:
    return any(url_matcher(pattern)(url) for pattern in patterns)
