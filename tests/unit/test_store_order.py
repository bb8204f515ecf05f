"""Records in the order of a list, and tables for Excel: whole at every moment, and bounded in memory."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from wait import HANG

sys.path.insert(0, str(Path(__file__).parent))
from test_store_export import OTHER, RUN, FakeRecords, lines, opened, table

from shoal.errors import ActionRequired, UsageError
from shoal.queue.base import StoredRecord
from shoal.store.ordered_records import OrderedRecords
from shoal.store.sidecars import RejectedFile


class TaskRecords:
    """Records of tasks, in the order in which they were settled."""

    def __init__(self, *tasks: int) -> None:
        self.tasks = list(tasks)

    def record(self, seq: int, task: int) -> dict[str, Any]:
        return {"task": task, "seq": seq, f"only {task}": "ü"} if task % 3 == 0 else {"task": task, "seq": seq}

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> Sequence[StoredRecord]:
        found = enumerate(self.tasks[after : after + limit], after + 1)
        return [StoredRecord(seq, task, json.dumps(self.record(seq, task)).encode()) for seq, task in found]


async def write(kept: Any, path: Path, **options: Any) -> int:
    exporter = opened(kept, path, **options)
    try:
        await exporter.drain()
        return await exporter.finish()
    finally:
        exporter.close()


def numbers(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        return [row["task"] for row in lines(path)]
    if path.suffix == ".json":
        return [row["task"] for row in json.loads(path.read_text())]
    if path.suffix == ".parquet":
        import pyarrow.parquet

        found: list[int] = pyarrow.parquet.read_table(path).column("task").to_pylist()
        return found
    if path.suffix == ".xlsx":
        import openpyxl

        return [row[0] for row in list(openpyxl.load_workbook(path).worksheets[0].iter_rows(values_only=True))[1:]]
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        return [int(row["task"]) for row in csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.json", "a.parquet", "a.xlsx"])
async def test_every_file_can_be_in_the_order_of_the_list(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    kept = TaskRecords(5, 1, 9, 2, 2, 7)
    assert await write(kept, path, in_order=True) == 6
    assert numbers(path) == [1, 2, 2, 5, 7, 9]
    assert await write(kept, path, in_order=True) == 0
    kept.tasks += [8, 3]
    assert await write(kept, path, in_order=True) == 2
    assert numbers(path) == [1, 2, 2, 3, 5, 7, 8, 9]
    assert {place.name for place in tmp_path.iterdir()} == {name, ".shoal"}, "nothing is left beside it"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.xlsx"])
async def test_a_file_changes_its_order_as_a_whole(tmp_path: Path, name: str) -> None:
    path, kept = tmp_path / name, TaskRecords(5, 1, 9)
    await write(kept, path)
    assert numbers(path) == [5, 1, 9]
    await write(kept, path, in_order=True)
    assert numbers(path) == [1, 5, 9]
    kept.tasks.append(4)
    await write(kept, path)
    assert numbers(path) == [5, 1, 9, 4]


async def test_a_file_of_another_run_is_not_put_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    await write(TaskRecords(1), path, run=OTHER)
    with pytest.raises(UsageError, match="holds the records of run"):
        opened(FakeRecords(), path, in_order=True)


def test_a_database_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no order of their own") as refused:
        opened(FakeRecords(), tmp_path / "a.db", in_order=True)
    assert "ORDER BY line" in refused.value.hint


async def test_records_of_one_page_stay_together_in_their_own_order(tmp_path: Path) -> None:
    await write(TaskRecords(4, 2, 4, 1, 2, 4), tmp_path / "a.jsonl", in_order=True)
    assert [(row["task"], row["seq"]) for row in lines(tmp_path / "a.jsonl")] == [
        (1, 4), (2, 2), (2, 5), (4, 1), (4, 3), (4, 6),
    ]  # fmt: skip


async def test_ordered_records_are_read_from_any_place(tmp_path: Path) -> None:
    ordered = OrderedRecords(TaskRecords(*range(100, 0, -1)), RUN.id, tmp_path / "order")
    await ordered.refill()
    for after in (0, 40, 10, 50, 99, 100, 0):
        found = await ordered.records(RUN.id, after=after, limit=10)
        assert [one.seq for one in found] == list(range(after + 1, min(after + 11, 101)))
        assert [json.loads(one.data)["task"] for one in found] == [one.seq for one in found]
    ordered.close()
    assert not (tmp_path / "order").exists()


async def test_what_a_killed_process_left_is_not_taken_for_records(tmp_path: Path) -> None:
    (tmp_path / ".a.csv.order").write_bytes(b"half a database")
    await write(TaskRecords(2, 1), tmp_path / "a.csv", in_order=True)
    assert numbers(tmp_path / "a.csv") == [1, 2]


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    ordered = OrderedRecords(TaskRecords(1), RUN.id, tmp_path / "gone" / "order")
    with pytest.raises(ActionRequired):
        await ordered.refill()


MANY = """
import asyncio, resource, sys
from pathlib import Path
from shoal.core.run import Run
from shoal.queue.base import StoredRecord
from shoal.store.export import Exporter

class Many:
    async def records(self, run, *, after=0, limit=1000):
        numbers = range(after + 1, min(after + limit, 300_000) + 1)
        return [StoredRecord(n, n * 7919 % 300_007, b'{"n":%d,"text":"%s"}' % (n, b"x" * 200)) for n in numbers]

async def main():
    run = Run(id=1, name="AAAAA", scraper="s", key="k", state="running", created_at=1, changed_at=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = Exporter(Many(), run, Path(sys.argv[1], "out.csv"), Path(sys.argv[1], ".shoal"), in_order=True)
    await out.finish()
    out.close()
    print(out.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""


def test_memory_does_not_grow_with_what_is_put_in_order(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, timeout=HANG, check=True
    )
    rows, grown = map(int, done.stdout.split())
    assert rows == 300_000
    assert grown < 40_000, "kilobytes; the records are 70 MB"


# For Excel


async def test_a_table_begins_with_a_mark_if_that_is_wanted(tmp_path: Path) -> None:
    kept = TaskRecords(3)
    await write(kept, tmp_path / "a.csv", csv_bom=True)
    text = (tmp_path / "a.csv").read_bytes()
    assert text.startswith(codecs.BOM_UTF8 + b"task,") and text.count(codecs.BOM_UTF8) == 1
    kept.tasks += [6, 1]  # a new column: it is written anew, wider
    await write(kept, tmp_path / "a.csv", csv_bom=True)
    text = (tmp_path / "a.csv").read_bytes()
    assert text.startswith(codecs.BOM_UTF8) and text.count(codecs.BOM_UTF8) == 1
    await write(kept, tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").read_bytes().startswith(codecs.BOM_UTF8)
    assert [row["task"] for row in table(tmp_path / "a.csv")] == ["3", "6", "1"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
async def test_a_mark_is_for_tables_only(tmp_path: Path, name: str) -> None:
    await write(TaskRecords(1), tmp_path / name, csv_bom=True)
    assert not (tmp_path / name).read_bytes().startswith(codecs.BOM_UTF8)


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_a_file_beside_the_output_is_ours_with_a_mark_and_without(tmp_path: Path, first: bool, second: bool) -> None:
    path = tmp_path / "a.rejected.csv"
    for bom in (first, second):
        aside = RejectedFile(path, csv_bom=bom)
        aside.add(1, "x", "not a URL")
        aside.flush()
        aside.close()
    assert path.read_bytes().startswith(codecs.BOM_UTF8) == second
    assert [place.name for place in tmp_path.iterdir()] == [path.name], "none was set aside as somebody else's"
