"""Text from elsewhere, made fit for a page: what cannot be seen is made visible, and long is cut."""

from __future__ import annotations

import unicodedata
from urllib.parse import urlsplit

LONG = 160
# Characters that turn the direction of what follows: a text could look like another one.
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_HIDDEN = {0x00AD, 0x200B, 0x2060, 0xFEFF}  # no width at all
_KEPT = {0x200C, 0x200D}  # join letters and emoji, and are part of ordinary words


def _shown(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if code in _KEPT:
        return char
    if code in _BIDI or code in _HIDDEN or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return f"‹U+{code:04X}›"
    return char


def visible(value: object) -> str:
    """The text with control, direction and other unseen characters spelled out."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _shown(char) for char in text)


def some(value: object, room: int = 20_000) -> str:
    """As much of a long text as anybody reads on a page."""
    text = str(value)
    return visible(text) if len(text) <= room else visible(text[:room]) + "…"


def one_line(value: object) -> str:
    return " ".join(visible(value).split())


def cut(value: object, room: int = LONG) -> str:
    """The beginning of a text, with a mark where something is missing."""
    text = one_line(str(value)[: 4 * room + 1_000])  # what is a million long is not looked through
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def middle(value: object, room: int = 90) -> str:
    """An address within so many characters: its beginning and its end tell most."""
    text = str(value)
    text = one_line(text if len(text) <= 20_000 else text[:10_000] + text[-10_000:])
    if len(text) <= room:
        return text
    tail = room // 3
    return f"{text[: room - tail - 1]}…{text[-tail:]}"


def outside(url: object) -> str:
    """The address if it may be linked to from a page, else nothing: only http and https are."""
    text = str(url)
    if not text.isprintable() or any(char.isspace() for char in text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in ("http", "https") and parts.netloc else ""
