"""Page prints: what a page looks like apart from what it says, so that one page under many URLs is recognised.

No word is looked for in any language: a page is cut at its tags, and the pieces are compared as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from zlib import crc32

import msgspec

MAX_LOOKED_AT = 200_000  # bytes of a body
MAX_TITLE = 300
SKETCH = 48  # pieces of a page that stand for all of them
MIN_PIECE = 6  # bytes; what is shorter is on every page of the web
NEARLY_IDENTICAL = 0.85  # share of their pieces that two pages have in common
RELATED = 0.25  # likewise, where another sign says that they are one

# What a page asks for instead of being read; bits.
FORM, PASSWORD, FRAME, REFRESH, SCRIPT = 1, 2, 4, 8, 16

_CHANGING = b"0123456789abcdefABCDEF"  # without them ids, most tokens, dates and prices are the same
_TITLE = b"title".translate(None, _CHANGING), b"TITLE".translate(None, _CHANGING)
_words = re.compile(rb"[A-Za-z\x80-\xff]{2,}").findall
_password = re.compile(rb"type\s*=\s*[\"']?password").search
_refresh = re.compile(rb"http-equiv\s*=\s*[\"']?refresh").search


class PageLook(msgspec.Struct, frozen=True):
    """A page as it is compared with others."""

    pieces: frozenset[int]
    asks: int
    anchors: int

    @property
    def sketch(self) -> tuple[int, ...]:
        """The same few of the pieces that two pages have in common are in both sketches."""
        return tuple(sorted(self.pieces)[:SKETCH])


def text_hash(text: str | bytes) -> int:
    """Never 0, which stands for nothing."""
    return crc32(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")) or 1


def title_hash(body: bytes) -> int:
    """0 for a page without a title."""
    start = body.find(b"<title", 0, MAX_LOOKED_AT)
    if start < 0 and (start := body.find(b"<TITLE", 0, MAX_LOOKED_AT)) < 0:
        return 0
    start = body.find(b">", start, start + MAX_TITLE) + 1
    title = body[start : body.find(b"<", start, start + MAX_TITLE)].strip() if start else b""
    return text_hash(title) if title else 0


def look_at(body: bytes) -> PageLook:
    body = body[:MAX_LOOKED_AT]
    lower = body.lower()
    anchors = lower.count(b"<a ")
    return PageLook(_pieces(body), _asks(lower, anchors), anchors)


def likeness(one: Collection[int], other: Collection[int]) -> float:
    """The share of their pieces that two pages have in common, as their sketches tell it."""
    mine, its = frozenset(one), frozenset(other)
    if not mine or not its:
        return float(mine == its)
    both = sorted(mine | its)[:SKETCH]
    return sum(piece in mine and piece in its for piece in both) / len(both)


def _pieces(body: bytes) -> frozenset[int]:
    parts = set(body.translate(None, _CHANGING).split(b"<"))
    if len(parts) < 4:  # no page of tags
        return frozenset(map(crc32, set(_words(body))))
    kept = (part.strip() for part in parts if not part.startswith(_TITLE))
    return frozenset(crc32(part) for part in kept if len(part) >= MIN_PIECE and not _is_end_tag(part))


def _is_end_tag(part: bytes) -> bool:
    return part[0] == 0x2F and part[-1] == 0x3E


def _asks(lower: bytes, anchors: int) -> int:
    asks = FORM if b"<form" in lower else 0
    if b"<input" in lower and _password(lower):
        asks |= PASSWORD
    if b"<iframe" in lower:
        asks |= FRAME
    if b"http-equiv" in lower and _refresh(lower):
        asks |= REFRESH
    if not anchors and b"<script" in lower:
        asks |= SCRIPT
    return asks
