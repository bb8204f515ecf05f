"""CrawlScope: which URLs belong to a run, by host, by site and by pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from shoal.core.glob import url_glob
from shoal.core.sitemap import unmarked
from shoal.core.url import canonical, host_of, lane_of, path_of
from shoal.errors import InvalidUrl

MAX_CACHED = 10_000
# In a lane, a host of digits and dots is an IPv4 address.
_is_ip_address = re.compile(r"\[.*\]|[0-9.]+").fullmatch


class CrawlScope:
    """Start hosts and named hosts; their whole sites, or everything, where that is asked for.

    `hosts` are written as lanes are, or "*.example.com", or "*".
    """

    def __init__(
        self,
        start: Iterable[str] = (),
        *,
        hosts: Iterable[str] = (),
        reach: str = "host",
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
    ) -> None:
        hosts = tuple(hosts)
        urls = tuple(_canonical(start))
        self._lanes = frozenset((*map(lane_of, urls), *(host for host in hosts if host[:1] != "*")))
        self._endings = tuple(host[1:] for host in hosts if host[:2] == "*.")
        self._any = reach == "any" or "*" in hosts
        self._sites = frozenset(map(site_of, self._lanes)) if reach == "site" else frozenset()
        self._same_site: dict[str, bool] = {}
        self._include = tuple(map(url_matcher, include))
        self._exclude = tuple(map(url_matcher, exclude))
        self._start = frozenset(urls) if self.has_patterns else frozenset()

    def allows_lane(self, lane: str) -> bool:
        """Whether a host (with its port, if that is not the usual one) belongs to the run."""
        if self._any or lane in self._lanes:
            return True
        if self._endings and lane.endswith(self._endings):
            return True
        return bool(self._sites) and self._in_site(lane)

    @property
    def has_patterns(self) -> bool:
        return bool(self._include or self._exclude)

    def allows(self, url: str) -> bool:
        """Whether the patterns let a canonical URL through, whatever its host; they spare start URLs."""
        if url in self._start:
            return True
        if any(matches(url) for matches in self._exclude):
            return False
        return not self._include or any(matches(url) for matches in self._include)

    def reason(self, url: str, lane: str) -> str:
        """Why a link is not followed: "scope", or nothing."""
        return "" if self.allows_lane(lane) and self.allows(url) else "scope"

    def _in_site(self, lane: str) -> bool:
        known = self._same_site.get(lane)
        if known is None:
            if len(self._same_site) >= MAX_CACHED:
                self._same_site.clear()
            known = self._same_site[lane] = site_of(lane) in self._sites
        return known


def site_of(lane: str) -> str:
    """The registrable domain of a lane by the public suffix list, or its host where it has none."""
    host = host_of(f"http://{lane}/").rstrip(".")
    if _is_ip_address(host) or "." not in host:
        return host
    return _public_suffix_list().privatesuffix(host) or host


def glob(pattern: str) -> Callable[[str], bool]:
    """A matcher in which "*" is any text; what is not ASCII is escaped as it is in canonical URLs."""
    return url_glob(pattern).fullmatch


def url_matcher(pattern: str) -> Callable[[str], bool]:
    """A test of canonical URLs against a glob.

    A pattern with "://" is compared with the whole URL, any other with path and query or the
    path alone.
    """
    matches_glob = glob(pattern)
    if "://" in pattern:
        return matches_glob

    def path_matches(url: str) -> bool:
        path = path_of(url)
        return matches_glob(path) or ("?" in path and matches_glob(path.partition("?")[0]))

    return path_matches


@cache
def _public_suffix_list() -> Any:
    from publicsuffixlist import PublicSuffixList  # late: reading the list takes a while, few runs need it

    return PublicSuffixList()


def _canonical(urls: Iterable[str]) -> Iterable[str]:
    for url in urls:
        try:
            yield canonical(unmarked(url))
        except InvalidUrl:  # it is refused when the run starts, with its reason
            continue
