"""Parquet: typed columns, nested values as they are; written group by group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import Usage
from shoal.store import cells
from shoal.store.shape import Fit, ListOf, Object, Survey, Type, fit

if TYPE_CHECKING:
    import pyarrow

GROUP_BYTES = 4_000_000  # of records as JSON: what is held in memory at once
GROUP_ROWS = 50_000
MAX_COLUMNS = 10_000


class Parquet:
    surveys = True
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._survey = Survey()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._writer: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self._survey.columns

    def see(self, records: Sequence[bytes]) -> None:
        self._survey.see(records)
        if len(self.columns) > MAX_COLUMNS:
            raise Usage(
                f"the records have more than {MAX_COLUMNS:,} different keys, too many for columns",
                hint="write them as .jsonl, or yield the keys as values",
            )

    def begin(self, path: Path) -> None:
        from pyarrow import parquet

        self._table = Table(self._survey)
        self._writer = parquet.ParquetWriter(str(path), self._table.schema, compression="zstd")

    def write(self, records: Sequence[bytes]) -> None:
        for record in records:
            self._waiting.append(record)
            self._bytes += len(record)
            if self._bytes >= GROUP_BYTES or len(self._waiting) >= GROUP_ROWS:
                self._group()

    def end(self) -> None:
        self._group()
        self.drop()

    def drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _group(self) -> None:
        import pyarrow

        if self._waiting:
            self._writer.write_table(self._table.made(self._waiting))
            pyarrow.default_memory_pool().release_unused()  # else it grows with every group
        self._waiting, self._bytes = [], 0


class Table:
    """Records as Arrow columns of the types that a survey found."""

    def __init__(self, survey: Survey) -> None:
        import pyarrow

        types = survey.types() or {"value": "text"}  # a row needs a column to be in
        self.schema: pyarrow.Schema = pyarrow.schema([(name, arrow(kind)) for name, kind in types.items()])
        self._fits: dict[str, Fit] = {name: fit(kind) for name, kind in types.items()}

    def made(self, records: Sequence[bytes]) -> pyarrow.Table:
        import pyarrow

        found = [cells.decode(record) for record in records]
        arrays = [
            pyarrow.array([to(record.get(name)) for record in found], self.schema.field(at).type)
            for at, (name, to) in enumerate(self._fits.items())
        ]
        return pyarrow.Table.from_arrays(arrays, schema=self.schema)


def arrow(kind: Type) -> pyarrow.DataType:
    import pyarrow

    if isinstance(kind, ListOf):
        return pyarrow.list_(arrow(kind.item))
    if isinstance(kind, Object):
        return pyarrow.struct([(name, arrow(field)) for name, field in kind.fields.items()])
    scalars = {
        "bool": pyarrow.bool_(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "text": pyarrow.string(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    return scalars[kind]
