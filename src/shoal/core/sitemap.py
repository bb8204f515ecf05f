"""Sitemaps: what their entries are, how their dates read, and which URLs look like one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from shoal.core.task_kind import BUILT_IN_PREFIX

SITEMAP = f"{BUILT_IN_PREFIX}sitemap"  # the kind of a task that reads a sitemap, a feed, or robots.txt for them
ROBOTS_PATH = "/robots.txt"
NEST = "sitemap_depth"  # in the meta of such a task: how many indexes led to it
MARK = "sitemap:"  # in front of a start URL: it is a sitemap, or a site whose sitemaps are looked for
LOOK_FOR = "1"  # in place of a sitemap's URL: robots.txt names them
LASTMOD = "lastmod"  # in the meta of a page that a sitemap listed
MAX_NESTING = 5  # indexes in a row
_MAX_DATE = 40  # characters
_WEEK, _DAY = 7 * 86_400, 86_400

_is_sitemap_path = re.compile(
    r".*/[^/]*(?:sitemap|urlset)[^/]*\.(?:xml|txt)(?:\.gz)?|.*/(?:rss|atom|feed)\.xml|.*\.(?:rss|atom)", re.IGNORECASE
).fullmatch
_is_file = re.compile(r".*/[^/]+\.(?:xml|txt|rss|atom)(?:\.gz)?", re.IGNORECASE).fullmatch
_date = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?\s*(Z|[+-]\d\d:?\d\d)?)?)?)?"
).fullmatch


class SitemapEntry(NamedTuple):
    url: str  # as written
    lastmod: str = ""  # likewise, if it is a date
    is_sitemap: bool = False  # of an index: another sitemap


def unmarked(text: str) -> str:
    """A start URL without the mark that says that it is a sitemap."""
    text = text.strip()
    return text[len(MARK) :].strip() if text[: len(MARK)].lower() == MARK else text


def is_marked(text: str) -> bool:
    return text.strip()[: len(MARK)].lower() == MARK


def sitemap_of(url: str) -> str:
    """The URL to begin with, canonical as what is given: of a whole site it is robots.txt, which names its sitemaps."""
    start = url.find("/", 8)
    return url[:start] + ROBOTS_PATH if url[start:] == "/" else url


def looks_like_sitemap(url: str) -> bool:
    """Whether the name of a URL says that it is a sitemap or a feed."""
    path = url.partition("?")[0]
    return bool(_is_sitemap_path(path[path.find("/", 8) :])) or is_robots(url)


def may_be_sitemap(url: str) -> bool:
    """Whether a URL is that of a file in which there may be a sitemap or a feed, and not that of a page."""
    return bool(_is_file(url.partition("?")[0][8:])) or looks_like_sitemap(url)


def is_robots(url: str) -> bool:
    return url[url.find("/", 8) :] == ROBOTS_PATH


@lru_cache(1_000)  # most entries of a sitemap have the date of others
def parse_date(text: str) -> float | None:
    """Seconds since 1970 of a date as sitemaps (W3C) and feeds (RFC 822) write it; without a zone it is UTC."""
    text = text.strip()
    if not text or len(text) > _MAX_DATE:
        return None
    try:
        if found := _date(text):
            year, month, day, clock, zone = found.groups()
            iso = f"{year}-{month or '01'}-{day or '01'}T{clock or '00:00'}"
            moment = datetime.fromisoformat(iso + (zone or "Z"))
        else:
            from email.utils import parsedate_to_datetime  # late: only feeds need it

            moment = parsedate_to_datetime(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def is_date(text: str) -> bool:
    """Whether a person means a day, or a moment of one; "2024" is a number of seconds."""
    return "-" in text and parse_date(text) is not None


def priority_by_age(lastmod: float | None, now: float) -> int:
    """What changed lately comes first."""
    if lastmod is None or lastmod > now + _DAY:  # a date in the future says nothing
        return 0
    return 2 if lastmod > now - _DAY else 1 if lastmod > now - _WEEK else 0
