"""Every form of output, read back by the programs that people read it with."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import os
import re
import sqlite3
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from test_store_export import OTHER, FakeRecords, opened

from shoal.errors import ActionRequired, OutputTaken, UsageError
from shoal.store import parquet, sqlite_writer, xlsx
from shoal.store.cells import to_text
from shoal.store.frames import to_arrow, to_pandas, to_polars
from shoal.store.schema_inference import SchemaInference, converter_for


async def written(path: Path, *values: Any, **options: Any) -> Path:
    kept = FakeRecords()
    kept.add(*values)
    exporter = opened(kept, path, **options)
    try:
        await exporter.drain()
        await exporter.finish()
        assert exporter.rows == len(values)
    finally:
        exporter.close()
    return path


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def sheets(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True)
    try:
        return {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    finally:
        book.close()


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


MIXED = [
    {"b": "text", "a": 1, "f": 1, "ok": True, "deep": {"x": 1}, "tags": ["a"], "any": 1},
    {"a": None, "f": 2.5, "ok": None, "deep": {"y": [1, None]}, "tags": [], "any": "x", "big": 2**70},
]


# Parquet


async def test_parquet_has_typed_columns_in_order_of_appearance(tmp_path: Path) -> None:
    import pyarrow as pa

    path = await written(tmp_path / "out.parquet", *MIXED)
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    assert schema.names == ["b", "a", "f", "ok", "deep", "tags", "any", "big"]
    assert [schema.field(name).type for name in ("b", "a", "f", "ok", "any", "big")] == [
        pa.string(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.string(),
    ]
    first, second = parquet_rows(path)
    assert first["deep"] == {"x": 1, "y": None} and second["deep"] == {"x": None, "y": [1, None]}
    assert (first["tags"], second["tags"], second["b"]) == (["a"], [], None)
    assert (first["any"], second["any"], second["big"]) == ("1", "x", str(2**70))


async def test_parquet_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "GROUP_ROWS", 100)
    path = await written(tmp_path / "out.parquet", *({"n": n} for n in range(250)))
    assert pq.ParquetFile(path).metadata.num_row_groups == 3
    assert [row["n"] for row in parquet_rows(path)] == list(range(250))


async def test_more_keys_than_columns_are_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parquet, xlsx, sqlite_writer):
        monkeypatch.setattr(module, "MAX_COLUMNS", 5)
    for ending in (".parquet", ".xlsx", ".db"):
        with pytest.raises(UsageError, match="different keys"):
            await written(tmp_path / f"out{ending}", {f"k{n}": n for n in range(6)})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".shoal", "out.db"]


@pytest.mark.parametrize("ending", [".json", ".parquet", ".xlsx", ".csv", ".db", ".jsonl"])
async def test_a_run_without_records_makes_a_file_that_can_be_read(tmp_path: Path, ending: str) -> None:
    path = await written(tmp_path / f"out{ending}")
    if ending == ".json":
        assert json.loads(path.read_text()) == []
    elif ending == ".parquet":
        assert parquet_rows(path) == []
    elif ending == ".xlsx":
        assert len(sheets(path)["records"]) <= 1
    elif ending == ".db":
        assert query(path, "SELECT * FROM records") == []
    else:
        assert path.read_bytes() == b""


# The types of columns

TYPES: list[tuple[list[Any], Any]] = [
    ([1, 2, None], "int"),
    ([1, 2.5], "float"),
    ([2**53 + 1, 2.5], "text"),
    ([2**62], "int"),
    ([2**63], "text"),
    ([True, None], "bool"),
    ([True, 1], "text"),
    (["a", 1], "text"),
    ([None], "text"),
    ([{}], "text"),
    ([{"a": 1}, [1]], "text"),
    (["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+02:00"], "time"),
    (["2026-01-02T03:04:05Z", "soon"], "text"),
    (["2026-02-30T03:04:05Z"], "text"),
    (["0001-01-01T00:00:00+01:00"], "text"),
    (["2026-01-02T03:04:05"], "text"),
    (["2026-01-02T03:04:05.123456789Z"], "text"),
]


@pytest.mark.parametrize(("values", "kind"), TYPES)
def test_the_type_of_a_column_is_that_of_all_its_values(values: list[Any], kind: Any) -> None:
    for order in (values, values[::-1]):
        survey = SchemaInference()
        survey.scan([json.dumps({"v": value}).encode() for value in order])
        assert survey.types() == {"v": kind}


def test_objects_whose_keys_are_data_become_json() -> None:
    survey = SchemaInference()
    deep: Any = 1
    for _ in range(20):
        deep = {"d": deep}
    rows = [{"map": {f"id{n}": n}, "deep": deep, "maps": {f"a{n}": {f"b{n}": n}}} for n in range(300)]
    survey.scan([json.dumps(row).encode() for row in rows])
    types = survey.types()
    assert (types["map"], types["maps"]) == ("text", "text")
    assert json.loads(converter_for(types["map"])({"id1": 1})) == {"id1": 1}
    assert "text" in str(types["deep"])


# Spreadsheets


async def test_a_spreadsheet_holds_numbers_texts_and_truth_values(tmp_path: Path) -> None:
    (head, first, second), *more = sheets(await written(tmp_path / "out.xlsx", *MIXED)).values()
    assert head == ("b", "a", "f", "ok", "deep", "tags", "any", "big") and not more
    assert first[:7] == ("text", 1, 1, True, '{"x": 1}', '["a"]', 1)
    assert second[6:] == ("x", str(2**70))


async def test_scraped_text_is_never_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    import openpyxl

    texts = ["=1+1", '=HYPERLINK("http://x")', "#N/A", "+1", "-x", "@a", "=", "#REF!"]
    path = await written(tmp_path / "out.xlsx", *({"=key": text} for text in texts))
    book = openpyxl.load_workbook(path)
    cells = [row[0] for row in book["records"].iter_rows()]
    assert [cell.value for cell in cells] == ["=key", *texts]
    assert {cell.data_type for cell in cells} == {"s"}


async def test_what_a_cell_cannot_hold_is_made_to_fit_and_said(tmp_path: Path) -> None:
    kept = FakeRecords()
    kept.add({"a": "x" * 40_000, "b": "\U0001f600" * 20_000, "c": 10**15, "d": "a\x00b\x0bc\ufffe", "e": "l\r\nm\rn"})
    exporter = opened(kept, tmp_path / "out.xlsx")
    await exporter.finish()
    exporter.close()
    assert exporter.notes == ("truncated texts: 2 (a cell holds 32,767 characters)",)
    ((_, row),) = sheets(tmp_path / "out.xlsx").values()
    assert (len(row[0]), row[0][-2:]) == (32_767, "x…")
    assert len(row[1].encode("utf-16-le")) // 2 <= 32_767 and row[1].endswith("\U0001f600…")
    assert row[2:] == ("1000000000000000", "abc", "l\nm\nn")


async def test_records_beyond_a_sheet_go_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_ROWS", 4)
    found = sheets(await written(tmp_path / "out.xlsx", *({"n": n} for n in range(7))))
    assert list(found) == ["records", "records 2", "records 3"]
    assert all(sheet[0] == ("n",) for sheet in found.values())
    assert [row[0] for sheet in found.values() for row in sheet[1:]] == list(range(7))


async def test_a_spreadsheet_has_widths_a_frozen_header_and_a_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openpyxl

    monkeypatch.setattr(xlsx, "MAX_ROWS", 3)
    rows = [{"id": 1, "title": "t" * 25, "text": "long " * 1_000}, {"id": 2, "title": "x"}, {"lines": "a\n" * 50}]
    book = openpyxl.load_workbook(await written(tmp_path / "out.xlsx", *rows))
    first, second = book.worksheets
    assert (first.freeze_panes, second.freeze_panes) == ("A2", "A2")
    assert (first.auto_filter.ref, second.auto_filter.ref) == ("A1:D3", "A1:D2")
    widths = {name: first.column_dimensions[name].width for name in "ABCD"}
    assert widths == {"A": 8, "B": 26, "C": 60, "D": 9}, "an id is narrow, a text is not endless"
    assert second.column_dimensions["B"].width == 26
    empty = openpyxl.load_workbook(await written(tmp_path / "empty.xlsx"))
    assert not empty.worksheets[0].auto_filter.ref


def test_columns_are_named_as_in_a_spreadsheet() -> None:
    assert [xlsx.column_letters(at) for at in (0, 25, 26, 701, 702, 16_383)] == ["A", "Z", "AA", "ZZ", "AAA", "XFD"]


async def test_a_spreadsheet_is_read_by_other_readers_too(tmp_path: Path) -> None:
    import pandas

    frame = pandas.read_excel(await written(tmp_path / "out.xlsx", {"a": 1, "b": "x <&> y"}, {"b": " z "}))
    assert frame["b"].tolist() == ["x <&> y", " z "] and frame["a"][0] == 1


# SQLite


async def test_a_database_keeps_each_value_as_it_is(tmp_path: Path) -> None:
    path = await written(tmp_path / "out.db", *MIXED)
    assert [row[1] for row in query(path, "PRAGMA table_info(records)")] == [
        *("b", "a", "f", "ok", "deep", "tags", "any", "big")
    ]
    assert query(path, "SELECT * FROM records") == [
        ("text", 1, 1, 1, '{"x": 1}', '["a"]', 1, None),
        (None, None, 2.5, None, '{"y": [1, null]}', "[]", "x", str(2**70)),
    ]
    assert query(path, "SELECT json_extract(deep, '$.x') FROM records LIMIT 1") == [(1,)]


async def test_keys_that_sqlite_cannot_tell_apart_have_columns_of_their_own(tmp_path: Path) -> None:
    row = {"A": 1, "a": 2, "a_2": 3, 'q"; DROP TABLE records; --': 4, "": 5, "x\0y": 6, "value": 7, "rowid": 8}
    path = await written(tmp_path / "out.sqlite", row, {}, {"ä": 1, "Ä": 2})
    names = [entry[1] for entry in query(path, "PRAGMA table_info(records)")]
    assert names[:5] == ["A", "a_2", "a_2_2", 'q"; DROP TABLE records; --', "column"]
    first, second, third = query(path, "SELECT * FROM records")
    assert first[:8] == tuple(range(1, 9)) and set(second) == {None} and third[8:] == (1, 2)


async def test_a_database_grows_live_and_goes_on_by_itself(tmp_path: Path) -> None:
    path, kept = tmp_path / "out.db", FakeRecords()
    kept.add({"n": 1})
    exporter = opened(kept, path)
    assert await exporter.drain() == 1
    assert query(path, "SELECT n FROM records") == [(1,)]
    exporter.close()
    kept.add({"n": 2, "late": "x"})
    (tmp_path / ".shoal").rename(tmp_path / "elsewhere")  # the position is in the file, not here
    exporter = opened(kept, path)
    assert await exporter.drain() == 1 and exporter.rows == 2 and exporter.columns == ("n", "late")
    path.unlink()
    assert await exporter.drain() == 2
    exporter.close()
    assert query(path, "SELECT * FROM records") == [(1, None), (2, "x")]
    with pytest.raises(OutputTaken, match="run AAAAA"):
        opened(kept, path, OTHER)


async def test_a_reader_at_length_delays_a_database_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "LOCK_TIMEOUT", 0.1)
    path, kept = tmp_path / "out.db", FakeRecords()
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.drain()
    kept.add({"n": 2})
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN EXCLUSIVE")
    assert await exporter.drain() == 0
    with pytest.raises(ActionRequired, match="locked by another program"):
        await exporter.finish()
    reader.execute("COMMIT")
    reader.close()
    assert await exporter.finish() == 1
    exporter.close()


async def test_a_foreign_database_is_refused_and_the_state_itself_always(tmp_path: Path) -> None:
    from shoal.queue.sqlite import SqliteQueue

    mine = tmp_path / "mine.db"
    db = sqlite3.connect(mine)
    db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(OutputTaken, match="not written by this run"):
        opened(FakeRecords(), mine)
    opened(FakeRecords(), mine, fresh=True).close()
    assert query(tmp_path / "mine.db.old", "SELECT name FROM sqlite_master") == [("t",)]
    state = tmp_path / "state.db"
    await (await SqliteQueue.open(str(state))).close()
    before = state.read_bytes()
    with pytest.raises(UsageError, match="state file"):
        opened(FakeRecords(), state, fresh=True)
    assert state.read_bytes() == before
    (tmp_path / "notes.db").write_text("no database at all")
    with pytest.raises(OutputTaken):
        opened(FakeRecords(), tmp_path / "notes.db")


# Files that are built


@pytest.mark.parametrize("ending", [".json", ".parquet", ".xlsx"])
async def test_a_built_file_is_replaced_whole_and_only_if_something_is_new(tmp_path: Path, ending: str) -> None:
    path, kept = tmp_path / f"out{ending}", FakeRecords()
    kept.add({"n": 1})
    exporter = opened(kept, path)
    assert await exporter.drain() == 0 and not path.exists()
    assert await exporter.finish() == 1
    exporter.close()
    made = path.stat().st_ino
    exporter = opened(kept, path)
    assert (exporter.rows, await exporter.finish()) == (1, 0)
    assert path.stat().st_ino == made
    kept.add({"n": 2})
    assert await exporter.finish() == 1 and exporter.rows == 2
    exporter.close()
    assert path.stat().st_ino != made
    path.write_bytes(b"somebody's")
    with pytest.raises(OutputTaken, match="changed"):
        opened(kept, path)


async def test_a_file_that_came_meanwhile_is_set_aside(tmp_path: Path) -> None:
    path, kept = tmp_path / "out.json", FakeRecords()
    exporter = opened(kept, path)
    path.write_text("somebody's")
    await exporter.finish()
    exporter.close()
    assert json.loads(path.read_text()) == []
    assert (tmp_path / "out.json.old").read_text() == "somebody's"


async def test_a_build_that_is_cancelled_leaves_what_was_there(tmp_path: Path) -> None:
    path, kept = tmp_path / "out.json", FakeRecords()
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.finish()
    before = path.read_bytes()
    reached = asyncio.Event()
    real = kept.records

    async def records(run: int, *, after: int = 0, limit: int = 1000) -> Any:
        if after >= 1 and limit > 1:
            reached.set()
            await asyncio.Event().wait()
        return await real(run, after=after, limit=limit)

    kept.records = records  # type: ignore[method-assign]
    kept.add({"n": 2})
    work = asyncio.create_task(exporter.finish())
    await reached.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    exporter.close()
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".shoal", "out.json"]


# Text


async def test_packed_files_are_what_they_would_be_unpacked(tmp_path: Path) -> None:
    for ending in (".jsonl", ".csv"):
        plain, packed = tmp_path / f"a{ending}", tmp_path / f"b{ending}.gz"
        await written(plain, *MIXED)
        kept = FakeRecords()
        exporter = opened(kept, packed)
        for value in MIXED:
            kept.add(value)
            await exporter.drain()
        exporter.close()
        with packed.open("ab") as file:
            file.write(b"\x1f\x8b half a member")
        exporter = opened(kept, packed)
        await exporter.drain()
        exporter.close()
        assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


async def test_tsv_is_csv_with_tabs(tmp_path: Path) -> None:
    path = await written(tmp_path / "out.tsv", {"a": "x\ty", "b": "1,5"})
    with path.open(newline="") as file:
        assert list(csv.DictReader(file, delimiter="\t")) == [{"a": "x\ty", "b": "1,5"}]
    assert path.read_bytes().startswith(b"a\tb\r\n")


# Whatever JSON there is

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
numbers = st.integers(-(2**70), 2**70) | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | words | st.sampled_from(["2026-01-02T03:04:05Z", "=1+1"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
tables = st.lists(st.dictionaries(st.sampled_from("abcAB") | words, values, max_size=4), max_size=6)


def filled(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every column in every row, in order of first appearance."""
    columns = dict.fromkeys(key for row in table for key in row)
    return [{name: row.get(name) for name in columns} for row in table]


def typed(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table as the page on exports says that typed forms hold it."""
    survey = SchemaInference()
    survey.scan([json.dumps(row).encode() for row in table])
    fits = {name: converter_for(kind) for name, kind in survey.types().items()}
    return [{name: to(row.get(name)) for name, to in fits.items()} for row in table]


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds: 1, 1.0 and True are three different things."""
    return repr(_utc(one)) == repr(_utc(other))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(tables)
def test_any_records_survive_each_form(table: list[dict[str, Any]]) -> None:
    # An empty row in a table of text is an empty line: no reader can tell it from none.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)  # nobody pulls the plug here
        asyncio.run(_survive(Path(folder), table))


async def _survive(folder: Path, table: list[dict[str, Any]]) -> None:
    path = await written(folder / "out.jsonl", *table)
    assert same([json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]], table)
    path = await written(folder / "out.json", *table)
    assert same(json.loads(path.read_bytes()), table)
    full = filled(table)
    columns = list(full[0]) if full else []
    path = await written(folder / "out.csv", *table)
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.reader(file))
    assert found == ([columns] if full else []) + [[to_text(cell) for cell in row.values()] for row in full]
    path = await written(folder / "out.parquet", *table)
    rows = parquet_rows(path)
    if columns:
        assert same(rows, typed(table))
    assert len(rows) == len(table)
    path = await written(folder / "out.db", *table)
    assert same(query(path, "SELECT * FROM records"), [_stored(row) for row in full])
    path = await written(folder / "out.xlsx", *table)
    head, *rows = sheets(path)["records"] or [()]
    assert [name or "" for name in head] == [_celled(name) or "" for name in columns]
    if columns:
        width = len(columns)
        assert same(
            [tuple(map(_number, (*row, *(None,) * width)[:width])) for row in rows],
            [tuple(map(_celled, row.values())) for row in full],
        )


def _number(value: Any) -> Any:
    """A spreadsheet has one kind of number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _celled(value: Any) -> Any:
    """As a spreadsheet holds it: empty text is no text, some characters do not exist."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**15):
        return _number(value)
    made = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", to_text(value))
    return re.sub("\r\n?", "\n", made) or None


def _stored(row: dict[str, Any]) -> tuple[Any, ...]:
    """As SQLite holds it: truth values as numbers, long numbers and nested values as text."""
    if not row:
        return (None,)
    return tuple(
        value
        if value is None or isinstance(value, str | float)
        else int(value)
        if isinstance(value, int) and -(2**63) <= value < 2**63
        else to_text(value)
        for value in row.values()
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tables)
def test_tables_in_memory_have_the_types_of_parquet(table: list[dict[str, Any]]) -> None:
    import pandas as pd

    data = [json.dumps(row).encode() for row in table]
    expected = typed(table)
    if not any(table):
        return
    assert same(to_arrow(data).to_pylist(), expected)
    polars = to_polars(data)
    assert polars.columns == list(expected[0])
    assert same(polars.to_dicts(), expected)
    pandas = to_pandas(data)
    assert list(pandas.columns) == list(expected[0]) and len(pandas) == len(expected)
    for name in expected[0]:
        for found, value in zip(pandas[name].tolist(), (row[name] for row in expected), strict=True):
            if value is None:
                assert pd.isna(found)
            elif isinstance(value, datetime):
                assert found.to_pydatetime() == value
            else:
                assert same(found, value)


def _utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [_utc(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _utc(entry) for name, entry in value.items()}
    return value


def test_whole_numbers_with_gaps_stay_whole_in_pandas() -> None:
    frame = to_pandas([b'{"n":9007199254740993,"ok":true}', b"{}"])
    assert (str(frame["n"].dtype), str(frame["ok"].dtype)) == ("Int64", "boolean")
    assert frame["n"][0] == 9007199254740993


@pytest.mark.parametrize("name", ["x.xlsx", "x.parquet", "x.sqlite", "x.csv", "x.tsv"])
async def test_a_table_without_rows_has_its_columns(name: str, tmp_path: Path) -> None:
    kept = FakeRecords()
    out = opened(kept, tmp_path / name, columns=("url", "title"))
    try:
        await out.finish()
        assert (out.rows, out.columns) == (0, ("url", "title"))
        kept.add({"title": "Bees", "price": 1})
        await out.finish()
        assert out.rows == 1 and {"title", "price"} <= set(out.columns)
    finally:
        out.close()
