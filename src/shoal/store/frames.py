"""Frames: records as tables in memory, with the types that Parquet would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.store import cells
from shoal.store.formats import require
from shoal.store.shape import ListOf, Object, Survey, Type, fit

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_EXTRAS = {"pandas": "pandas", "polars": "polars", "pyarrow": "parquet"}
_NULLABLE = {"int": "Int64", "bool": "boolean"}  # numpy has no missing value for these


def check(package: str) -> None:
    """Refuse before anything is read."""
    require(package, _EXTRAS[package], f"a table for {package}" if package != "pyarrow" else "an Arrow table")


def to_arrow(records: Sequence[bytes]) -> pyarrow.Table:
    from shoal.store.parquet import Table

    survey = Survey()
    survey.see(records)
    return Table(survey).made(records)


def to_pandas(records: Sequence[bytes]) -> pandas.DataFrame:
    import pandas

    types, columns = _columns(records)
    made = {}
    for name, values in columns.items():
        missing = any(value is None for value in values)
        dtype = _NULLABLE.get(str(types[name])) if missing else None
        if types[name] == "time":
            made[name] = pandas.Series(pandas.to_datetime(values, utc=True))
        elif dtype or not isinstance(types[name], str):
            made[name] = pandas.Series(values, dtype=dtype or object)
        else:
            made[name] = pandas.Series(values)
    return pandas.DataFrame(made, index=pandas.RangeIndex(len(records)))


def to_polars(records: Sequence[bytes]) -> polars.DataFrame:
    import polars

    types, columns = _columns(records)
    return polars.DataFrame(
        {name: polars.Series(name, values, dtype=_polars(types[name])) for name, values in columns.items()}
    )


def _columns(records: Sequence[bytes]) -> tuple[dict[str, Type], dict[str, list[Any]]]:
    survey = Survey()
    survey.see(records)
    types = survey.types()
    found = [cells.decode(record) for record in records]
    columns = {}
    for name, kind in types.items():
        to = fit(kind)
        columns[name] = [to(record.get(name)) for record in found]
    return types, columns


def _polars(kind: Type) -> Any:
    import polars

    if isinstance(kind, ListOf):
        return polars.List(_polars(kind.item))
    if isinstance(kind, Object):
        return polars.Struct({name: _polars(field) for name, field in kind.fields.items()})
    scalars: dict[str, Any] = {
        "bool": polars.Boolean,
        "int": polars.Int64,
        "float": polars.Float64,
        "text": polars.String,
        "time": polars.Datetime("us", "UTC"),
    }
    return scalars[kind]
