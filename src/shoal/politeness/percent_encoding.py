"""Percent-encoding: one form for all ways to write a path that mean the same (RFC 9309, 2.2.2).

Reserved and unreserved characters equal their escapes; every other byte is compared escaped.
"""

from __future__ import annotations

import re

_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="
_HEX = "0123456789abcdefABCDEF"
_RAW = {code: f"%{code:02X}" for code in range(256) if chr(code) not in _SAFE + "%"}
_ESCAPES = {
    high + low: chr(code) if chr(code := int(high + low, 16)) in _SAFE else f"%{code:02X}"
    for high in _HEX
    for low in _HEX
}
# In a pattern an escaped star or dollar is not a special one: it stays escaped until the pieces are cut.
_PATTERN_ESCAPES = _ESCAPES | {"2a": "%2A", "2A": "%2A", "24": "%24"}

_is_safe = re.compile(f"[{re.escape(_SAFE)}]*").fullmatch
_STAYS_ESCAPED = "|".join(sorted({text[1:] for text in _ESCAPES.values() if len(text) == 3}))
_is_normal = re.compile(f"(?:[{re.escape(_SAFE)}]|%(?:{_STAYS_ESCAPED}))*").fullmatch


def normalize_path(path: str) -> str:
    """The form of a URL's path in which it is compared."""
    if _is_safe(path):
        return path
    return _reencode(path.encode("utf-8", "surrogatepass").decode("latin-1"), _ESCAPES)


class PatternNormalizer:
    """Does the same for the patterns of one file; one that is all escapes is not allowed to cost much."""

    MAX_CHARS = 200_000  # characters of patterns that are not in their normal form to begin with

    def __init__(self) -> None:
        self._left = self.MAX_CHARS

    def normalize(self, text: str) -> str:
        """A pattern, one character per byte, in which only the special "*" is a star."""
        if _is_safe(text) or self._left < len(text) or _is_normal(text):
            return text
        self._left -= len(text)
        return _reencode(text, _PATTERN_ESCAPES)

    def unescape_piece(self, text: str) -> str:
        """What stands between the stars of such a pattern, as it is found in paths."""
        return text.replace("%2A", "*").replace("%24", "$") if "%" in text else text


def _reencode(text: str, escapes: dict[str, str]) -> str:
    first, *parts = text.split("%")
    known = escapes.get
    text = first + "".join([f"%{part}" if (char := known(part[:2])) is None else char + part[2:] for part in parts])
    return text.translate(_RAW)
