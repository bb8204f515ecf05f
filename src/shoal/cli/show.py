"""Printing for people and machines: tables, numbers, times, JSON documents."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from shoal.config import colour_wanted

COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "dim": 2, "bold": 1}
STATES = {
    "running": "green",
    "finished": "green",
    "done": "green",
    "paused": "yellow",
    "stopped": "yellow",
    "waiting": "yellow",
    "dead": "red",
    "cancelled": "dim",
    "moved": "dim",
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}


def line(text: str = "", stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def document(value: object) -> None:
    """One JSON document on stdout."""
    line(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    if not colour or not (stream or sys.stdout).isatty() or not colour_wanted():
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def width(stream: TextIO | None = None) -> int:
    """Columns to keep to; what is not a terminal is not cut."""
    if not (stream or sys.stdout).isatty():
        return 10_000
    return shutil.get_terminal_size().columns


def clean(text: object) -> str:
    """Text from outside, made harmless for a terminal: one line, no control characters."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
        for char in str(text)
    )


def cells(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, room: int) -> str:
    """The text within so many columns, with a mark where something is missing."""
    if cells(text) <= room:
        return text
    kept, used = [], 1
    for char in text:
        used += cells(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept) + "…" if room > 0 else ""


def wrapped(text: str, stream: TextIO | None = None, indent: str = "") -> str:
    """Broken between words where the terminal ends; left whole for whatever is not a terminal."""
    if text.lstrip().startswith("shoal "):
        return text  # a command, which must survive being copied
    return "\n".join(
        textwrap.wrap(
            text,
            max(20, width(stream)),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: str = "",
    below: Sequence[Sequence[str]] = (),
) -> None:
    """Aligned columns; `right` names heads of numbers; `below` has lines to stand under each row."""
    texts = [[clean(value) for value in row] for row in rows]
    sizes = [max(cells(row[at]) for row in [list(heads), *texts]) for at in range(len(heads))]
    numbers = set(right.split())
    for at, row in enumerate([list(heads), *texts]):
        parts = []
        for head, text, size in zip(heads, row, sizes, strict=True):
            gap = " " * (size - cells(text))
            parts.append(gap + text if head in numbers else text + gap)
        text = cut("  ".join(parts).rstrip(), width())
        line(paint(text, "dim") if at == 0 else _stated(text, row))
        for more in below[at - 1] if at and below else ():
            line(wrapped(f"    {clean(more)}", indent="    "))


def _stated(text: str, row: Sequence[str]) -> str:
    word = next((word for word in row if word in STATES), "")
    return text.replace(word, paint(word, STATES[word]), 1) if word else text


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    size = max((cells(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        head = name.ljust(size)
        text = wrapped(f"  {head}  {value}", indent=" " * (size + 4))
        line(text.replace(head, paint(head, "dim"), 1) if name else text)


def count(number: int, word: str = "") -> str:
    """1,234 or, with a word, "1 page" and "2 pages"."""
    if not word:
        return f"{number:,}"
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def lasting(seconds: float) -> str:
    """How long: 0.02 s · 0.4 s · 7 s · 1:24 · 12h21 · 3 d 4 h."""
    if 0.001 <= seconds < 0.1:
        return f"{seconds:.2g} s"
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86_400 * 2:
        return f"{whole // 3600}h{whole % 3600 // 60:02}"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def ago(at: int, now: int) -> str:
    """How long before `now`, both in microseconds."""
    seconds = max(0.0, (now - at) / 1e6)
    return "just now" if seconds < 2 else f"{lasting(seconds)} ago"


def moment(at: int) -> str:
    """A moment in local time."""
    when = datetime.fromtimestamp(at / 1e6, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")


def stamp(at: int) -> str | None:
    """A moment for machines: ISO 8601 in UTC, None when it never came."""
    if not at:
        return None
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """A value of ours as JSON understands it."""
    import msgspec

    return msgspec.to_builtins(value)
