"""Outputs per value of a field: -o "{type}.csv" keeps each file in step with its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_store_export import OTHER, RUN, FakeRecords, lines, opened, table

from shoal.errors import OutputTaken, UsageError
from shoal.store.export import check_output
from shoal.store.sidecars import sidecar_paths
from shoal.store.split_writer import MAX_FILES, RecordsWithValue, file_value

PRODUCT, REVIEW = {"type": "product", "sku": 1}, {"type": "Review!", "stars": 5}


async def exported(kept: FakeRecords, path: Path, **options: Any) -> list[tuple[str, int, tuple[str, ...]]]:
    out = opened(kept, path, **options)
    try:
        await out.drain()
        await out.finish()
        assert out.rows == sum(rows for _, rows, _ in out.files)
        return [(file.name, rows, columns) for file, rows, columns in out.files]
    finally:
        out.close()


async def test_each_type_has_a_file_with_its_own_columns(tmp_path: Path) -> None:
    kept = FakeRecords()
    kept.add(PRODUCT, REVIEW, {"sku": 2}, PRODUCT)
    assert await exported(kept, tmp_path / "{type}.csv") == [
        ("product.csv", 2, ("type", "sku")),
        ("review.csv", 1, ("type", "stars")),
        ("other.csv", 1, ("sku",)),
    ]
    assert table(tmp_path / "review.csv") == [{"type": "Review!", "stars": "5"}]
    assert sorted(path.name for path in tmp_path.glob("*.*")) == [".shoal", "other.csv", "product.csv", "review.csv"]


async def test_it_goes_on_where_it_stopped_and_doubles_nothing(tmp_path: Path) -> None:
    kept = FakeRecords()
    for _ in range(3):
        kept.add(PRODUCT, *[REVIEW] * 60)
        await exported(kept, tmp_path / "shop-{type}.jsonl")
    assert len(lines(tmp_path / "shop-product.jsonl")) == 3
    assert len(lines(tmp_path / "shop-review.jsonl")) == 180


async def test_files_that_are_written_as_a_whole_are_split_too(tmp_path: Path) -> None:
    kept = FakeRecords()
    kept.add(PRODUCT, REVIEW)
    assert [name for name, _, _ in await exported(kept, tmp_path / "{type}.json")] == ["product.json", "review.json"]


async def test_what_a_page_says_cannot_leave_the_folder_nor_make_files_without_end(tmp_path: Path) -> None:
    kept, folder = FakeRecords(), tmp_path / "out"
    folder.mkdir()
    kept.add(
        {"type": "../../etc/passwd"}, {"type": "/abs"}, {"type": ["x", {"y": 1}]}, {"type": "\x00\n.hidden" + "é" * 900}
    )
    await exported(kept, folder / "{type}.jsonl")
    assert sorted(path.name for path in folder.glob("*.jsonl")) == [
        "abs.jsonl", "etc-passwd.jsonl", "hidden.jsonl", "x-y-1.jsonl",
    ]  # fmt: skip
    kept.add(*({"type": f"t{n}"} for n in range(MAX_FILES)))
    with pytest.raises(UsageError, match=f"more than {MAX_FILES} values of type"):
        await exported(kept, folder / "{type}.jsonl")


async def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "product.csv").write_text("mine\n")
    kept = FakeRecords()
    kept.add(PRODUCT)
    with pytest.raises(OutputTaken):
        await exported(kept, tmp_path / "{type}.csv")
    assert (tmp_path / "product.csv").read_text() == "mine\n"
    await exported(kept, tmp_path / "{type}.csv", fresh=True)
    assert (tmp_path / "product.csv.old").read_text() == "mine\n"
    with pytest.raises(OutputTaken):
        await exported(kept, tmp_path / "{type}.csv", run=OTHER)


async def test_records_of_other_types_are_looked_at_once_only() -> None:
    kept = FakeRecords()
    kept.add(PRODUCT, *[REVIEW] * 500)
    asked: list[int] = []
    plain = kept.records

    async def counted(run: int, *, after: int = 0, limit: int = 1000) -> Any:
        asked.append(after)
        return await plain(run, after=after, limit=limit)

    kept.records = counted  # type: ignore[method-assign]
    reader = RecordsWithValue(kept, "type", "product")
    assert [record.seq for record in await reader.records(RUN.id, limit=100)] == [1]
    assert await reader.records(RUN.id, after=1, limit=100) == []
    asked.clear()
    assert await reader.records(RUN.id, after=1, limit=100) == [] and asked == [501]
    kept.add(PRODUCT)
    assert [record.seq for record in await reader.records(RUN.id, after=1, limit=100)] == [502]


@pytest.mark.parametrize(
    ("value", "name"), [("A b", "a-b"), (7, "7"), (True, "true"), ("", "other"), (None, "other"), ("..", "other")]
)
def test_values_as_names(value: object, name: str) -> None:
    import json

    assert file_value(json.dumps({"type": value}).encode(), "type") == name


@pytest.mark.parametrize("name", ["{a}-{b}.csv", "{}.csv", "{ }.csv"])
def test_an_output_is_split_by_one_field(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="split by one field"):
        check_output(tmp_path / name)


@pytest.mark.parametrize(
    ("output", "failed"),
    [("{type}.csv", "all.failed.csv"), ("shop-{type}.csv", "shop.failed.csv"), ("shop.csv", "shop.failed.csv")],
)
def test_what_failed_has_one_file_beside_all(output: str, failed: str) -> None:
    assert sidecar_paths(output)[0].name == failed


async def test_a_field_that_no_record_has_is_said(tmp_path: Path) -> None:
    for records, is_said in ([{"sku": 1}, {"sku": 2}], True), ([{"sku": 1}, {"type": "x"}], False):
        kept = FakeRecords()
        kept.add(*records)
        (tmp_path / str(is_said)).mkdir()
        out = opened(kept, tmp_path / str(is_said) / "{type}.csv")
        try:
            await out.finish()
            said = ("no record has a field type, so all of them are in other.csv",)
            assert out.notes == (said if is_said else ())
        finally:
            out.close()
