"""URL shapes: what generated URLs have in common, so that crawler traps are recognised by their number.

A calendar, a shop's filters or a session id in the path make URLs without end. All of them have
one shape: numbers, ids and the values of a query aside, they are the same.
"""

from __future__ import annotations

import re
from collections import OrderedDict

PLACEHOLDER = "#"  # cannot stand in a canonical URL
MAX_SHAPES = 20_000
MAX_FACETS = 200  # different sets of query names for one path

_digits = re.compile(r"[0-9]+").sub
# What digits alone do not tell: letters and digits by turns, and words no person would write.
_looks_random = re.compile(rf"[A-Za-z]{PLACEHOLDER}[A-Za-z]|{PLACEHOLDER}[A-Za-z]+{PLACEHOLDER}|[A-Za-z_]{{32}}").search
_HEX = "[0-9A-Fa-f]"
_words = re.compile(
    rf"(?:%{_HEX}{{2}})+"  # their digits are none
    rf"|{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
    rf"|(?:(?<![0-9A-Za-z_])|(?<=%{_HEX}{{2}}))[0-9A-Za-z_]+"
).sub


def shape_of(url: str) -> str:
    """The shape of a canonical URL: its lane, its path with marks for ids, and the names of its query."""
    start = url.index("/", 8)
    path, mark, query = url[start:].partition("?")
    shape = url[8 if url[4] == "s" else 7 : start] + _with_placeholders(path)
    if not mark:
        return shape
    names = {part.partition("=")[0] for part in query.split("&")}
    return f"{shape}?{_with_placeholders('&'.join(sorted(names)))}"


def _with_placeholders(text: str) -> str:
    marked = _digits(PLACEHOLDER, text)
    return _words(_replace_word, text) if "%" in text or _looks_random(marked) else marked


def _replace_word(found: re.Match[str]) -> str:
    word = found[0]
    if word[0] == "%":
        return word
    marked = _digits(PLACEHOLDER, word)
    return PLACEHOLDER if len(word) >= 8 and _looks_random(marked) else marked


class ShapeCounter:
    """Counts new URLs by shape, as one worker process sees them, in a table of fixed size."""

    __slots__ = ("_counts", "_facets", "_max_facets", "_max_per_shape", "_size")

    def __init__(self, max_per_shape: int, *, max_facets: int = MAX_FACETS, size: int = MAX_SHAPES) -> None:
        self._max_per_shape = max_per_shape  # 0 is no limit
        self._max_facets = max_facets
        self._size = size
        # By prints: shapes may be long. The path's print tells where a shape is one of many facets.
        self._counts: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._facets: dict[int, int] = {}

    def admit(self, url: str) -> bool:
        """Whether one more URL of its shape is accepted; if so, it is counted."""
        shape = shape_of(url)
        key = hash(shape)
        known = self._counts.get(key)
        if known is None:
            return self._admit_new_shape(key, shape)
        self._counts.move_to_end(key)
        count, path = known
        if self._max_per_shape and count >= self._max_per_shape:
            return False
        self._counts[key] = (count + 1, path)
        return True

    def _admit_new_shape(self, key: int, shape: str) -> bool:
        path, mark, _ = shape.partition("?")
        facet = hash(path) if mark else 0
        if mark:
            facets = self._facets.get(facet, 0)
            if self._max_facets and facets >= self._max_facets:
                return False
            self._facets[facet] = facets + 1
        self._counts[key] = (1, facet)
        if len(self._counts) > self._size:
            self._evict_oldest()
        return True

    def _evict_oldest(self) -> None:
        _, (_, facet) = self._counts.popitem(last=False)
        left = self._facets.get(facet, 0) - 1
        if left > 0:
            self._facets[facet] = left
        else:
            self._facets.pop(facet, None)

    def __len__(self) -> int:
        return len(self._counts)
