"""Filters for text from outside: invisible characters are spelled out, and long text is shortened."""

from __future__ import annotations

import json
import unicodedata
from urllib.parse import urlsplit

DEFAULT_LENGTH = 160
# Characters that turn the direction of what follows: a text could look like another one.
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_HIDDEN = {0x00AD, 0x200B, 0x2060, 0xFEFF}  # no width at all
_JOINERS = {0x200C, 0x200D}  # join letters and emoji, and are part of ordinary words


def _visible_char(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if code in _JOINERS:
        return char
    if code in _BIDI or code in _HIDDEN or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return f"‹U+{code:04X}›"
    return char


def printable(value: object) -> str:
    """The text with control, direction and other unseen characters spelled out."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _visible_char(char) for char in text)


def excerpt(value: object, max_length: int = 20_000) -> str:
    """As much of a long text as anybody reads on a page."""
    text = str(value)
    return printable(text) if len(text) <= max_length else printable(text[:max_length]) + "…"


def one_line(value: object) -> str:
    return " ".join(printable(value).split())


def shorten(value: object, max_length: int = DEFAULT_LENGTH) -> str:
    """The beginning of a text, with a mark where something is missing."""
    text = one_line(str(value)[: 4 * max_length + 1_000])  # what is a million long is not looked through
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


def shorten_middle(value: object, max_length: int = 90) -> str:
    """A URL within so many characters: its beginning and its end tell most."""
    text = str(value)
    text = one_line(text if len(text) <= 20_000 else text[:10_000] + text[-10_000:])
    if len(text) <= max_length:
        return text
    tail = max_length // 3
    return f"{text[: max_length - tail - 1]}…{text[-tail:]}"


def safe_link(url: object) -> str:
    """The URL if it may be linked to from a page, else nothing: only http and https are."""
    text = str(url)
    if not text.isprintable() or any(char.isspace() for char in text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in ("http", "https") and parts.netloc else ""


def as_text(value: object) -> str:
    """A value as people may read it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
