"""Glob patterns in which * stands for any text, matched in linear time whatever the pattern and the text."""

from __future__ import annotations

import re


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
