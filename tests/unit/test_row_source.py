"""Databases and other runs as lists: rows are read once, read-only, and a run goes on with what it began with."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.commands.row_source import failures_as_list, query_as_list, records_as_list
from shoal.config.load import Settings, load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.errors import UsageError
from shoal.queue.base import Queue, TaskFilter
from shoal.sources.open import open_source
from shoal.sources.snapshot import remove_old_snapshots
from shoal.sources.sql import STEP, query_rows

QUERY = "select url, sku from items order by sku"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"queue": f"sqlite:///{tmp_path}/state/shoal.db"})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute("create table items (url text, sku text)")
        rows = [(f"https://a.example/{n}", f"s{n}") for n in range(3)]
        db.executemany("insert into items values (?, ?)", [*rows, (None, "s9")])
    db.close()
    return path


def entries(path: Path, column: str = "") -> list[tuple[str, Any]]:
    source = open_source(path, column)
    found = [(entry.text, entry.extra) for entry in source if not entry.problem]
    source.close()
    return found


async def test_rows_of_a_query_are_lines_with_columns(settings: Settings, shop: Path) -> None:
    path = await query_as_list(settings, str(shop), QUERY, fresh=False)
    assert entries(path) == [(f"https://a.example/{n}", {"sku": f"s{n}"}) for n in range(3)]
    assert path.stat().st_mode & 0o077 == 0
    assert await query_as_list(settings, f"sqlite:///{shop}", QUERY, fresh=False) != path  # another word, another list


async def test_a_table_that_changed_is_read_again_only_when_starting_over(settings: Settings, shop: Path) -> None:
    path = await query_as_list(settings, str(shop), QUERY, fresh=False)
    before = path.read_bytes()
    with sqlite3.connect(shop) as db:
        db.execute("delete from items where sku = 's0'")
    assert (await query_as_list(settings, str(shop), QUERY, fresh=False)).read_bytes() == before
    assert len(entries(await query_as_list(settings, str(shop), QUERY, fresh=True))) == 2


async def test_a_snapshot_that_was_cut_short_is_not_used(settings: Settings, shop: Path) -> None:
    broken = "select url, sku from items where case sku when 's2' then abs(-9223372036854775808) else 1 end"
    with pytest.raises(UsageError, match="integer overflow"):
        await query_as_list(settings, str(shop), broken, fresh=False)
    assert list((settings.state_folder / "inputs").iterdir()) == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("delete from items", "readonly"),
        ("select nope from items", "no such column"),
        ("select url, sku, url from items", "two columns .* called url"),
        ("select url from items where 0", "found no row"),
        ("select 1; select 2", "one statement"),
        (" ", "needs a query"),
    ],
)
async def test_a_query_that_gives_no_list_is_refused(settings: Settings, shop: Path, query: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        await query_as_list(settings, str(shop), query, fresh=False)


@pytest.mark.parametrize(
    ("database", "problem"),
    [
        ("postgresql://me:secret@db.example/shop", "password on the command line"),
        ("postgresql://me@db.example/shop?password=secret", "password on the command line"),
        ("mysql://db.example/shop", "mysql is not a database"),
        ("missing.db", "no file missing.db"),
    ],
)
async def test_a_database_that_cannot_be_read_is_refused(settings: Settings, database: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        await query_as_list(settings, database, "select 1", fresh=False)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


async def test_rows_are_read_in_steps(shop: Path) -> None:
    """The first are there long before the last were made: an endless query can be read from."""
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"
    rows = query_rows(str(shop), endless)
    assert [(await anext(rows))["i"] for _ in range(2 * STEP)][-1] == 2 * STEP
    await rows.aclose()  # type: ignore[attr-defined]


def test_old_snapshots_are_removed(tmp_path: Path) -> None:
    names = ["shop-0123abcd.jsonl", ".rows-x", "shop-0123abce.jsonl", "my-run.json"]
    for name in names:
        (tmp_path / name).write_text("")
    for name in names[:2]:
        os.utime(tmp_path / name, (0, 0))
    remove_old_snapshots(tmp_path, 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my-run.json", "shop-0123abce.jsonl"]


async def run_with(queue: Queue, records: list[dict[str, Any]], failed: list[Task]) -> Run:
    run = await queue.start_run(NewRun("list", "key", "7KQ2X"))
    page = Task("https://a.example/", "a.example", digest("page"))
    await queue.add(run.id, [page, *failed], {"a.example": UNLIMITED_PACE, "b.example": UNLIMITED_PACE})
    for task in (await queue.claim("w", 10)).tasks:
        if task.url == page.url:
            made = tuple(msgspec.json.encode(record) for record in records)
            await queue.settle([Outcome(task.id, task.lease, "done", records=made)])
        else:
            await queue.settle([Outcome(task.id, task.lease, "dead", cause=f"http.{500 if 'a' in task.lane else 404}")])
    return run


async def test_records_of_a_run_are_lines_with_their_other_fields(queue: Queue, settings: Settings) -> None:
    run = await run_with(queue, [{"name": "A", "link": f"https://a.example/{n}"} for n in range(2)], [])
    path = await records_as_list(settings, queue, run, "", fresh=False)
    assert entries(path) == [(f"https://a.example/{n}", {"name": "A"}) for n in range(2)]


async def test_of_several_fields_with_urls_one_is_asked_for(queue: Queue, settings: Settings) -> None:
    run = await run_with(queue, [{"url": "https://a.example/", "link": "https://a.example/1", "name": "A"}], [])
    with pytest.raises(UsageError, match="several fields of run 7KQ2X hold URLs: url, link") as caught:
        await records_as_list(settings, queue, run, "", fresh=False)
    assert caught.value.hint == "choose one: --column link"
    path = await records_as_list(settings, queue, run, "link", fresh=False)
    assert [text for text, _ in entries(path, "link")] == ["https://a.example/1"]
    with pytest.raises(UsageError):  # also once the rows are there
        await records_as_list(settings, queue, run, "", fresh=False)


@pytest.mark.parametrize(("records", "problem"), [([], "no records"), ([{"name": "A"}], "its fields: name")])
async def test_a_run_without_urls_in_its_records_is_refused(
    queue: Queue, settings: Settings, records: list[dict[str, Any]], problem: str
) -> None:
    run = await run_with(queue, records, [])
    with pytest.raises(UsageError, match=problem):
        await records_as_list(settings, queue, run, "", fresh=False)


async def test_failures_of_a_run_are_lines_with_their_cause_and_row(queue: Queue, settings: Settings) -> None:
    one = Task("https://a.example/1", "a.example", digest("1"), meta={"line": 3, "row": {"sku": "s1", "cause": "mine"}})
    typed = Task("task:mail/1", "a.example", digest("t"), kind="mail")
    run = await run_with(queue, [], [one, Task("https://b.example/2", "b.example", digest("2")), typed])
    path = await failures_as_list(settings, queue, run, TaskFilter(), fresh=False)
    found = dict(entries(path))
    assert found.keys() == {"https://a.example/1", "https://b.example/2"}
    assert (found["https://a.example/1"]["sku"], found["https://a.example/1"]["cause"]) == ("s1", "http.500")
    some = await failures_as_list(settings, queue, run, TaskFilter(lane="b.example"), fresh=False)
    assert [text for text, _ in entries(some)] == ["https://b.example/2"]
    with pytest.raises(UsageError, match="no failed pages that match"):
        await failures_as_list(settings, queue, run, TaskFilter(cause="robots"), fresh=False)
