"""Record: the fields of a page or an element, compiled once and read for every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.errors import GiveUp
from shoal.extract.template import find
from shoal.extract.template.model import Field, Language
from shoal.extract.template.reading import CALLED, READERS, Read, as_text, shown
from shoal.extract.template.sight import Sight

WHOLE = ("any", "json")  # types of which a list in JSON is one value


class Record:
    """Reads all fields of the page or element at hand."""

    __slots__ = ("_readers", "fields")

    def __init__(self, fields: Mapping[str, Field], context: Language | None = None, path: str = "") -> None:
        self.fields = [FieldReader(name, field, context, path) for name, field in fields.items()]
        self._readers = [(one.name, one.read) for one in self.fields]

    def read(self, sight: Sight, here: Any = None) -> dict[str, Any]:
        return {name: read(sight, here) for name, read in self._readers}


class FieldReader:
    """Reads one field. A required one that is missing or cannot be read ends the page."""

    __slots__ = ("_convert", "_find", "_first", "_record", "field", "name", "path")

    def __init__(self, name: str, field: Field, context: Language | None, path: str = "") -> None:
        if field.whole:
            context = None
        self.name = name
        self.path = f"{path}.{name}" if path else name
        self.field = field
        self._first = None if field.list else find.first_finder(field.at, context)
        self._find = find.finder(field.at, context, spread=field.list or field.type not in WHOLE)
        self._record: Record | None = None
        if field.fields:
            self._record = Record(field.fields, element_language(field.at.language), self.path)
        self._convert = self._record_of if self._record else _converter(field)

    def read(self, sight: Sight, here: Any) -> Any:
        if self._first is not None:
            item = self._first(sight, here)
            if item is not None:
                try:
                    value = self._convert(sight, item)
                except ValueError:
                    return self._unreadable(sight, item)
                if value is not None:
                    return value
        found = self._find(sight, here)
        return self._several(sight, found) if self.field.list else self._one(sight, found)

    def _one(self, sight: Sight, found: list[Any]) -> Any:
        """The first that is not blank: `::text` often finds the spaces between elements first."""
        for item in found:
            try:
                value = self._convert(sight, item)
            except ValueError:
                return self._unreadable(sight, item)
            if value is not None:
                return value
        return self._missing(sight)

    def _several(self, sight: Sight, found: list[Any]) -> Any:
        result = []
        for item in found:
            try:
                value = self._convert(sight, item)
            except ValueError:
                self._unreadable(sight, item)
                continue
            if value is not None:
                result.append(value)
        return result or self._missing(sight)

    def _missing(self, sight: Sight) -> Any:
        field = self.field
        if field.required:
            raise GiveUp("missing_field", f"{self.path}: {self.expected} found nothing {_place(sight)}")
        if field.type == "exists":
            return False
        return [] if field.list and field.default is None else field.default

    def _unreadable(self, sight: Sight, item: Any) -> Any:
        message = f"{shown(item)} is not {CALLED[self.field.type]}"
        if self.field.required:
            raise GiveUp("bad_field", f"{self.path}: {message} {_place(sight, there=False)}".rstrip())
        sight.notes.append((self.path, message))
        return self.field.default

    @property
    def expected(self) -> str:
        field = self.field
        return f"{field.at} with /{field.re}/" if field.re else str(field.at)

    def _record_of(self, sight: Sight, item: Any) -> Any:
        assert self._record is not None
        return self._record.read(sight, item)


def element_language(language: Language) -> Language:
    """The language in which one looks inside what a place found."""
    return "json" if language in ("data", "meta") else language


def _place(sight: Sight, *, there: bool = True) -> str:
    if sight.item:
        return f"in item {sight.item} of the page"
    return "on the page" if there else ""


def _converter(field: Field) -> Read:
    read = READERS[field.type]
    if field.path:
        read = _through(find.searcher(field.path), read)
    if not field.re:
        return read
    pattern = find.compiled(field.re)
    group = 1 if pattern.groups else 0
    text_of: Callable[[Any], str] = find.markup if field.type == "html" else as_text

    def matched(sight: Sight, item: Any) -> Any:
        match = pattern.search(text_of(item))
        return None if match is None or match[group] is None else read(sight, match[group])

    return matched


def _through(search: Callable[[Any], Any], read: Read) -> Read:
    def inside(sight: Sight, item: Any) -> Any:
        found = search(READERS["json"](sight, item))
        return None if found is None else read(sight, found)

    return inside
