"""Parquet: typed columns, nested values as they are; written group by group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import UsageError
from shoal.store import cells
from shoal.store.schema_inference import ColumnType, Converter, ListType, ObjectType, SchemaInference, converter_for

if TYPE_CHECKING:
    import pyarrow

GROUP_BYTES = 4_000_000  # of records as JSON: what is held in memory at once
GROUP_ROWS = 50_000
MAX_COLUMNS = 10_000


class ParquetFile:
    needs_scan = True
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._schema = SchemaInference()
        self._pending: list[bytes] = []
        self._bytes = 0
        self._writer: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self._schema.columns

    def scan(self, records: Sequence[bytes]) -> None:
        self._schema.scan(records)
        if len(self.columns) > MAX_COLUMNS:
            raise UsageError(
                f"the records have more than {MAX_COLUMNS:,} different keys, too many for columns",
                hint="write them as .jsonl, or yield the keys as values",
            )

    def begin(self, path: Path) -> None:
        from pyarrow import parquet

        self._builder = ArrowTableBuilder(self._schema.types())
        self._writer = parquet.ParquetWriter(str(path), self._builder.schema, compression="zstd")

    def write(self, records: Sequence[bytes]) -> None:
        for record in records:
            self._pending.append(record)
            self._bytes += len(record)
            if self._bytes >= GROUP_BYTES or len(self._pending) >= GROUP_ROWS:
                self._write_group()

    def end(self) -> None:
        self._write_group()
        self.close()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _write_group(self) -> None:
        import pyarrow

        if self._pending:
            self._writer.write_table(self._builder.build(self._pending))
            pyarrow.default_memory_pool().release_unused()  # else it grows with every group
        self._pending, self._bytes = [], 0


class ArrowTableBuilder:
    """Records as Arrow columns of the inferred types."""

    def __init__(self, types: dict[str, ColumnType]) -> None:
        import pyarrow

        types = types or {"value": "text"}  # a row needs a column to be in
        self.schema: pyarrow.Schema = pyarrow.schema([(name, arrow_type(kind)) for name, kind in types.items()])
        self._converters: dict[str, Converter] = {name: converter_for(kind) for name, kind in types.items()}

    def build(self, records: Sequence[bytes]) -> pyarrow.Table:
        import pyarrow

        found = [cells.decode(record) for record in records]
        arrays = [
            pyarrow.array([convert(record.get(name)) for record in found], self.schema.field(at).type)
            for at, (name, convert) in enumerate(self._converters.items())
        ]
        return pyarrow.Table.from_arrays(arrays, schema=self.schema)


def arrow_type(kind: ColumnType) -> pyarrow.DataType:
    import pyarrow

    if isinstance(kind, ListType):
        return pyarrow.list_(arrow_type(kind.item))
    if isinstance(kind, ObjectType):
        return pyarrow.struct([(name, arrow_type(field)) for name, field in kind.fields.items()])
    scalars = {
        "bool": pyarrow.bool_(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "text": pyarrow.string(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    return scalars[kind]
