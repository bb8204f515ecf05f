"""Glob patterns in which * stands for any text, matched in linear time whatever the pattern and the text."""

from __future__ import annotations

import re
from urllib.parse import quote

_PRINTABLE = "".join(map(chr, range(33, 127)))


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A pattern to be matched with `fullmatch`.

    The first place where a part fits is as good as any later one, so none is tried again: with stars that
    may all be tried anew, a text of some hundred letters that is made for it takes hours.
    """
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return re.compile(first)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle if part) + ".*" + last, re.DOTALL)


def url_glob(pattern: str) -> re.Pattern[str]:
    """The same for canonical URLs: what is not ASCII is escaped as it is in them."""
    return compile_glob(escaped(pattern))


def escaped(pattern: str) -> str:
    return quote(pattern, safe=_PRINTABLE)
