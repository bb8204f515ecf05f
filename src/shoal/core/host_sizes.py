"""Host sizes: how the pages of a crawl are spread over its hosts, by Zipf's law. Pure.

The n-th largest host has 1/n**exponent of the pages of the largest. An exponent of 1 is what is usually found on the
web; 0 gives all hosts the same. Hosts are looked at in groups, so that a thousand and a billion take equally long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from shoal.errors import UsageError

EXACT_RANKS = 200  # hosts that are looked at one by one
GROWTH = 1.01  # of the groups after them
USUAL_EXPONENT = 1.0
MAX_EXPONENT = 64.0


class HostGroup(msgspec.Struct, frozen=True):
    """Pages that hosts still have when so many of them have any left."""

    hosts: float
    pages: float  # of each of them


class HostSizes(msgspec.Struct, frozen=True):
    urls: int
    hosts: int
    largest: float  # pages
    exponent: float

    def size(self, rank: float) -> float:
        """Pages of the host of this rank, from 1."""
        return self.largest * math.pow(rank, -self.exponent)

    def groups(self) -> Iterator[HostGroup]:
        """How many hosts have work as all of them proceed alike, from all of them down to the largest alone."""
        found, total, below = [], 0.0, 0.0
        ranks = _ranks(self.hosts)
        for rank, before in zip(reversed(ranks), [*reversed(ranks[:-1]), 0.0], strict=True):
            pages = self.size(rank) - below
            hosts = rank if before >= rank - 1 else math.sqrt(rank * (before + 1))
            found.append((hosts, pages))
            total += hosts * pages
            below = self.size(rank)
        # What the steps between ranks left out is spread over all, so that the sum is right.
        share = self.urls / total
        return (HostGroup(hosts, pages * share) for hosts, pages in found if pages > 0)


def spread_over_hosts(urls: int, hosts: int, largest: int | None = None) -> HostSizes:
    """The sizes of hosts; without the largest, the usual ones."""
    if hosts > urls:
        raise UsageError(f"{hosts:,} hosts cannot have {urls:,} URLs", hint="each has at least one: fewer --hosts")
    if largest is None:
        return HostSizes(urls, hosts, urls / _harmonic(hosts, USUAL_EXPONENT), USUAL_EXPONENT)
    if not math.ceil(urls / hosts) <= largest <= urls - hosts + 1:
        least, most = math.ceil(urls / hosts), urls - hosts + 1
        raise UsageError(
            f"the largest of {hosts:,} hosts cannot have {largest:,} of {urls:,} URLs",
            hint=f"--largest-host is {least:,} if all are equal, and {most:,} at most",
        )
    low, high = 0.0, MAX_EXPONENT
    for _ in range(100):
        middle = (low + high) / 2
        if urls / _harmonic(hosts, middle) < largest:
            low = middle
        else:
            high = middle
    return HostSizes(urls, hosts, float(largest), high)


def _harmonic(hosts: int, exponent: float) -> float:
    """The sum of rank**-exponent, by an integral where there are many."""
    exact = min(hosts, EXACT_RANKS)
    found = math.fsum(rank**-exponent for rank in range(1, exact + 1))
    if hosts > exact:
        first, last = exact + 0.5, hosts + 0.5
        if abs(exponent - 1) < 1e-9:
            found += math.log(last / first)
        else:
            found += (last ** (1 - exponent) - first ** (1 - exponent)) / (1 - exponent)
    return found


def _ranks(hosts: int) -> list[float]:
    ranks = [float(rank) for rank in range(1, min(hosts, EXACT_RANKS) + 1)]
    while ranks[-1] * GROWTH < hosts:
        ranks.append(ranks[-1] * GROWTH)
    if ranks[-1] < hosts:
        ranks.append(float(hosts))
    return ranks
