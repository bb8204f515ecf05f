"""Printing for people and machines: tables, numbers, times, JSON documents."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

from shoal.config import colour_wanted
from shoal.view.words import ago as ago
from shoal.view.words import clean as clean
from shoal.view.words import count as count
from shoal.view.words import lasting as lasting
from shoal.view.words import moment as moment
from shoal.view.words import size as size
from shoal.view.words import stamp as stamp

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
    spare: str = "",
) -> None:
    """Aligned columns; `right` names heads of numbers; `below` has lines to stand under each row.

    spare: heads that may be left out, the first first, where the terminal has no room for all.
    """
    texts = [[clean(value) for value in row] for row in rows]
    heads, texts, left_out = _fitting(heads, texts, spare.split())
    sizes = [max(cells(row[at]) for row in [list(heads), *texts]) for at in range(len(heads))]
    numbers = set(right.split())
    for at, row in enumerate([list(heads), *texts]):
        parts = []
        for head, text, room in zip(heads, row, sizes, strict=True):
            gap = " " * (room - cells(text))
            parts.append(gap + text if head in numbers else text + gap)
        text = cut("  ".join(parts).rstrip(), width())
        line(paint(text, "dim") if at == 0 else _stated(text, row))
        for more in below[at - 1] if at and below else ():
            line(wrapped(f"    {clean(more)}", indent="    "))

    if left_out:
        line(paint(f"no room for {', '.join(left_out)}: widen the window, or --json", "dim"))


def _fitting(
    heads: Sequence[str], rows: list[list[str]], spare: list[str]
) -> tuple[Sequence[str], list[list[str]], list[str]]:
    """What of a table there is room for, and the heads there is none for."""
    left_out: list[str] = []
    while spare and _wide(heads, rows) > width():
        head = spare.pop(0)
        at = heads.index(head)
        heads = [*heads[:at], *heads[at + 1 :]]
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        left_out.append(head)
    return heads, rows, left_out


def _wide(heads: Sequence[str], rows: list[list[str]]) -> int:
    sizes = [max(cells(row[at]) for row in [list(heads), *rows]) for at in range(len(heads))]
    return sum(sizes) + 2 * (len(sizes) - 1)


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


def plain(value: Any) -> Any:
    """A value of ours as JSON understands it."""
    import msgspec

    return msgspec.to_builtins(value)
