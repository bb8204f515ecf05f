"""Schema inference: which type a column has, found out by looking at every value in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from shoal.store import cells

ScalarType = Literal["bool", "int", "float", "text", "time"]
Converter = Callable[[Any], Any]

MAX_DEPTH = 8  # values nested deeper are written as JSON
MAX_FIELDS = 200  # so are objects with more keys: those are data, not names
MAX_NESTED = 5_000  # and whatever is new after so many nested fields in all

_BOOL, _INT, _LONG, _BIG, _FLOAT, _TEXT, _TIME, _LIST, _OBJECT = (1 << n for n in range(9))
_MIXED = 1 << 9
_SCALARS: dict[int, ScalarType] = {
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
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class ListType(msgspec.Struct, frozen=True):
    item: ColumnType


class ObjectType(msgspec.Struct, frozen=True):
    fields: dict[str, ColumnType]


ColumnType = ScalarType | ListType | ObjectType


class SchemaInference:
    """Every column of a table, in order of first appearance."""

    def __init__(self) -> None:
        self._observers: dict[str, TypeObserver] = {}
        self._nested_left = [MAX_NESTED]

    def scan(self, records: Sequence[bytes]) -> None:
        observers = self._observers
        for record in records:
            for name, value in cells.decode(record).items():
                observer = observers.get(name)
                if observer is None:
                    observer = observers[name] = TypeObserver(self._nested_left)
                observer.scan(value)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._observers)

    def types(self) -> dict[str, ColumnType]:
        return {name: observer.type() for name, observer in self._observers.items()}


class TypeObserver:
    """What was seen in one place. The order in which values are seen does not matter to the type."""

    __slots__ = ("_fields", "_item", "_nested_left", "_seen")

    def __init__(self, nested_left: list[int]) -> None:
        self._seen = 0
        self._item: TypeObserver | None = None
        self._fields: dict[str, TypeObserver] = {}
        self._nested_left = nested_left

    def scan(self, value: Any, depth: int = 0) -> None:
        if value is None:
            return
        if isinstance(value, str):
            self._seen |= _TIME if is_timestamp(value) else _TEXT
        elif isinstance(value, bool):
            self._seen |= _BOOL
        elif isinstance(value, int):
            self._seen |= _INT if -_EXACT <= value <= _EXACT else _LONG if _fits_int64(value) else _BIG
        elif isinstance(value, float):
            self._seen |= _FLOAT
        elif depth >= MAX_DEPTH:
            self._seen |= _MIXED
        elif isinstance(value, list):
            self._scan_list(value, depth)
        else:
            self._scan_object(value, depth)

    def _scan_list(self, values: list[Any], depth: int) -> None:
        self._seen |= _LIST
        if self._item is None:
            self._item = TypeObserver(self._nested_left)
        for value in values:
            self._item.scan(value, depth + 1)

    def _scan_object(self, values: dict[str, Any], depth: int) -> None:
        self._seen |= _OBJECT
        if self._seen != _OBJECT:
            return
        for name, value in values.items():
            field = self._fields.get(name)
            if field is None:
                if len(self._fields) >= MAX_FIELDS or not self._nested_left[0]:
                    self._seen |= _MIXED
                    self._fields.clear()
                    return
                self._nested_left[0] -= 1
                field = self._fields[name] = TypeObserver(self._nested_left)
            field.scan(value, depth + 1)

    def type(self) -> ColumnType:
        if self._seen in _SCALARS:
            return _SCALARS[self._seen]
        if self._seen == _LIST and self._item is not None:
            return ListType(self._item.type())
        if self._seen == _OBJECT and self._fields:
            return ObjectType({name: field.type() for name, field in self._fields.items()})
        return "text"


def is_timestamp(text: str) -> bool:
    """Whether it is an instant: a date and time of day with its offset from UTC, as in RFC 3339."""
    if len(text) < 20 or text[10] != "T" or not _TIMESTAMP.fullmatch(text):
        return False
    try:
        parse_timestamp(text)
    except (ValueError, OverflowError):  # 30 February; year 0 once the offset is taken off
        return False
    return True


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def converter_for(kind: ColumnType) -> Converter:
    """What brings a value that was seen there into the type that was found."""
    if isinstance(kind, ListType):
        item = converter_for(kind.item)
        return lambda value: None if value is None else [item(entry) for entry in value]
    if isinstance(kind, ObjectType):
        fields = {name: converter_for(field) for name, field in kind.fields.items()}
        return lambda value: (
            None if value is None else {name: convert(value.get(name)) for name, convert in fields.items()}
        )
    return _CONVERTERS.get(kind, _same)


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_CONVERTERS: dict[ScalarType, Converter] = {
    "float": lambda value: None if value is None else float(value),
    "time": lambda value: None if value is None else parse_timestamp(value),
    "text": _text,
}


def _fits_int64(value: int) -> bool:
    return -_LARGEST <= value < _LARGEST
