"""Text as PostgreSQL can store it: it refuses the NUL character, which URLs may contain."""

from __future__ import annotations

ESCAPE = "\x01"


def escape_nul(text: str) -> str:
    """Text with NUL written in another way."""
    if "\x00" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE + "1").replace("\x00", ESCAPE + "0")
    return text


def unescape_nul(text: str) -> str:
    """The text that was kept."""
    if ESCAPE in text:
        return text.replace(ESCAPE + "0", "\x00").replace(ESCAPE + "1", ESCAPE)
    return text
