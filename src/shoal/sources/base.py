"""Source: where URLs come from, one entry after the other, never all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec

MAX_LINE = 65_536  # characters of one line; a longer one is set aside unread
BLANK = "blank"  # the problem of a line with nothing in it
NOTHING = "nothing "  # how the problem of a row begins whose URL is left out
TOO_LONG = f"longer than {MAX_LINE:,} characters"

Unit = Literal["line", "row", "URL", "file"]


class UrlEntry(msgspec.Struct, frozen=True, gc=False):
    """One URL as somebody wrote it."""

    line: int  # as an editor counts, from 1
    text: str
    extra: dict[str, Any] | None = None  # what else stood in its row
    problem: str = ""  # not empty: why it cannot be used, whatever `text` is

    @property
    def is_blank(self) -> bool:
        """Whether there is no URL in it, nor anything that was meant to be one."""
        return self.problem == BLANK or self.problem.startswith(NOTHING)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it at all."""
        return self.problem == BLANK


class Source(Protocol):
    """Iterated once; after a crash, another one made from the same name gives the same entries."""

    @property
    def name(self) -> str:
        """For people: "urls.csv, column link"."""
        ...

    @property
    def unit(self) -> Unit: ...

    @property
    def columns(self) -> tuple[str, ...]:
        """What stands in a row besides the URL, as far as its beginning tells."""
        ...

    def __iter__(self) -> Iterator[UrlEntry]: ...

    def close(self) -> None: ...
