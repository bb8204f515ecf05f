"""LinkGate: decides which links of a page become tasks, at next to no cost for links seen before.

A crawl meets each link dozens of times. What this worker has settled or refused already is dropped
by set arithmetic on the links as they are written, before anything is resolved.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.core.shape import Shapes
from shoal.core.task import Ask, Task
from shoal.core.url import (
    Resolver,
    Rewrite,
    canonical,
    lane_of,
    other_scheme,
    path_of,
    problem,
    request_digest,
)
from shoal.errors import InvalidUrl

if TYPE_CHECKING:
    from shoal.extract.page import Follow

MAX_PATH = 2_000
MAX_SEGMENTS = 30
MAX_REPEATS = 5

_NONE: frozenset[str] = frozenset()
_userinfo = re.compile(r"//[^/?#]*@")  # passwords are neither kept nor shown
_REFUSED = "refused"  # names of shelves that cannot be origins
_TOO_DEEP = "depth"
_ELSEWHERE = "elsewhere"  # out of scope as a link of this host only
_ASKED = "asked"
_PASTED = (
    " \t\r\n\f\v\u00a0\u200b\u200e\u200f\u2028\u2029\u2060\ufeff"  # what copying leaves at the ends of a line
)
_several = re.compile(r"\shttps?://", re.IGNORECASE).search


class Found(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # (reason, url), each link once


class Prints:
    """128-bit prints of strings in a table of fixed size: a newcomer takes the place of whoever had it.

    The two halves are Python's own hash of the string and of the string with one letter more: keyed, at
    no cost to speak of, and together far too long to meet by chance.
    """

    __slots__ = ("_mask", "_table")

    def __init__(self, bits: int = 19) -> None:
        self._mask = ((1 << bits) - 1) << 1
        self._table = array("q", bytes(16 << bits))

    def add(self, shelf: str, key: str) -> None:
        one, other = hash(key) ^ hash(shelf), hash(key + "+") ^ hash(shelf)
        at = one & self._mask
        self._table[at] = one
        self._table[at + 1] = other

    def has(self, shelf: str, key: str) -> bool:
        one = hash(key) ^ hash(shelf)
        at = one & self._mask
        return self._table[at] == one and self._table[at + 1] == hash(key + "+") ^ hash(shelf)


class Memory:
    """Strings on named shelves: some as they are, in two generations, and many more as prints.

    What lies there as a string is found by set arithmetic, a whole page of links at once; what a full
    young generation pushed out is still known by its print. Neither grows beyond its bound.
    """

    __slots__ = ("_count", "_half", "_old", "_prints", "_young")

    def __init__(self, size: int) -> None:
        self._half = max(size // 2, 1)
        self._count = 0
        self._young: dict[str, set[str]] = {}
        self._old: dict[str, set[str]] = {}
        self._prints = Prints()

    def add(self, shelf: str, key: str) -> None:
        keys = self._young.get(shelf)
        if keys is None:
            keys = self._young[shelf] = set()
            self._count += 3  # an empty shelf takes the memory of a few strings
        if key not in keys:
            self._prints.add(shelf, key)
            keys.add(key)
            self._count += 1 + len(key) // 128  # so that long links do not outgrow the bound
            if self._count >= self._half:
                self._old, self._young, self._count = self._young, {}, 0

    def has(self, shelf: str, key: str) -> bool:
        return (
            key in self._young.get(shelf, _NONE)
            or key in self._old.get(shelf, _NONE)
            or self._prints.has(shelf, key)
        )

    def unknown(self, shelf: str, keys: Iterable[str]) -> set[str]:
        """Which keys do not lie there as strings."""
        # One difference at a time: with two arguments CPython would walk all of the second set.
        return set(keys).difference(self._young.get(shelf, _NONE)).difference(self._old.get(shelf, _NONE))

    def drop_known(self, shelf: str, fresh: set[str], keys: Iterable[tuple[str, str]]) -> None:
        """Take out of `fresh` what is known under another key, or by its print."""
        young, old, known = self._young.get(shelf, _NONE), self._old.get(shelf, _NONE), self._prints.has
        for name, key in keys:
            if key in young or key in old or known(shelf, key):
                fresh.discard(name)

    def __len__(self) -> int:
        return sum(len(keys) for part in (self._young, self._old) for keys in part.values())


class LinkGate:
    """Admits the links of pages of one run, as one worker sees them.

    On the shelf of an origin lie paths of its known URLs and links as written on its pages that do
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
        rewrite: Rewrite | None = None,
        allow: Callable[[str], bool] | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self._scope = scope
        self._max_depth = max_depth
        self._robots_allows = robots_allows
        self._disallowed = disallowed  # the reason where it says no
        self._rewrite = rewrite or None  # a Rewrite without anything to do is false
        self._allow = allow
        self._shapes = shapes
        self._known = Memory(cache_size)
        self._resolver = Resolver("http://localhost/")

    def admit(self, follows: Iterable[Follow], *, depth: int, parent: int | None, origin_url: str) -> Found:
        """New tasks for what a page wants followed, and what is refused for the first time.

        A page's own host is always in scope: a start URL may have been redirected there.
        """
        tasks: list[Task] = []
        skipped: list[tuple[str, str]] = []
        seen: set[str | bytes] = {origin_url}
        if self._rewrite is not None:
            seen.add(self._rewrite(origin_url))
        for follow in follows:
            resolver = self._resolver_for(follow.base)
            ask = follow.ask
            if ask is None:
                fresh = self._known.unknown(resolver.origin, follow.hrefs)
                if fresh:
                    self._known.drop_known(resolver.origin, fresh, resolver.paths(tuple(fresh)))
            else:
                fresh = set(follow.hrefs)
            if not fresh:
                continue
            for href in follow.hrefs:
                if href not in fresh:
                    continue
                fresh.discard(href)
                url = self._look(resolver, href, skipped, ask)
                if url is None:
                    continue
                key = url if ask is None else request_digest(url, ask)
                if key in seen:
                    continue
                seen.add(key)
                lane = lane_of(url)
                if reason := self._judge(url, lane, depth, origin_url, ask):
                    self._turn_away(reason, url, resolver, href, skipped)
                else:
                    tasks.append(_task(url, lane, depth + 1, parent, follow))
        return Found(tuple(tasks), tuple(skipped))

    def committed(self, tasks: Iterable[Task]) -> None:
        """Remember tasks whose adding was acknowledged: only then may their links be dropped."""
        for task in tasks:
            if task.ask is not None:  # the plain page at the same address is another task
                self._known.add(_ASKED, task.digest.hex())
                continue
            url = task.url
            path = path_of(url)
            shelf = url[: len(url) - len(path)]
            self._known.add(shelf, path if path[1:2] != "/" else url)

    def _resolver_for(self, base: str) -> Resolver:
        if self._resolver.base != base:  # a handler often follows link by link
            self._resolver = Resolver(base)
        return self._resolver

    def _look(
        self, resolver: Resolver, href: str, skipped: list[tuple[str, str]], ask: Ask | None
    ) -> str | None:
        """The URL of a link that has still to be judged."""
        url = resolver.resolve(href)
        if url is None:
            self._unusable(resolver, href, skipped)
            return None
        if self._rewrite is not None:
            url = self._rewrite(url)
        if ask is not None and self._known.has(_ASKED, request_digest(url, ask).hex()):
            return None
        path = path_of(url)
        shelf = url[: len(url) - len(path)]
        key = path if path[1:2] != "/" else url
        if (ask is None and self._known.has(shelf, key)) or self._known.has(_REFUSED, url):
            self._recall(resolver, href)
            return None
        return url

    def _judge(self, url: str, lane: str, depth: int, origin_url: str, ask: Ask | None) -> str:
        """Why a URL does not become a task, or nothing."""
        if not self._scope(lane) and lane != lane_of(origin_url):
            return _ELSEWHERE
        if self._allow is not None and not self._allow(url):
            return "scope"
        if is_trap(url):
            return "trap"
        # Whether a page was kept is known by its plain address only.
        if (ask is None or self._disallowed == "robots") and self._robots_allows(lane, url) is False:
            return self._disallowed
        if self._max_depth is not None and depth >= self._max_depth:
            return _TOO_DEEP
        # Last, for it counts what it lets through.
        return "" if self._shapes is None or self._shapes.admit(url) else "trap"

    def _turn_away(
        self, reason: str, url: str, resolver: Resolver, href: str, skipped: list[tuple[str, str]]
    ) -> None:
        if reason == _TOO_DEEP:
            self._too_deep(url, skipped)
            return
        if reason == _ELSEWHERE:  # the other host's own pages may well follow it
            skipped.append(("scope", url))
        else:
            self._refuse(reason, url, skipped)
        self._recall(resolver, href)

    def _unusable(self, resolver: Resolver, href: str, skipped: list[tuple[str, str]]) -> None:
        # mailto: and the like are no pages, and "#top" is this page: nothing was refused.
        if other_scheme(href) or not href.partition("#")[0].strip():
            if len(href) <= MAX_PATH:
                self._known.add(resolver.origin, href)
            return
        shown = _userinfo.sub("//", href[:200])
        if not self._known.has(_REFUSED, shown):
            self._refuse("invalid", shown, skipped)

    def _refuse(self, reason: str, url: str, skipped: list[tuple[str, str]]) -> None:
        skipped.append((reason, url))
        self._known.add(_REFUSED, url)

    def _too_deep(self, url: str, skipped: list[tuple[str, str]]) -> None:
        # Not refused for good: the same link may stand on a page nearer to the start.
        if not self._known.has(_TOO_DEEP, url):
            skipped.append(("depth", url))
            self._known.add(_TOO_DEEP, url)

    def _recall(self, resolver: Resolver, href: str) -> None:
        """Remember a link as written, if it leads to the same URL from every page of the origin."""
        if href[0] == "/" or href.startswith(("http://", "https://")):
            self._known.add(resolver.origin, href)


def start_task(line: str, *, rewrite: Rewrite | None = None, meta: dict[str, Any] | None = None) -> Task:
    """The task for an address as somebody wrote it; raises InvalidUrl with a reason in a few words."""
    text = line.strip(_PASTED)
    if _several(text):
        raise InvalidUrl("several addresses on one line", hint="Give each a line of its own.")
    try:
        url = canonical(text)
    except InvalidUrl as error:
        raise InvalidUrl(problem(text), hint=error.hint) from None
    if rewrite:
        url = rewrite(url)
    return Task(url=url, lane=lane_of(url), digest=request_digest(url), meta=meta)


def start_tasks(
    urls: Iterable[str], *, rewrite: Rewrite | None = None
) -> tuple[list[Task], list[tuple[str, str]]]:
    """Tasks for start URLs, each once, and what was rejected with the reason."""
    tasks: dict[str, Task] = {}
    rejected: list[tuple[str, str]] = []
    for line in urls:
        try:
            task = start_task(line, rewrite=rewrite)
        except InvalidUrl as error:
            rejected.append((line, str(error)))
            continue
        tasks.setdefault(task.url, task)
    return list(tasks.values()), rejected


def is_trap(url: str) -> bool:
    """Whether the path of a canonical URL looks like an endless maze."""
    path = path_of(url).partition("?")[0]
    if len(path) > MAX_PATH:
        return True
    if path.count("/") <= MAX_REPEATS:
        return False
    segments: Sequence[str] = path.split("/")[1:]
    return len(segments) > MAX_SEGMENTS or max(Counter(segments).values()) > MAX_REPEATS


def _task(url: str, lane: str, depth: int, parent: int | None, follow: Follow) -> Task:
    return Task(
        url=url,
        lane=lane,
        digest=request_digest(url, follow.ask),
        priority=follow.priority,
        depth=depth,
        parent=parent,
        meta=follow.meta,
        ask=follow.ask,
    )
