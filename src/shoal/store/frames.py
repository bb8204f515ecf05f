"""Frames: records as tables in memory, with the types that Parquet would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.store import cells
from shoal.store.formats import require_package
from shoal.store.schema_inference import ColumnType, ListType, ObjectType, SchemaInference, converter_for

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_EXTRAS = {"pandas": "pandas", "polars": "polars", "pyarrow": "parquet"}
_NULLABLE = {"int": "Int64", "bool": "boolean"}  # numpy has no missing value for these


def check_installed(package: str) -> None:
    """Refuse before anything is read."""
    require_package(package, _EXTRAS[package], f"a table for {package}" if package != "pyarrow" else "an Arrow table")


def to_arrow(records: Sequence[bytes], columns: Sequence[str] = ()) -> pyarrow.Table:
    from shoal.store.parquet import ArrowTableBuilder

    return ArrowTableBuilder(_types(records, columns)).build(records)


def to_pandas(records: Sequence[bytes], columns: Sequence[str] = ()) -> pandas.DataFrame:
    import pandas

    types, found = _columns(records, columns)
    series = {}
    for name, values in found.items():
        missing = any(value is None for value in values)
        dtype = _NULLABLE.get(str(types[name])) if missing else None
        if types[name] == "time":
            series[name] = pandas.Series(pandas.to_datetime(values, utc=True))
        elif dtype or not isinstance(types[name], str):
            series[name] = pandas.Series(values, dtype=dtype or object)
        else:
            series[name] = pandas.Series(values)
    return pandas.DataFrame(series, index=pandas.RangeIndex(len(records)))


def to_polars(records: Sequence[bytes], columns: Sequence[str] = ()) -> polars.DataFrame:
    import polars

    types, found = _columns(records, columns)
    return polars.DataFrame(
        {name: polars.Series(name, values, dtype=_polars(types[name])) for name, values in found.items()}
    )


def _types(records: Sequence[bytes], columns: Sequence[str]) -> dict[str, ColumnType]:
    """As inferred; columns: what a table without rows has."""
    if not records:
        return dict.fromkeys(columns, "text")
    schema = SchemaInference()
    schema.scan(records)
    return schema.types()


def _columns(records: Sequence[bytes], names: Sequence[str]) -> tuple[dict[str, ColumnType], dict[str, list[Any]]]:
    types = _types(records, names)
    found = [cells.decode(record) for record in records]
    columns = {}
    for name, kind in types.items():
        convert = converter_for(kind)
        columns[name] = [convert(record.get(name)) for record in found]
    return types, columns


def _polars(kind: ColumnType) -> Any:
    import polars

    if isinstance(kind, ListType):
        return polars.List(_polars(kind.item))
    if isinstance(kind, ObjectType):
        return polars.Struct({name: _polars(field) for name, field in kind.fields.items()})
    scalars: dict[str, Any] = {
        "bool": polars.Boolean,
        "int": polars.Int64,
        "float": polars.Float64,
        "text": polars.String,
        "time": polars.Datetime("us", "UTC"),
    }
    return scalars[kind]
