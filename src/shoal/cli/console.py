"""Printing for people and machines: tables, numbers, times, JSON documents."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

from shoal.config.load import colour_wanted
from shoal.view.formatting import ago as ago
from shoal.view.formatting import clean as clean
from shoal.view.formatting import count as count
from shoal.view.formatting import format_duration as format_duration
from shoal.view.formatting import iso_time as iso_time
from shoal.view.formatting import local_time as local_time
from shoal.view.formatting import size as size

COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "dim": 2, "bold": 1}
STATE_COLOURS = {
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


# Everything that a terminal may take for a command, and what would write the rest of a line from right to left;
# but not line ends, tabs and our own colours.
_OWN_COLOURS = "|".join(f"\x1b\\[{number}m" for number in (0, *COLOURS.values()))
_unsafe = re.compile(f"({_OWN_COLOURS})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe_for_terminal(text: str) -> str:
    """Text without control sequences: names of runs, URLs and messages are chosen by strangers."""
    return _unsafe.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", text)


def print_line(text: str = "", stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(safe_for_terminal(text).encode(encoding, "replace").decode(encoding) + "\n")


class StatusLine:
    """A line on stderr that is drawn over in place, where that is a terminal."""

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self._shown = 0

    def draw(self, text: str) -> None:
        text = safe_for_terminal(text)
        sys.stderr.write("\r" + text.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(text)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    # What JSON leaves as it is, and a terminal does not.
    print_line(_unsafe.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    if not colour or not (stream or sys.stdout).isatty() or not colour_wanted():
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def terminal_width(stream: TextIO | None = None) -> int:
    """Columns to keep to; what is not a terminal is not cut."""
    if not (stream or sys.stdout).isatty():
        return 10_000
    return shutil.get_terminal_size().columns


def display_width(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def truncate(text: str, room: int) -> str:
    """The text within so many columns, with a mark where something is missing."""
    if display_width(text) <= room:
        return text
    kept, used = [], 1
    for char in text:
        used += display_width(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept) + "…" if room > 0 else ""


def wrap(text: str, stream: TextIO | None = None, indent: str = "") -> str:
    """Broken between words where the terminal ends; left whole for whatever is not a terminal."""
    if text.lstrip().startswith("shoal "):
        return text  # a command, which must survive being copied
    return "\n".join(
        textwrap.wrap(
            text,
            max(20, terminal_width(stream)),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def print_table(
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
    heads, texts, left_out = _fit_columns(heads, texts, spare.split())
    sizes = [max(display_width(row[at]) for row in [list(heads), *texts]) for at in range(len(heads))]
    numbers = set(right.split())
    for at, row in enumerate([list(heads), *texts]):
        parts = []
        for head, text, room in zip(heads, row, sizes, strict=True):
            gap = " " * (room - display_width(text))
            parts.append(gap + text if head in numbers else text + gap)
        text = truncate("  ".join(parts).rstrip(), terminal_width())
        print_line(paint(text, "dim") if at == 0 else _colour_state(text, row))
        for more in below[at - 1] if at and below else ():
            print_line(wrap(f"    {clean(more)}", indent="    "))

    if left_out:
        print_line(paint(f"no room for {', '.join(left_out)}: widen the window, or --json", "dim"))


def _fit_columns(
    heads: Sequence[str], rows: list[list[str]], spare: list[str]
) -> tuple[Sequence[str], list[list[str]], list[str]]:
    """What of a table there is room for, and the heads there is none for."""
    left_out: list[str] = []
    while spare and _table_width(heads, rows) > terminal_width():
        head = spare.pop(0)
        at = heads.index(head)
        heads = [*heads[:at], *heads[at + 1 :]]
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        left_out.append(head)
    return heads, rows, left_out


def _table_width(heads: Sequence[str], rows: list[list[str]]) -> int:
    sizes = [max(display_width(row[at]) for row in [list(heads), *rows]) for at in range(len(heads))]
    return sum(sizes) + 2 * (len(sizes) - 1)


def _colour_state(text: str, row: Sequence[str]) -> str:
    word = next((word for word in row if word in STATE_COLOURS), "")
    return text.replace(word, paint(word, STATE_COLOURS[word]), 1) if word else text


def print_fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    size = max((display_width(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        head = name.ljust(size)
        text = wrap(f"  {head}  {value}", indent=" " * (size + 4))
        print_line(text.replace(head, paint(head, "dim"), 1) if name else text)


def to_builtins(value: Any) -> Any:
    """A value of ours as JSON understands it."""
    import msgspec

    return msgspec.to_builtins(value)
