"""RecordExtractor: the fields of a page or an element, compiled once and read for every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.errors import GiveUp
from shoal.extract.template import selectors
from shoal.extract.template.converters import CONVERTERS, TYPE_NAMES, Converter, as_text, shorten
from shoal.extract.template.model import FieldSpec, SelectorLanguage
from shoal.extract.template.page_view import PageView

WHOLE_VALUE_TYPES = ("any", "json")  # types of which a list in JSON is one value


class RecordExtractor:
    """Reads all fields of the page or element at hand."""

    __slots__ = ("_extractors", "fields")

    def __init__(
        self, fields: Mapping[str, FieldSpec], context: SelectorLanguage | None = None, path: str = ""
    ) -> None:
        self.fields = [FieldExtractor(name, field, context, path) for name, field in fields.items()]
        self._extractors = [(one.name, one.read) for one in self.fields]

    def read(self, view: PageView, here: Any = None) -> dict[str, Any]:
        return {name: read(view, here) for name, read in self._extractors}


class FieldExtractor:
    """Reads one field. A required one that is missing or cannot be read ends the page."""

    __slots__ = ("_convert", "_find", "_first", "_record", "field", "name", "path")

    def __init__(self, name: str, field: FieldSpec, context: SelectorLanguage | None, path: str = "") -> None:
        if field.whole:
            context = None
        self.name = name
        self.path = f"{path}.{name}" if path else name
        self.field = field
        self._first = None if field.list else selectors.first_finder(field.at, context)
        self._find = selectors.finder(field.at, context, spread=field.list or field.type not in WHOLE_VALUE_TYPES)
        self._record: RecordExtractor | None = None
        if field.fields:
            self._record = RecordExtractor(field.fields, element_language(field.at.language), self.path)
        self._convert = self._record_of if self._record else _converter(field)

    def read(self, view: PageView, here: Any) -> Any:
        if self._first is not None:
            item = self._first(view, here)
            if item is not None:
                try:
                    value = self._convert(view, item)
                except ValueError:
                    return self._unreadable(view, item)
                if value is not None:
                    return value
        found = self._find(view, here)
        return self._several(view, found) if self.field.list else self._one(view, found)

    def _one(self, view: PageView, found: list[Any]) -> Any:
        """The first that is not blank: `::text` often finds the spaces between elements first."""
        for item in found:
            try:
                value = self._convert(view, item)
            except ValueError:
                return self._unreadable(view, item)
            if value is not None:
                return value
        return self._missing(view)

    def _several(self, view: PageView, found: list[Any]) -> Any:
        result = []
        for item in found:
            try:
                value = self._convert(view, item)
            except ValueError:
                self._unreadable(view, item)
                continue
            if value is not None:
                result.append(value)
        return result or self._missing(view)

    def _missing(self, view: PageView) -> Any:
        field = self.field
        if field.required:
            raise GiveUp("missing_field", f"{self.path}: {self.expected} found nothing {_position(view)}")
        if field.type == "exists":
            return False
        return [] if field.list and field.default is None else field.default

    def _unreadable(self, view: PageView, item: Any) -> Any:
        message = f"{shorten(item)} is not {TYPE_NAMES[self.field.type]}"
        if self.field.required:
            raise GiveUp("bad_field", f"{self.path}: {message} {_position(view, there=False)}".rstrip())
        view.notes.append((self.path, message))
        return self.field.default

    @property
    def expected(self) -> str:
        field = self.field
        return f"{field.at} with /{field.re}/" if field.re else str(field.at)

    def _record_of(self, view: PageView, item: Any) -> Any:
        assert self._record is not None
        return self._record.read(view, item)


def element_language(language: SelectorLanguage) -> SelectorLanguage:
    """The language in which one looks inside what a place found."""
    return "json" if language in ("data", "meta") else language


def _position(view: PageView, *, there: bool = True) -> str:
    if view.item:
        return f"in item {view.item} of the page"
    return "on the page" if there else ""


def _converter(field: FieldSpec) -> Converter:
    read = CONVERTERS[field.type]
    if field.path:
        read = _through_jmespath(selectors.compile_jmespath(field.path), read)
    if not field.re:
        return read
    pattern = selectors.compile_regex(field.re)
    group = 1 if pattern.groups else 0
    text_of: Callable[[Any], str] = selectors.markup if field.type == "html" else as_text

    def matched(view: PageView, item: Any) -> Any:
        match = pattern.search(text_of(item))
        return None if match is None or match[group] is None else read(view, match[group])

    return matched


def _through_jmespath(search: Callable[[Any], Any], read: Converter) -> Converter:
    def inside(view: PageView, item: Any) -> Any:
        found = search(CONVERTERS["json"](view, item))
        return None if found is None else read(view, found)

    return inside
