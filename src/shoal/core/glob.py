"""Glob patterns in which * stands for any text, matched in linear time whatever the pattern and the text."""

from __future__ import annotations

from urllib.parse import quote

_PRINTABLE = "".join(map(chr, range(33, 127)))


class Glob:
    """A compiled pattern.

    The first place where a part fits is as good as any later one, so none is tried again. Searching for parts as texts
    is linear; a regular expression compares a long part anew at every letter, and a stranger's pattern can have 200.
    """

    __slots__ = ("_first", "_has_star", "_last", "_least", "_middle")

    def __init__(self, pattern: str) -> None:
        self._first, *rest = pattern.split("*")
        self._has_star = bool(rest)
        self._last = rest.pop() if rest else ""
        self._middle = tuple(filter(None, rest))
        self._least = len(pattern) - pattern.count("*")

    def fullmatch(self, text: str) -> bool:
        if not self._has_star:
            return text == self._first
        if len(text) < self._least or not text.startswith(self._first) or not text.endswith(self._last):
            return False
        at, end = len(self._first), len(text) - len(self._last)
        for part in self._middle:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


def url_glob(pattern: str) -> Glob:
    """The same for canonical URLs: what is not ASCII is escaped as it is in them."""
    return Glob(escaped(pattern))


def escaped(pattern: str) -> str:
    return quote(pattern, safe=_PRINTABLE)
