"""How values are written in AMQP frames: short and long strings, and tables of them."""

from __future__ import annotations

import struct
from typing import Any

from shoal.amqp.errors import NotAmqp

MAX_DEPTH = 8  # of tables within tables
_FIXED = {
    b"b": struct.Struct(">b"), b"B": struct.Struct(">B"), b"s": struct.Struct(">h"), b"u": struct.Struct(">H"),
    b"I": struct.Struct(">i"), b"i": struct.Struct(">I"), b"l": struct.Struct(">q"), b"L": struct.Struct(">q"),
    b"f": struct.Struct(">f"), b"d": struct.Struct(">d"), b"T": struct.Struct(">Q"),
}  # fmt: skip
_LENGTH = struct.Struct(">I")
_INT32 = struct.Struct(">ci")
_INT64 = struct.Struct(">cq")
_DOUBLE = struct.Struct(">cd")
_DECIMAL = struct.Struct(">Bi")


def short_string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > 255:
        raise ValueError("a short string of AMQP has at most 255 bytes")
    return bytes((len(data),)) + data


def long_string(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def table(values: dict[str, Any]) -> bytes:
    return long_string(b"".join([short_string(name) + _value(value) for name, value in values.items()]))


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return _INT32.pack(b"I", value) if -(2**31) <= value < 2**31 else _INT64.pack(b"l", value)
    if isinstance(value, str):
        return b"S" + long_string(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return b"x" + long_string(value)
    if isinstance(value, float):
        return _DOUBLE.pack(b"d", value)
    if value is None:
        return b"V"
    if isinstance(value, dict):
        return b"F" + table(value)
    if isinstance(value, list | tuple):
        return b"A" + long_string(b"".join(map(_value, value)))
    raise TypeError(f"{type(value).__name__} cannot be sent in a table")


class Reader:
    """Reads values from the bytes of one frame; NotAmqp where they end too soon."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def take(self, size: int) -> bytes:
        start = self.at
        self.at = stop = start + size
        if stop > self.end:
            raise NotAmqp("a frame of the broker ends too soon")
        return self.data[start:stop]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def short_string(self) -> str:
        return self.take(self.number(1)).decode("utf-8", "replace")

    def long_string(self) -> bytes:
        return self.take(self.number(4))

    def table(self, depth: int = 0) -> dict[str, Any]:
        size = self.number(4)
        stop = self.at + size
        if depth > MAX_DEPTH or stop > self.end:
            raise NotAmqp("a table of the broker is nested too deeply, or ends too soon")
        found = {}
        while self.at < stop:
            name = self.short_string()
            found[name] = self._value(depth)
        return found

    def _value(self, depth: int) -> Any:
        kind = self.take(1)
        if (fixed := _FIXED.get(kind)) is not None:
            return fixed.unpack(self.take(fixed.size))[0]
        if kind == b"S":
            return self.long_string().decode("utf-8", "replace")
        if kind == b"t":
            return self.number(1) != 0
        if kind == b"F":
            return self.table(depth + 1)
        if kind == b"V":
            return None
        if kind == b"x":
            return self.long_string()
        if kind == b"D":
            scale, number = _DECIMAL.unpack(self.take(_DECIMAL.size))
            return number / 10**scale
        if kind == b"A":
            return self._array(depth + 1)
        raise NotAmqp(f"a table of the broker has a value of an unknown kind {kind!r}")

    def _array(self, depth: int) -> list[Any]:
        size = self.number(4)
        stop = self.at + size
        if depth > MAX_DEPTH or stop > self.end:
            raise NotAmqp("a table of the broker is nested too deeply, or ends too soon")
        found = []
        while self.at < stop:
            found.append(self._value(depth))
        return found
