"""Shape: which type a column has, found out by looking at every value in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from shoal.store import cells

Scalar = Literal["bool", "int", "float", "text", "time"]
Fit = Callable[[Any], Any]

MAX_DEPTH = 8  # values nested deeper are written as JSON
MAX_FIELDS = 200  # so are objects with more keys: those are data, not names
MAX_NESTED = 5_000  # and whatever is new after so many nested fields in all

_BOOL, _INT, _LONG, _BIG, _FLOAT, _TEXT, _TIME, _LIST, _OBJECT = (1 << n for n in range(9))
_MIXED = 1 << 9
_SCALARS: dict[int, Scalar] = {
    _BOOL: "bool",
    _INT: "int",
    _LONG: "int",
    _INT | _LONG: "int",
    _FLOAT: "float",
    _INT | _FLOAT: "float",
    _TIME: "time",
}
_EXACT = 1 << 53  # whole numbers up to here are exact as floats too
_LARGEST = 1 << 63
_WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class ListOf(msgspec.Struct, frozen=True):
    item: Type


class Object(msgspec.Struct, frozen=True):
    fields: dict[str, Type]


Type = Scalar | ListOf | Object


class Survey:
    """Every column of a table, in order of first appearance."""

    def __init__(self) -> None:
        self._shapes: dict[str, Shape] = {}
        self._left = [MAX_NESTED]

    def see(self, records: Sequence[bytes]) -> None:
        shapes = self._shapes
        for record in records:
            for name, value in cells.decode(record).items():
                shape = shapes.get(name)
                if shape is None:
                    shape = shapes[name] = Shape(self._left)
                shape.see(value)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._shapes)

    def types(self) -> dict[str, Type]:
        return {name: shape.type() for name, shape in self._shapes.items()}


class Shape:
    """What was seen in one place. The order in which values are seen does not matter to the type."""

    __slots__ = ("_fields", "_item", "_left", "_seen")

    def __init__(self, left: list[int]) -> None:
        self._seen = 0
        self._item: Shape | None = None
        self._fields: dict[str, Shape] = {}
        self._left = left

    def see(self, value: Any, depth: int = 0) -> None:
        if value is None:
            return
        if isinstance(value, str):
            self._seen |= _TIME if is_time(value) else _TEXT
        elif isinstance(value, bool):
            self._seen |= _BOOL
        elif isinstance(value, int):
            self._seen |= _INT if -_EXACT <= value <= _EXACT else _LONG if _fits(value) else _BIG
        elif isinstance(value, float):
            self._seen |= _FLOAT
        elif depth >= MAX_DEPTH:
            self._seen |= _MIXED
        elif isinstance(value, list):
            self._see_list(value, depth)
        else:
            self._see_object(value, depth)

    def _see_list(self, values: list[Any], depth: int) -> None:
        self._seen |= _LIST
        if self._item is None:
            self._item = Shape(self._left)
        for value in values:
            self._item.see(value, depth + 1)

    def _see_object(self, values: dict[str, Any], depth: int) -> None:
        self._seen |= _OBJECT
        if self._seen != _OBJECT:
            return
        for name, value in values.items():
            field = self._fields.get(name)
            if field is None:
                if len(self._fields) >= MAX_FIELDS or not self._left[0]:
                    self._seen |= _MIXED
                    self._fields.clear()
                    return
                self._left[0] -= 1
                field = self._fields[name] = Shape(self._left)
            field.see(value, depth + 1)

    def type(self) -> Type:
        if self._seen in _SCALARS:
            return _SCALARS[self._seen]
        if self._seen == _LIST and self._item is not None:
            return ListOf(self._item.type())
        if self._seen == _OBJECT and self._fields:
            return Object({name: field.type() for name, field in self._fields.items()})
        return "text"


def is_time(text: str) -> bool:
    """Whether it is an instant: a date and time of day with its offset from UTC, as in RFC 3339."""
    if len(text) < 20 or text[10] != "T" or not _WHEN.fullmatch(text):
        return False
    try:
        when(text)
    except (ValueError, OverflowError):  # 30 February; year 0 once the offset is taken off
        return False
    return True


def when(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def fit(kind: Type) -> Fit:
    """What brings a value that was seen there into the type that was found."""
    if isinstance(kind, ListOf):
        item = fit(kind.item)
        return lambda value: None if value is None else [item(entry) for entry in value]
    if isinstance(kind, Object):
        fields = {name: fit(field) for name, field in kind.fields.items()}
        return lambda value: (
            None if value is None else {name: to(value.get(name)) for name, to in fields.items()}
        )
    return _FITS.get(kind, _same)


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_FITS: dict[Scalar, Fit] = {
    "float": lambda value: None if value is None else float(value),
    "time": lambda value: None if value is None else when(value),
    "text": _text,
}


def _fits(value: int) -> bool:
    return -_LARGEST <= value < _LARGEST
