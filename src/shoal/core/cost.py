"""Cost: what pages use up, in the four ways that a budget can limit. Pure.

bytes    that were sent and received, bodies as transferred, with headers, without what TLS adds
proxy    those of them that went by exits and proxies
cpu      microseconds of the processor, of workers and of their browsers
browser  microseconds for which a tab was open for a page
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from shoal.core.budget_text import KINDS
from shoal.core.lane import DIRECT
from shoal.core.run_counters import FETCH_PREFIX


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    bytes: int = 0
    proxy: int = 0
    cpu: int = 0
    browser: int = 0

    def __add__(self, other: Cost) -> Cost:
        return _combined(self, other, lambda one, two: one + two)

    def __sub__(self, other: Cost) -> Cost:
        return _combined(self, other, lambda one, two: one - two)

    @property
    def amounts(self) -> tuple[int, int, int, int]:
        return self.bytes, self.proxy, self.cpu, self.browser

    def get(self, kind: str) -> int:
        return self.amounts[KINDS.index(kind)]

    def only(self, kinds: Iterable[str]) -> Cost:
        """The same without the other kinds."""
        return Cost(**{kind: self.get(kind) for kind in kinds})


NOTHING = Cost()


def highest(one: Cost, other: Cost) -> Cost:
    return _combined(one, other, max)


def _combined(one: Cost, other: Cost, combine: Callable[[int, int], int]) -> Cost:
    return Cost(*map(combine, one.amounts, other.amounts))


def cost_of(counters: Mapping[str, int]) -> Cost:
    """Of what a page, or a whole run, has counted."""
    amounts = [0, 0, 0, 0]
    for name, number in counters.items():
        for place in _places(name):
            amounts[place] += number
    return Cost(*amounts)


@lru_cache(4096)
def _places(name: str) -> tuple[int, ...]:
    """Which amounts a counter belongs to, by their order."""
    if not name.startswith(FETCH_PREFIX):
        return ()
    way, _, what = name.removeprefix(FETCH_PREFIX).rpartition(".")
    if what == "bytes":
        return (0,) if way.partition(".")[2] == DIRECT else (0, 1)
    return {"cpu_us": (2,), "browser_us": (3,)}.get(what, ())
