"""LinkFilter: decides which links of a page become tasks, at next to no cost for links seen before.

A crawl meets each link dozens of times. What this worker has settled or refused already is dropped
by set arithmetic on the links as they are written, before anything is resolved.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from shoal.core.routes import Routes, with_exit
from shoal.core.task import RequestOptions, Task, built_in_digest, digest
from shoal.core.task_kind import PAGE, page_kind
from shoal.core.url import Resolver, UrlNormalizer, has_other_scheme, lane_of, path_of, request_digest
from shoal.core.url_shape import ShapeCounter

if TYPE_CHECKING:
    from shoal.extract.page import Follow

MAX_PATH = 2_000
MAX_SEGMENTS = 30
MAX_REPEATS = 5
MAX_AGAIN = 100  # pages in a row that are asked for again

JUDGED_PER_SEEN = 3  # links as written: of a URL there are some

_NONE: frozenset[str] = frozenset()
_userinfo = re.compile(r"//[^/?#]*@")  # passwords are neither kept nor shown
_REFUSED = "refused"  # names of groups that cannot be origins
_TOO_DEEP = "depth"
_OTHER_HOST = "elsewhere"  # out of scope as a link of this host only
_WITH_OPTIONS = "asked"
_UNHANDLED = "unhandled"  # such a link may still be followed, if a handler asks for it
MAX_UNHANDLED = 500  # links of one page that are remembered as such


class AdmittedLinks(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # (reason, url), each link once


class FingerprintTable:
    """128-bit fingerprints of strings in a table of fixed size: a new one takes the place of whoever had it.

    The two halves are Python's own hash of the string and of the string with one letter more: keyed, at
    no cost to speak of, and together far too long to meet by chance.
    """

    __slots__ = ("_mask", "_table")

    def __init__(self, bits: int = 19) -> None:
        self._mask = ((1 << bits) - 1) << 1
        self._table = array("q", bytes(16 << bits))

    def add(self, group: str, key: str) -> None:
        one, other = hash(key) ^ hash(group), hash(key + "+") ^ hash(group)
        at = one & self._mask
        self._table[at] = one
        self._table[at + 1] = other

    def has(self, group: str, key: str) -> bool:
        one = hash(key) ^ hash(group)
        at = one & self._mask
        return self._table[at] == one and self._table[at + 1] == hash(key + "+") ^ hash(group)


class SeenLinks:
    """Strings in named groups: some as they are, in two generations, and many more as fingerprints.

    What lies there as a string is found by set arithmetic, a whole page of links at once; what a full
    young generation pushed out is still known by its fingerprint. Neither grows beyond its bound.
    """

    __slots__ = ("_count", "_fingerprints", "_half", "_old", "_young")

    def __init__(self, size: int) -> None:
        self._half = max(size // 2, 1)
        self._count = 0
        self._young: dict[str, set[str]] = {}
        self._old: dict[str, set[str]] = {}
        self._fingerprints = FingerprintTable()

    def add(self, group: str, key: str) -> None:
        keys = self._young.get(group)
        if keys is None:
            keys = self._young[group] = set()
            self._count += 3  # an empty group takes the memory of a few strings
        if key not in keys:
            self._fingerprints.add(group, key)
            keys.add(key)
            self._count += 1 + len(key) // 128  # so that long links do not outgrow the bound
            if self._count >= self._half:
                self._old, self._young, self._count = self._young, {}, 0

    def has(self, group: str, key: str) -> bool:
        return (
            key in self._young.get(group, _NONE)
            or key in self._old.get(group, _NONE)
            or self._fingerprints.has(group, key)
        )

    def unseen(self, group: str, keys: Iterable[str]) -> set[str]:
        """Which keys do not lie there as strings."""
        # One difference at a time: with two arguments CPython would walk all of the second set.
        return set(keys).difference(self._young.get(group, _NONE)).difference(self._old.get(group, _NONE))

    def drop_known(self, group: str, fresh: set[str], keys: Iterable[tuple[str, str]]) -> None:
        """Take out of `fresh` what is known under another key, or by its fingerprint."""
        young, old, known = self._young.get(group, _NONE), self._old.get(group, _NONE), self._fingerprints.has
        for name, key in keys:
            if key in young or key in old or known(group, key):
                fresh.discard(name)

    def __len__(self) -> int:
        return sum(len(keys) for part in (self._young, self._old) for keys in part.values())


class JudgedLinks:
    """Links as they are written on the pages of a directory, that lead to nothing new from any of them.

    A page that has no others is done with in one step. At the bound all are forgotten: soon most are known again.
    """

    __slots__ = ("_count", "_links", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._links: dict[str, set[str]] = {}

    def of(self, directory: str) -> set[str] | frozenset[str]:
        return self._links.get(directory, _NONE)

    def add(self, directory: str, hrefs: set[str]) -> None:
        size = 3 + len(hrefs) + sum(map(len, hrefs)) // 128  # long ones count for several
        if self._count + size > self._most:
            self._links, self._count = {}, 0
        if size <= self._most:
            self._links.setdefault(directory, set()).update(hrefs)
            self._count += size


class LinkFilter:
    """Admits the links of pages of one run, as one worker sees them.

    In the group of an origin are paths of its known URLs and links as written on its pages that do
    not depend on the page they stand on. Both are looked up the same way, for a canonical path,
    written as a link, leads to itself; the exception, "//…", is kept as a full URL.
    """

    def __init__(
        self,
        scope: Callable[[str], bool],
        max_depth: int | None,
        robots_allows: Callable[[str, str], bool | None],
        cache_size: int = 10_000,
        *,
        disallowed: str = "robots",
        rewrite: UrlNormalizer | None = None,
        allow: Callable[[str], bool] | None = None,
        shapes: ShapeCounter | None = None,
        routes: Routes | None = None,
    ) -> None:
        self._scope = scope
        self._max_depth = max_depth
        self._robots_allows = robots_allows
        self._disallowed = disallowed  # the reason where it says no
        self._rewrite = rewrite or None  # a Rewrite without anything to do is false
        self._allow = allow
        self._shapes = shapes
        self._routes = routes or None  # without a single rule it is false
        self._seen = SeenLinks(cache_size)
        self._judged = JudgedLinks(JUDGED_PER_SEEN * cache_size)
        self._has_refused = False  # a URL, for whatever reason
        self._resolver = Resolver("http://localhost/")

    def admit(
        self,
        follows: Iterable[Follow],
        *,
        depth: int,
        parent: int | None,
        origin_url: str,
        again: int = 0,
        listed: bool = False,
    ) -> AdmittedLinks:
        """New tasks for what a page wants followed, and what is refused for the first time.

        A page's own host is always in scope: a start URL may have been redirected there.
        again: how many pages in a row, this one included, were asked for again. listed: by the site itself, so that
        many of one shape are no trap; most are new, so the queue is asked at once which are not.
        """
        tasks: list[Task] = []
        skipped: list[tuple[str, str]] = []
        seen = {origin_url}
        if self._rewrite is not None:
            seen.add(self._rewrite(origin_url))
        for follow in follows:
            resolver = self._resolver_for(follow.base)
            request_options = follow.request_options
            is_plain = request_options is None and not follow.handler and not follow.again and not follow.kind
            fresh = self._fresh(resolver, follow.hrefs) if is_plain and not listed else set(follow.hrefs)
            if not fresh:
                continue
            for href in follow.hrefs:
                if href not in fresh:
                    continue
                fresh.discard(href)
                url = self._new_url(resolver, href, skipped, is_plain and not listed)
                if url is None:
                    continue
                key = url if is_plain else _digest(url, follow, parent).hex()
                if key in seen or (not is_plain and self._seen.has(_WITH_OPTIONS, key)):
                    continue
                seen.add(key)
                lane = lane_of(url)
                if reason := self._rejection_reason(url, lane, depth, origin_url, follow, listed):
                    self._reject(reason, url, resolver, href, skipped)
                elif follow.again and again >= MAX_AGAIN:
                    skipped.append(("trap", url))
                else:
                    task = _task(url, lane, depth + 1, parent, follow, again)
                    tasks.append(with_exit(task) if self._routes is None else _routed(self._routes, task, follow))
        return AdmittedLinks(tuple(tasks), tuple(skipped))

    def note_unhandled(self, urls: Iterable[str], *, origin_url: str) -> tuple[tuple[str, str], ...]:
        """Links of a page without a handler to pages that have none either: what was skipped for the first time."""
        own, found = lane_of(origin_url), []
        for url in islice(urls, MAX_UNHANDLED):
            lane = lane_of(url)
            if (lane == own or self._scope(lane)) and url != origin_url and not self._seen.has(_UNHANDLED, url):
                self._seen.add(_UNHANDLED, url)
                found.append(("no_handler", url))
        return tuple(found)

    def mark_committed(self, tasks: Iterable[Task]) -> None:
        """Remember tasks whose adding was acknowledged: only then may their links be dropped."""
        for task in tasks:
            options = task.request_options
            if task.kind != PAGE or (options is not None and not options.is_plain):
                self._seen.add(_WITH_OPTIONS, task.digest.hex())  # the plain page at the URL is another task
                continue
            self._seen.add(*_place(task.url))

    def _resolver_for(self, base: str) -> Resolver:
        if self._resolver.base != base:  # a handler often follows link by link
            self._resolver = Resolver(base)
        return self._resolver

    def _fresh(self, resolver: Resolver, hrefs: Sequence[str]) -> set[str]:
        """Which links of a page are not known by what is written."""
        judged = self._judged.of(resolver.directory)
        if judged.issuperset(hrefs):
            return set()
        unjudged = set(hrefs).difference(judged)
        fresh = self._seen.unseen(resolver.origin, unjudged)
        if fresh:
            self._seen.drop_known(resolver.origin, fresh, resolver.paths(tuple(fresh)))
        if judged_now := unjudged - fresh:
            self._judged.add(resolver.directory, judged_now)
        return fresh

    def _new_url(self, resolver: Resolver, href: str, skipped: list[tuple[str, str]], look_up: bool) -> str | None:
        """The URL of a link that has still to be judged."""
        url = resolver.resolve(href)
        if url is None:
            self._skip_unusable(resolver, href, skipped)
            return None
        if self._rewrite is not None:
            url = self._rewrite(url)
        if (look_up and self._seen.has(*_place(url))) or (self._has_refused and self._seen.has(_REFUSED, url)):
            self._remember_href(resolver, href)
            return None
        return url

    def _rejection_reason(self, url: str, lane: str, depth: int, origin_url: str, follow: Follow, listed: bool) -> str:
        """Why a URL does not become a task, or nothing."""
        if not self._scope(lane) and lane != lane_of(origin_url):
            return _OTHER_HOST
        if self._allow is not None and not follow.kind and not self._allow(url):
            return "scope"
        if is_trap(url):
            return "trap"
        # Whether a page was stored is known by its plain URL only.
        if (follow.request_options is None or self._disallowed == "robots") and self._robots_allows(lane, url) is False:
            return self._disallowed
        if self._max_depth is not None and depth >= self._max_depth:
            return _TOO_DEEP
        # Last, for it counts what it lets through.
        return "" if listed or self._shapes is None or self._shapes.admit(url) else "trap"

    def _reject(self, reason: str, url: str, resolver: Resolver, href: str, skipped: list[tuple[str, str]]) -> None:
        if reason == _TOO_DEEP:
            self._too_deep(url, skipped)
            return
        if reason == _OTHER_HOST:  # the other host's own pages may well follow it
            skipped.append(("scope", url))
        else:
            self._remember_refused(reason, url, skipped)
        self._remember_href(resolver, href)

    def _skip_unusable(self, resolver: Resolver, href: str, skipped: list[tuple[str, str]]) -> None:
        # mailto: and the like are no pages, and "#top" is this page: nothing was refused.
        if has_other_scheme(href) or not href.partition("#")[0].strip():
            if len(href) <= MAX_PATH:
                self._seen.add(resolver.origin, href)
            return
        shown = _userinfo.sub("//", href[:200])
        if not self._seen.has(_REFUSED, shown):
            self._remember_refused("invalid", shown, skipped)

    def _remember_refused(self, reason: str, url: str, skipped: list[tuple[str, str]]) -> None:
        skipped.append((reason, url))
        self._has_refused = True
        self._seen.add(_REFUSED, url)

    def _too_deep(self, url: str, skipped: list[tuple[str, str]]) -> None:
        # Not refused for good: the same link may stand on a page nearer to the start.
        if not self._seen.has(_TOO_DEEP, url):
            skipped.append(("depth", url))
            self._seen.add(_TOO_DEEP, url)

    def _remember_href(self, resolver: Resolver, href: str) -> None:
        """Remember a link as written, if it leads to the same URL from every page of the origin."""
        if href[0] == "/" or href.startswith(("http://", "https://")):
            self._seen.add(resolver.origin, href)


def _place(url: str) -> tuple[str, str]:
    """The group and the key by which a URL is known."""
    path = path_of(url)
    return url[: len(url) - len(path)], path if path[1:2] != "/" else url


def is_trap(url: str) -> bool:
    """Whether the path of a canonical URL looks like an endless maze."""
    path = path_of(url).partition("?")[0]
    if len(path) > MAX_PATH:
        return True
    if path.count("/") <= MAX_REPEATS:
        return False
    segments: Sequence[str] = path.split("/")[1:]
    return len(segments) > MAX_SEGMENTS or max(Counter(segments).values()) > MAX_REPEATS


def _digest(url: str, follow: Follow, parent: int | None) -> bytes:
    """The identity of a task that is not the plain page at its URL; again: once for each page that asks."""
    request = request_digest(url, follow.request_options)
    if follow.kind:
        return built_in_digest(follow.kind, request)
    if not follow.handler and not follow.again:
        return request
    return digest(f"{page_kind(follow.handler)} {parent if follow.again else ''} {request.hex()}")


def _task(url: str, lane: str, depth: int, parent: int | None, follow: Follow, again: int) -> Task:
    options = follow.request_options
    if follow.again:
        options = msgspec.structs.replace(options or RequestOptions(), again=again + 1)
    return Task(
        url=url,
        lane=lane,
        digest=_digest(url, follow, parent),
        kind=follow.kind or page_kind(follow.handler),
        priority=follow.priority or 0,
        depth=depth,
        parent=parent,
        meta=follow.meta,
        ttl=follow.ttl,
        request_options=options,
        ack=follow.ack or "manual",
        needs=follow.needs,
        revisit=bool(follow.kind),  # what only finds URLs is asked for what is new, whatever a seen-set has
    )


def _routed(routes: Routes, task: Task, follow: Follow) -> Task:
    return routes.admit(task, keep_priority=follow.priority is not None, keep_ack=follow.ack is not None)
