"""Partition: split URLs over a number of parts so that each host is whole, and say what moves if the number changes.

A part gets a host by rendezvous hashing: of all parts, the one whose score for that host is the highest. If a part is
added or taken away, only the hosts that it gets or had move. Pure.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Literal

import msgspec

from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl, UsageError

Strategy = Literal["domain_hash", "round_robin", "domain_grouping"]
STRATEGIES = ("domain_hash", "round_robin", "domain_grouping")
MAX_PARTS = 100_000


class Move(msgspec.Struct, frozen=True):
    """A host whose URLs go to another part."""

    host: str
    urls: int
    source: int
    target: int


class Rebalancing(msgspec.Struct, frozen=True):
    """The new parts, and what moves to get there."""

    parts: list[list[str]]
    moves: list[Move]
    moved: int  # URLs
    total: int

    @property
    def share(self) -> float:
        """Of the URLs that move, from 0 to 1."""
        return self.moved / self.total if self.total else 0.0

    @property
    def sizes(self) -> list[int]:
        return [len(part) for part in self.parts]

    def __str__(self) -> str:
        hosts = f"{len(self.moves)} host{'' if len(self.moves) == 1 else 's'}"
        return f"{self.moved} of {self.total} URLs move ({self.share:.0%}), {hosts}; sizes {self.sizes}"


def partition(
    urls: Iterable[str], n: int, strategy: Strategy = "domain_hash", *, weights: Sequence[float] | None = None
) -> list[list[str]]:
    """Split URLs into n parts.

    domain_hash: a host always goes to the same part, whatever else is in the list. round_robin: parts of equal size;
    hosts are spread. domain_grouping: hosts stay whole and parts become equally large, as far as that goes.
    weights: how much of the whole each part should get, if not the same.
    """
    weights = _check(n, strategy, weights)
    urls = _texts(urls, hint="shoal.partition([…], n)")
    parts: list[list[str]] = [[] for _ in range(n)]
    if strategy == "round_robin":
        return _deal(urls, parts, weights)
    if strategy == "domain_hash":
        homes: dict[str, int] = {}
        for url in urls:
            host = _host(url)
            if host not in homes:
                homes[host] = rendezvous(host, weights)
            parts[homes[host]].append(url)
        return parts
    return _group(urls, parts, weights)


def rebalance(
    parts: Iterable[Iterable[str]],
    n: int,
    strategy: Strategy = "domain_hash",
    *,
    weights: Sequence[float] | None = None,
) -> Rebalancing:
    """Spread the URLs of some parts over n with few moves, and say what moves.

    domain_hash: as `partition` would have it from the start. domain_grouping: hosts stay where they are, but for
    those of parts that go, and those that make the largest part smaller. round_robin: the last URLs of parts that
    have too many go to those that have too few.
    """
    weights = _check(n, strategy, weights)
    hint = "shoal.rebalance([[…], […]], n), with what partition returned"
    if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Iterable):
        raise UsageError(f"{parts!r:.50} is not a list of parts", hint=hint)
    # Kept as lists: what is read once, such as a generator, would be empty when it is looked at again.
    lists = [list(_texts(part, hint=hint)) for part in parts]
    if strategy == "round_robin":
        return _deal_again(lists, weights)
    by_host: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for source, urls in enumerate(lists):
        for url in urls:
            by_host[_host(url)].append((source, url))
    hashed = strategy == "domain_hash"
    homes = {host: rendezvous(host, weights) for host in by_host} if hashed else _settle(by_host, weights)
    made: list[list[str]] = [[] for _ in range(n)]
    moved: Counter[tuple[str, int, int]] = Counter()
    for host, placed in by_host.items():
        target = homes[host]
        made[target] += [url for _, url in placed]
        moved.update((host, source, target) for source, _ in placed if source != target)
    return _report(lists, made, moved)


def _report(
    parts: Sequence[Sequence[str]], made: list[list[str]], moved: Mapping[tuple[str, int, int], int]
) -> Rebalancing:
    moves = [Move(host, count, source, target) for (host, source, target), count in moved.items()]
    moves.sort(key=lambda move: (-move.urls, move.host, move.source))
    return Rebalancing(made, moves, sum(moved.values()), sum(map(len, parts)))


def _settle(by_host: Mapping[str, Sequence[tuple[int, str]]], weights: Sequence[float]) -> dict[str, int]:
    """Where each host goes: it stays, unless its part is gone or a smaller one would do better with it."""
    sizes = {host: len(urls) for host, urls in by_host.items()}
    hosts = [_HostsBySize() for _ in weights]
    loads = [0.0] * len(weights)

    def place(host: str, part: int) -> None:
        hosts[part].add(host, sizes[host])
        loads[part] += sizes[host] / weights[part]

    homeless = []
    for host, urls in sorted(by_host.items()):
        part = Counter(source for source, _ in urls).most_common(1)[0][0]
        place(host, part) if part < len(weights) else homeless.append(host)
    for host in sorted(homeless, key=lambda host: -sizes[host]):
        place(host, min(range(len(weights)), key=lambda part: loads[part] + sizes[host] / weights[part]))
    for _ in range(len(sizes)):
        largest, smallest = max(range(len(loads)), key=loads.__getitem__), min(range(len(loads)), key=loads.__getitem__)
        better = hosts[largest].pop_below((loads[largest] - loads[smallest]) * weights[smallest])
        if better is None:
            break
        loads[largest] -= sizes[better] / weights[largest]
        place(better, smallest)
    return {host: part for part, some in enumerate(hosts) for host in some}


class _HostsBySize:
    """The hosts of one part. There are few sizes where there are many hosts, so that a million are settled quickly."""

    def __init__(self) -> None:
        self._sizes: list[int] = []  # sorted
        self._hosts: dict[int, list[str]] = {}

    def add(self, host: str, size: int) -> None:
        if size not in self._hosts:
            insort(self._sizes, size)
            self._hosts[size] = []
        self._hosts[size].append(host)

    def pop_below(self, limit: float) -> str | None:
        """One of the largest that have fewer URLs than that."""
        place = bisect_left(self._sizes, limit) - 1
        if place < 0:
            return None
        size = self._sizes[place]
        host = self._hosts[size].pop()
        if not self._hosts[size]:
            del self._hosts[size], self._sizes[place]
        return host

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._hosts.values())


def _check(n: int, strategy: str, weights: Sequence[float] | None) -> Sequence[float]:
    if not hasattr(n, "__index__") or not 1 <= n <= MAX_PARTS:
        raise UsageError(f"{n!r:.50} parts are not possible", hint=f"a whole number from 1 to {MAX_PARTS:,}")
    if strategy not in STRATEGIES:
        raise UsageError(f"there is no strategy {strategy!r}", hint=", ".join(STRATEGIES))
    try:
        numbers = [1.0] * n if weights is None else [float(weight) for weight in weights]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != n or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise UsageError("weights must be as many as parts, each above 0", hint="weights=[1, 1, 2] for 3 parts")
    return numbers


def _texts(urls: Iterable[str], *, hint: str) -> Iterator[str]:
    """The same, one by one; what is no list of texts is said."""
    if isinstance(urls, str | bytes):
        raise UsageError(f"{urls[:50]!r} is one text, not a list of URLs", hint=hint)
    if not isinstance(urls, Iterable):
        raise UsageError(f"{urls!r:.50} is not a list of URLs", hint=hint)
    return map(_text, urls)


def _text(url: str) -> str:
    if not isinstance(url, str):
        raise UsageError(f"{url!r:.50} is not a URL", hint="URLs are texts")
    return url


def _host(url: str) -> str:
    """What counts as one host; what is no URL counts as one of its own."""
    try:
        return lane_of(canonical(url))
    except InvalidUrl:
        return url


def rendezvous(host: str, weights: Sequence[float]) -> int:
    """The part with the highest score; a weight of 2 wins twice as often (-w / ln u is how long such a draw lasts)."""
    name = host.encode("utf-8", "surrogatepass")  # what is no URL may be any text
    best, home = -math.inf, 0
    for part, weight in enumerate(weights):
        digest = blake2b(name, digest_size=8, salt=part.to_bytes(8, "big")).digest()
        draw = (int.from_bytes(digest, "big") + 0.5) / 2**64
        score = -weight / math.log(draw)
        if score > best:
            best, home = score, part
    return home


def _deal(urls: Iterable[str], parts: list[list[str]], weights: Sequence[float]) -> list[list[str]]:
    """To whoever has the least for its weight; with equal weights that is one after the other."""
    order = [(0.0, part) for part in range(len(parts))]
    for url in urls:
        _, part = order[0]
        parts[part].append(url)
        heapq.heapreplace(order, (len(parts[part]) / weights[part], part))
    return parts


def _deal_again(parts: Sequence[Sequence[str]], weights: Sequence[float]) -> Rebalancing:
    """What each part has too many of, and all of those that go, to whoever has the least for its weight."""
    dealt = _deal([""] * sum(map(len, parts)), [[] for _ in weights], weights)
    sizes = dict(enumerate(map(len, dealt)))
    made = [list(parts[part][:size]) if part < len(parts) else [] for part, size in sizes.items()]
    homeless = [(source, url) for source, part in enumerate(parts) for url in part[sizes.get(source, 0) :]]
    room = [target for target, part in enumerate(made) for _ in range(sizes[target] - len(part))]
    moved: Counter[tuple[str, int, int]] = Counter()
    for (source, url), target in zip(homeless, room, strict=True):
        made[target].append(url)
        moved[_host(url), source, target] += 1
    return _report(parts, made, moved)


def _group(urls: Iterable[str], parts: list[list[str]], weights: Sequence[float]) -> list[list[str]]:
    """The largest hosts first, each to whoever has the least for its weight."""
    by_host: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        by_host[_host(url)].append(url)
    order = [(0.0, part) for part in range(len(parts))]
    for _, some in sorted(by_host.items(), key=lambda item: (-len(item[1]), item[0])):
        _, part = order[0]
        parts[part] += some
        heapq.heapreplace(order, (len(parts[part]) / weights[part], part))
    return parts
