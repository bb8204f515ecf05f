"""What a run counts as its tasks are settled, by name: what fetching took, and how records are filled.

Names are fetch.FETCHER.EXIT.WHAT (WHAT: responses, bytes, us, cpu_us, browser_us), field.NAME.TYPE (a JSON type, or
empty); of pages without a record where no page had any yet, empty.pages, empty.links and empty.selector.SELECTOR; where
pages are compared with those of the run before, recrawl.CHANGE, recrawl.not_modified and recrawl.not_asked; of runs
with a cache, cache.hits, cache.revalidated, cache.misses, and cache.bytes, of bodies that were not fetched;
of sitemaps sitemap.read, sitemap.entries, sitemap.lost (entries) and sitemap.cut (files with more than are read);
of runs that keep records unique unique.yielded; and of pages with fetch="auto" auto.http, auto.browser, auto.compared
(by both), auto.no_browser (by HTTP, as no worker had one) and auto.handed_on (to a worker with one); of blocks
block.FETCHER.EXIT (block pages), block.odd (pages that were asked for a second time) and block.handed_on (to the way
that on_block says); and noticed.FETCHER.EXIT, pages that count although they look like block pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from shoal.core.stats import Stats

FIELD_PREFIX = "field."  # of what is counted of records: it counts only where they do
FETCH_PREFIX = "fetch."
_RESPONSES = ".responses"
EMPTY_PREFIX = "empty."
_RECRAWL_PREFIX = "recrawl."
CACHE_PREFIX = "cache."
SITEMAP_PREFIX = "sitemap."
_AUTO_PREFIX = "auto."
BLOCK_PREFIX = "block."
BLOCK_ODD = f"{BLOCK_PREFIX}odd"
BLOCK_HANDED_ON = f"{BLOCK_PREFIX}handed_on"
_NOTICED_PREFIX = "noticed."
UNCHANGED = f"{_RECRAWL_PREFIX}unchanged"
HITS = f"{CACHE_PREFIX}hits"
UNIQUE_YIELDED = "unique.yielded"  # records before those were dropped that others had the key of
_SELECTOR_PREFIX = f"{EMPTY_PREFIX}selector."
MAX_SELECTOR = 80  # letters of a selector that found nothing; the rest is cut off
MAX_SELECTORS = 5  # of one page
OTHER = "other"  # what was counted under names that a run had no room for
EMPTY = "empty"
MAX_FIELD_NAME = 60  # letters of a field's name; the rest is cut off
MAX_FIELDS = 60  # counted of one page; what else its records have is counted as other

_SCALARS: dict[type, str] = {str: "string", int: "number", float: "number", bool: "boolean"}
_CONTAINERS: dict[type, str] = {dict: "object", list: "array"}
_OTHER_FIELDS = f"{FIELD_PREFIX}{OTHER}"
_decode = msgspec.json.Decoder().decode


class FieldFill(msgspec.Struct, frozen=True):
    """How often a field has a value, of the records that have the field at all."""

    filled: int
    total: int
    types: dict[str, int]  # by JSON type, of those that are filled


def count_fields(records: Iterable[bytes]) -> dict[str, int]:
    """How many of these records have which field, and of which type."""
    counts: dict[str, int] = {}
    for record in records:
        for field, value in _decode(record).items():
            kind = _SCALARS.get(type(value))
            if kind is None or value == "":
                kind = EMPTY if is_empty(value) else _CONTAINERS[type(value)]
            name = _field_name(field, kind)
            if name in counts:
                counts[name] += 1
            elif len(counts) < MAX_FIELDS:
                counts[name] = 1
            else:
                counts[_OTHER_FIELDS] = counts.get(_OTHER_FIELDS, 0) + 1
    return counts


@lru_cache(4096)
def _field_name(field: str, kind: str) -> str:
    return f"{FIELD_PREFIX}{field[:MAX_FIELD_NAME]}.{kind}"


def is_empty(value: Any) -> bool:
    """Whether a field with this value counts as not filled."""
    if value is None or value == "":
        return True
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return isinstance(value, list) and all(map(is_empty, value))


def field_fill(counters: Mapping[str, int]) -> dict[str, FieldFill]:
    """Fields by name, as they were first seen."""
    found: dict[str, dict[str, int]] = {}
    for name, number in counters.items():
        field, dot, kind = name.removeprefix(FIELD_PREFIX).rpartition(".")
        if name.startswith(FIELD_PREFIX) and dot:
            found.setdefault(field, {})[kind] = number
    return {
        field: FieldFill(
            sum(types.values()) - types.get(EMPTY, 0),
            sum(types.values()),
            {kind: number for kind, number in types.items() if kind != EMPTY},
        )
        for field, types in found.items()
    }


def count_empty_page(links: int, selectors: Iterable[str]) -> dict[str, int]:
    """A page that gave no record: how many links it has, and the selectors that found nothing on it."""
    missed = (f"{_SELECTOR_PREFIX}{selector[:MAX_SELECTOR]}" for selector in islice(selectors, MAX_SELECTORS))
    return {f"{EMPTY_PREFIX}pages": 1, f"{EMPTY_PREFIX}links": links, **dict.fromkeys(missed, 1)}


class EmptyPages(msgspec.Struct, frozen=True):
    """What is known of the pages that were read before any gave a record."""

    pages: int
    links: int
    selectors: tuple[tuple[str, int], ...]  # that found nothing, and on how many of them; the most first


def empty_pages(counters: Mapping[str, int]) -> EmptyPages:
    start = len(_SELECTOR_PREFIX)
    missed = [(name[start:], number) for name, number in counters.items() if name.startswith(_SELECTOR_PREFIX)]
    return EmptyPages(
        counters.get(f"{EMPTY_PREFIX}pages", 0),
        counters.get(f"{EMPTY_PREFIX}links", 0),
        tuple(sorted(missed, key=lambda pair: -pair[1])),
    )


class PageChanges(msgspec.Struct, frozen=True):
    """How many of a run's pages are as they were in the run before."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    not_modified: int = 0  # of the unchanged: their server said so
    not_asked: int = 0  # of the unchanged: their site had said when they were last changed

    @property
    def pages(self) -> int:
        return self.new + self.changed + self.unchanged


def is_recrawl_count(name: str) -> bool:
    return name.startswith(_RECRAWL_PREFIX)


def count_page_change(*names: str) -> dict[str, int]:
    """One page; the names are those of PageChanges."""
    return {f"{_RECRAWL_PREFIX}{name}": 1 for name in names}


def page_changes(counters: Mapping[str, int]) -> PageChanges:
    return PageChanges(*(counters.get(f"{_RECRAWL_PREFIX}{name}", 0) for name in PageChanges.__struct_fields__))


class CacheUsage(msgspec.Struct, frozen=True):
    """How often the cache had a response: fresh, or unchanged as the site said; and the bytes that were not fetched."""

    hits: int
    revalidated: int
    misses: int
    bytes: int

    @property
    def hit_rate(self) -> float:
        """The share of requests for which nobody was asked."""
        requests = self.hits + self.revalidated + self.misses
        return self.hits / requests if requests else 0.0


_USAGE_NAMES = tuple(f"{CACHE_PREFIX}{name}" for name in CacheUsage.__struct_fields__)


def count_hit(size: int) -> dict[str, int]:
    return {HITS: 1, f"{CACHE_PREFIX}bytes": size}


def count_miss(outcome: str) -> dict[str, int]:
    """Of a response that was fetched; nothing where no cache was asked."""
    name = {"miss": "misses", "revalidated": "revalidated"}.get(outcome)
    return {f"{CACHE_PREFIX}{name}": 1} if name else {}


def cache_usage(counters: Mapping[str, int]) -> CacheUsage | None:
    """None for a run without a cache."""
    found = [counters.get(name, 0) for name in _USAGE_NAMES]
    return CacheUsage(*found) if any(found) else None


class FetchUsage(msgspec.Struct, frozen=True):
    """What the responses of one fetcher through one exit came to."""

    fetcher: str
    exit: str
    responses: int
    bytes: int
    seconds: float  # that were waited for them, together
    cpu_seconds: float
    browser_seconds: float = 0.0  # for which tabs were open


def fetch_usage(counters: Mapping[str, int]) -> list[FetchUsage]:
    """By fetcher and exit, the most used first."""
    found: dict[str, dict[str, int]] = {}
    for name, number in counters.items():
        way, dot, what = name.removeprefix(FETCH_PREFIX).rpartition(".")
        if name.startswith(FETCH_PREFIX) and dot:
            found.setdefault(way, {})[what] = number
    usage = [
        FetchUsage(
            *way.partition(".")[::2],
            count.get("responses", 0),
            count.get("bytes", 0),
            count.get("us", 0) / 1e6,
            count.get("cpu_us", 0) / 1e6,
            count.get("browser_us", 0) / 1e6,
        )
        for way, count in found.items()
    ]
    return sorted(usage, key=lambda one: -one.responses)


def responses_of(counters: Mapping[str, int]) -> int:
    """How many there were, by any fetcher."""
    return sum(
        number for name, number in counters.items() if name.startswith(FETCH_PREFIX) and name.endswith(_RESPONSES)
    )


class AutoUsage(msgspec.Struct, frozen=True):
    """How the pages with fetch="auto" were fetched."""

    http: int = 0
    browser: int = 0
    compared: int = 0  # by both
    no_browser: int = 0  # by HTTP: no worker had a browser
    handed_on: int = 0  # to a worker with a browser, where they count again


def count_auto(way: str) -> dict[str, int]:
    """One page; the names are those of AutoUsage."""
    return {f"{_AUTO_PREFIX}{way}": 1}


def auto_usage(counters: Mapping[str, int]) -> AutoUsage | None:
    """None for a run without such pages."""
    found = [counters.get(f"{_AUTO_PREFIX}{name}", 0) for name in AutoUsage.__struct_fields__]
    return AutoUsage(*found) if any(found) else None


class BlockUsage(msgspec.Struct, frozen=True):
    """How many answers of one fetcher by one exit were block pages."""

    fetcher: str
    exit: str
    blocked: int
    responses: int

    @property
    def share(self) -> float:
        return min(1.0, self.blocked / self.responses) if self.responses else 0.0


def count_block(fetcher: str, exit: str, *, is_odd: bool = False) -> dict[str, int]:
    """A block page; or one that is asked for again before that is decided."""
    return {BLOCK_ODD: 1} if is_odd else {f"{BLOCK_PREFIX}{fetcher}.{exit}": 1}


def block_way(counters: Mapping[str, int]) -> str:
    """By what a block page came; empty: there is none."""
    for name in counters:
        if name.startswith(BLOCK_PREFIX) and name not in (BLOCK_ODD, BLOCK_HANDED_ON):
            return name.removeprefix(BLOCK_PREFIX).replace(".", " ", 1)
    return ""


def count_noticed(fetcher: str, exit: str) -> dict[str, int]:
    """A page that counts although it looks like a block page."""
    return {f"{_NOTICED_PREFIX}{fetcher}.{exit}": 1}


def is_noticed(counters: Mapping[str, int]) -> bool:
    """Whether a page was one."""
    return any(name.startswith(_NOTICED_PREFIX) for name in counters)


def noticed_usage(counters: Mapping[str, int]) -> list[BlockUsage]:
    """Pages that look like block pages, as block_usage tells those that were kept out."""
    return _usage_by_way(counters, _NOTICED_PREFIX)


def block_usage(counters: Mapping[str, int]) -> list[BlockUsage]:
    """By fetcher and exit, the most first; none where nothing was blocked."""
    return _usage_by_way(counters, BLOCK_PREFIX)


def _usage_by_way(counters: Mapping[str, int], prefix: str) -> list[BlockUsage]:
    responses = {(one.fetcher, one.exit): one.responses for one in fetch_usage(counters)}
    found = []
    for name, number in counters.items():
        if name.startswith(prefix) and name not in (BLOCK_ODD, BLOCK_HANDED_ON):
            fetcher, _, exit = name.removeprefix(prefix).partition(".")
            total = responses.get((fetcher, exit)) or responses.get(("http", exit), 0)
            found.append(BlockUsage(fetcher, exit, number, max(total, number)))
    return sorted(found, key=lambda one: -one.blocked)


_SITEMAP_COUNTS = ("read", "entries", "lost", "cut")


class SitemapUsage(msgspec.Struct, frozen=True):
    """What the sitemaps of a run came to."""

    read: int
    entries: int  # listed in them, URLs of pages and of further sitemaps
    lost: int  # entries that could not be read
    cut: int  # sitemaps with more entries than are read
    failed: int = 0  # for good


def sitemap_usage(counters: Mapping[str, int], stats: Stats) -> SitemapUsage | None:
    """None where none was read, and none failed."""
    read, entries, lost, cut = (counters.get(f"{SITEMAP_PREFIX}{what}", 0) for what in _SITEMAP_COUNTS)
    # Both bounds: what is asked for after the other may have gone on meanwhile.
    failed = max(0, min(stats.aside - read, stats.failed))
    return SitemapUsage(read, entries, lost, cut, failed) if read or failed else None


def add_bounded(counters: dict[str, int], more: Mapping[str, int], room: int) -> None:
    """Add counts to those of a run, which has room for so many names."""
    for name, number in more.items():
        if name not in counters and name != OTHER and len(counters) - (OTHER in counters) >= room:
            name = OTHER
        counters[name] = counters.get(name, 0) + number
