"""RobotsRules: whether the lines of a robots.txt allow a path (RFC 9309, 2.2.2 and 2.2.3).

The longest pattern that matches decides, and allowing wins a tie. Nothing here goes back over what it
has read: plain patterns are found by bisection, those with "*" by a fragment that the path must contain,
and whoever serves a file that still takes too long to judge is taken to have said no.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from shoal.politeness.percent_encoding import PatternNormalizer, normalize_path

MAX_WILDCARD_RULES = 4_000  # patterns with a "*" in them; later ones are not looked at
STEP_BUDGET = 300_000  # steps for one path, about a quarter of a millisecond
_STEP = 500  # what looking at one pattern costs, whatever comes of it
_MAX_STARS = 100  # in one pattern; one with more says nothing
_FEW = 16  # fragments that are looked for one by one
_MAX_PATH = 8_192  # no URL is longer
_OVERHEAD = 200  # bytes of memory a rule takes beside its text

_stars = re.compile(r"\*{2,}").sub
_authority = re.compile(r"https?://[^/]*", re.IGNORECASE).sub

# How much it counts (less is more), whether it forbids, and what must follow what: the beginning, the
# middle pieces in order, the end (empty: anything may follow).
_WildcardRule = tuple[int, bool, str, tuple[str, ...], str]


class RobotsRules:
    """The rules of one group, ready to be asked."""

    __slots__ = (
        "_exact", "_fragment_index", "_keys", "_many", "_parents", "_plain", "_prefixes", "_wild",
        "memory_size",
    )  # fmt: skip

    def __init__(self, lines: Iterable[tuple[bool, bytes]]) -> None:
        self._plain: dict[str, bool] = {}
        self._exact: dict[str, bool] = {}
        wild: set[_WildcardRule] = set()
        normalizer = PatternNormalizer()
        for allowed, line in lines:
            self._add(allowed, line.decode("latin-1"), normalizer, wild)
        self._prefixes = sorted(self._plain)
        self._parents = _parents(self._prefixes)
        self._wild = sorted(wild)
        self._fragment_index = _fragment_index(self._wild)
        fragments = [key for places in self._fragment_index.values() for key in places]
        self._many = len(fragments) > _FEW
        # Without any of these in it, a path is spared more.
        self._keys = () if self._many else tuple(fragments)
        self.memory_size = sum(map(len, self._prefixes)) + sum(map(len, self._exact))
        self.memory_size += _OVERHEAD * (len(self._prefixes) + len(self._exact))
        self.memory_size += sum(_OVERHEAD - rule[0] for rule in self._wild)

    def allows(self, path: str) -> bool:
        """May this path, with its query, be fetched?"""
        path = normalize_path(path)
        if path == "/robots.txt":
            return True
        at = bisect_right(self._prefixes, path) - 1
        # Whatever lies between a name and a path that begins with it begins with it as well.
        while at >= 0 and not path.startswith(self._prefixes[at]):
            at = self._parents[at]
        score, allowed = (0, True) if at < 0 else (len(self._prefixes[at]), self._plain[self._prefixes[at]])
        if self._exact and (exact := self._exact.get(path)) is not None:
            score, allowed = len(path) + 1, exact  # no plain pattern that matches is as long
        for key in self._keys:
            if key in path:
                return self._by_wildcard(path, score, allowed)
        return self._by_wildcard(path, score, allowed) if self._many else allowed

    def _add(self, allowed: bool, pattern: str, normalizer: PatternNormalizer, wild: set[_WildcardRule]) -> None:
        if pattern[0] not in "/*":
            pattern = "/" + _authority("", pattern, count=1).removeprefix("/")
        anchored = pattern[-1] == "$"
        if "*" in pattern:
            # A star at the end changes nothing, nor does one before "$".
            pattern = pattern[:-1] if anchored else pattern
            pattern = _stars("*", pattern) if "**" in pattern else pattern
            anchored = anchored and pattern[-1] != "*"
            pattern = pattern[:-1] if pattern[-1] == "*" else pattern
            if "*" in pattern and (len(wild) >= MAX_WILDCARD_RULES or pattern.count("*") > _MAX_STARS):
                return
        elif anchored:
            pattern = pattern[:-1]
        if len(pattern := normalizer.normalize(pattern)) > 2 * _MAX_PATH:
            return
        if "*" in pattern:
            start, *pieces = map(normalizer.unescape_piece, pattern.split("*"))
            end = pieces.pop() if anchored else ""
            wild.add((-len(pattern) - anchored, not allowed, start, tuple(pieces), end))
            return
        known, pattern = self._exact if anchored else self._plain, normalizer.unescape_piece(pattern)
        known[pattern] = allowed or known.get(pattern, False)

    def _by_wildcard(self, path: str, score: int, allowed: bool) -> bool:
        least = (-score, not allowed)  # of those that count as much only an allowing one can change anything
        left = STEP_BUDGET
        for rule in self._candidates(path):
            if rule[:2] >= least:
                break
            left -= _STEP
            if path.startswith(rule[2]):
                left -= _steps(rule[3], len(path))
                if left >= 0 and _matches(rule, path):
                    return not rule[1]
            if left < 0:
                return False
        return allowed

    def _candidates(self, path: str) -> Iterable[_WildcardRule]:
        """The patterns whose fragment is in the path, longest first."""
        found: list[int] = []
        for length, places in self._fragment_index.items():
            if len(places) <= _FEW:
                for key, numbers in places.items():
                    if key in path:
                        found += numbers
            else:
                for key in places.keys() & _fragments(path, length):
                    found += places[key]
        if len(found) > 1:
            found.sort()
        return map(self._wild.__getitem__, found)


def _fragments(path: str, length: int) -> set[str]:
    return set(path) if length == 1 else {path[at : at + length] for at in range(len(path))}


def _matches(rule: _WildcardRule, path: str) -> bool:
    """Whether the pieces of a pattern follow each other in the path; each is taken where it comes first."""
    _, _, start, middle, end = rule
    at, last = len(start), len(path) - len(end)
    for piece in middle:
        at = path.find(piece, at, last)
        if at < 0:
            return False
        at += len(piece)
    return at <= last and path.endswith(end)


def _steps(pieces: tuple[str, ...], length: int) -> int:
    """What finding the pieces may cost at worst."""
    steps = 0
    for piece in pieces:
        steps += 100 + max(0, length - len(piece)) * len(piece)
    return steps


def _parents(names: list[str]) -> list[int]:
    """For each of the sorted names, the place of the longest other one that it begins with, or -1."""
    parents: list[int] = []
    above: list[int] = []
    for at, name in enumerate(names):
        while above and not name.startswith(names[above[-1]]):
            above.pop()
        parents.append(above[-1] if above else -1)
        above.append(at)
    return parents


def _fragment_index(rules: list[_WildcardRule]) -> dict[int, dict[str, list[int]]]:
    """Where the patterns with a fragment are, by its length (4 or 1) and itself."""
    places: dict[int, dict[str, list[int]]] = {}
    for number, (_, _, _, middle, end) in enumerate(rules):
        key = max(*middle, end, key=len) if middle else end
        key = key[-4:] if len(key) >= 4 else min(key, key=str.isalnum)  # "?" and "." are rarer than letters
        places.setdefault(len(key), {}).setdefault(key, []).append(number)
    return places
