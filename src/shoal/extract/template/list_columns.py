"""List columns: templates whose records carry along what stood in the line of a list beside the URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from shoal.errors import UsageError
from shoal.extract.template.model import FieldSpec, Selector, Template

LINE = "line"


def with_columns(template: Template, columns: Sequence[str]) -> Template:
    """The same template, each record with its line's number and its other columns in front."""
    pages = tuple(
        replace(kind, fields=_column_fields(columns, kind.fields) | kind.fields) if kind.fields else kind
        for kind in template.pages
    )
    return replace(template, pages=pages)


def _column_fields(columns: Sequence[str], taken: Mapping[str, FieldSpec]) -> dict[str, FieldSpec]:
    fields: dict[str, FieldSpec] = {}
    for name, at in ((LINE, Selector("page", LINE)), *((name, Selector("row", name)) for name in columns)):
        unique = name
        while unique in taken or unique in fields:
            unique += " (list)"
        fields[unique] = FieldSpec(at, type="any")
    return fields


def refuse_unknown_columns(template: Template, columns: Sequence[str]) -> None:
    """Refuse a field that reads a column which the list does not have."""
    known = {name.casefold() for name in columns}
    for kind in template.pages:
        for path, name in _row_selectors(kind.fields):
            if name.casefold() in known:
                continue
            if not columns:
                raise UsageError(
                    f"field {path} reads column {name} of the list, which has no columns beside the URL",
                    hint=f"leave {path} out, or give a table (.csv, .tsv, .xlsx, .jsonl)",
                )
            raise UsageError(
                f"field {path} reads column {name} of the list, which has no such column beside the URL",
                hint=f"its columns: {', '.join(columns)}; the URL as it is written: @input",
            )


def _row_selectors(fields: Mapping[str, FieldSpec], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in fields.items():
        if field.at.language == "row":
            yield f"{path}{name}", str(field.at.what)
        yield from _row_selectors(field.fields, f"{path}{name}.")
