"""ControlReply: what tor answers on its control port, put together line by line and bounded.

Pure: it is fed lines. The other side may be anything that listens there: what it sends is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_LINE = 64 * 1024  # bytes
MAX_REPLY = 4_000_000  # bytes, over all of its lines
EVENT = 650  # what was not asked for
_first_line = re.compile(rb"([2-6][0-9][0-9])([ +-])(.*)", re.DOTALL).fullmatch


class BadReply(Exception):
    """Not what a control port answers."""


@dataclass(frozen=True, slots=True)
class ControlReply:
    status: int
    text: str  # of its last line
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return self.status == 250


class ReplyReader:
    """One reply after another; `feed` gives one as soon as it is complete."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._size = 0
        self._status = 0
        self._block: list[str] | None = None  # lines of a value, until the one with a dot
        self._name = ""

    def feed(self, line: bytes) -> ControlReply | None:
        """A line with its end. Raises BadReply."""
        self._size += len(line)
        if len(line) > MAX_LINE or self._size > MAX_REPLY:
            raise BadReply("it answers with more than fits")
        if not line.endswith(b"\n"):
            raise BadReply("it closed the connection")
        line = line.rstrip(b"\r\n")
        if self._block is not None:
            self._add_to_block(line, self._block)
            return None
        return self._read_first(line)

    def _read_first(self, line: bytes) -> ControlReply | None:
        found = _first_line(line)
        if found is None:
            raise BadReply("it does not speak tor's control protocol")
        status, mark, text = int(found[1]), found[2], _text(found[3])
        if self._status and status != self._status:
            raise BadReply("it contradicts itself")
        self._status = status
        if mark == b" ":
            reply = ControlReply(status, text, self._values)
            self._values, self._size, self._status = {}, 0, 0
            return reply
        name, _, value = text.partition("=")
        if mark == b"+":
            self._name, self._block = name, []
        else:
            self._values[name] = value
        return None

    def _add_to_block(self, line: bytes, block: list[str]) -> None:
        if line == b".":
            self._values[self._name] = "\n".join(block)
            self._block = None
        else:
            block.append(_text(line.removeprefix(b".")))


def _text(raw: bytes) -> str:
    """As it can be shown and logged."""
    return "".join(char if char.isprintable() else "?" for char in raw.decode("utf-8", "replace"))
