"""What a run counts as its pages are settled: what fetching took, and how its records are filled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.run_counters import (
    MAX_FIELDS,
    MAX_SELECTOR,
    MAX_SELECTORS,
    FetchUsage,
    FieldFill,
    add_bounded,
    count_empty_page,
    count_fields,
    empty_pages,
    fetch_usage,
    field_fill,
)
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import MAX_COUNTER_NAMES
from shoal.queue.sqlite import SqliteQueue
from shoal.runs import fill_rates
from shoal.runs.fill_rates import read_fill_rates
from shoal.view.formatting import format_share
from shoal.worker.context import CpuMeter


def encoded(*records: dict[str, object]) -> list[bytes]:
    return [msgspec.json.encode(record) for record in records]


def test_fields_are_counted_by_type_and_empty_ones_apart() -> None:
    records = encoded(
        {"a": "x", "b": 1, "c": True, "d": {"e": 0}, "f": [0], "g": None},
        {"a": "", "b": 1.5, "c": None, "d": {"e": ""}, "f": [], "g.h": "x"},
    )
    counted = count_fields(records)
    assert counted == {
        "field.a.string": 1, "field.a.empty": 1, "field.b.number": 2, "field.c.boolean": 1, "field.c.empty": 1,
        "field.d.object": 1, "field.d.empty": 1, "field.f.array": 1, "field.f.empty": 1, "field.g.empty": 1,
        "field.g.h.string": 1,
    }  # fmt: skip
    fill = field_fill(counted | {"fetch.http.direct.us": 7, "other": 9})
    assert fill["a"] == FieldFill(1, 2, {"string": 1})
    assert fill["g"] == FieldFill(0, 1, {})
    assert fill["g.h"] == FieldFill(1, 1, {"string": 1}) and len(fill) == 7


def test_a_page_with_very_many_fields_counts_some_by_name_and_the_rest_together() -> None:
    counted = count_fields(encoded({f"f{n}": n for n in range(MAX_FIELDS + 40)}, {"x" * 500: 1}))
    assert len(counted) == MAX_FIELDS + 1 and counted["field.other"] == 41
    assert "other" not in field_fill(counted)
    (name,) = count_fields(encoded({"x" * 500: 1}))
    assert len(name) < 100


def test_what_a_run_has_no_room_for_is_summed() -> None:
    counters = {"a": 1, "other": 1}
    add_bounded(counters, {"b": 1, "c": 5, "a": 1, "other": 1, "d": 2}, room=2)
    assert counters == {"a": 2, "b": 1, "other": 9}


def test_what_fetching_took_is_told_by_fetcher_and_exit() -> None:
    counters = {
        "fetch.http.direct.responses": 2, "fetch.http.direct.bytes": 10, "fetch.http.direct.us": 1_500_000,
        "fetch.http.direct.cpu_us": 250_000, "fetch.http.office.2.responses": 3, "field.a.string": 1,
    }  # fmt: skip
    assert fetch_usage(counters) == [
        FetchUsage("http", "office.2", 3, 0, 0.0, 0.0), FetchUsage("http", "direct", 2, 10, 1.5, 0.25),
    ]  # fmt: skip


def test_processor_time_is_given_out_once() -> None:
    began = time.process_time_ns()
    meter, taken, given = CpuMeter(), 0, 0
    while given < 3:  # it is asked far more often than it gives any
        micros = meter.take() + sum(range(1000)) * 0
        taken, given = taken + micros, given + bool(micros)
    assert 0 < taken <= (time.process_time_ns() - began) // 1000


@pytest.mark.parametrize(
    ("some", "of", "said"), [(0, 9, "0 %"), (1, 10_000, "1 %"), (9_999, 10_000, "99 %"), (5, 5, "100 %"), (0, 0, "0 %")]
)
def test_a_share_is_neither_none_nor_all_unless_it_is(some: int, of: int, said: str) -> None:
    assert format_share(some, of) == said


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    queue = await SqliteQueue.open(str(tmp_path / "q.db"))
    yield queue
    await queue.close()


async def finished(queue: SqliteQueue, name: str, *records: dict[str, object], counted: bool) -> Run:
    """A run in which each page gave one of these records."""
    run = await queue.start_run(NewRun("books", name, name))
    tasks = [Task(f"{name}{n}", "a.test", digest(f"{name}{n}")) for n in range(len(records))]
    await queue.add(run.id, tasks, {"a.test": UNLIMITED_PACE})
    for record in records:
        (task,) = (await queue.claim("w", 1)).tasks
        data = msgspec.json.encode(record)
        counters = count_fields([data]) if counted else {}
        await queue.settle([Outcome(task.id, task.lease, "done", records=(data,), counters=counters)])
    return run


@pytest.mark.parametrize("counted", [True, False])
async def test_fill_rates_are_the_same_counted_or_scanned(
    queue: SqliteQueue, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill_rates, "LAST_RECORDS", 25)
    records: list[dict[str, object]] = [{"title": "x", "price": 1} for _ in range(20)]
    records += [{"title": "x", "price": ""} for _ in range(22)]
    run = await finished(queue, "one", *records, counted=counted)
    rates, said = await read_fill_rates(queue, queue, run, ["title", "price"], final=True)
    assert rates == (("title", 42, 42), ("price", 20, 42))
    assert said == ("price is empty in the last 22 of 42 records (it was filled in 100 % before)",)
    later = await finished(queue, "two", *[{"title": "x"}] * 12, counted=counted)
    rates, said = await read_fill_rates(queue, queue, later, ["title", "price"], final=True)
    assert rates == (("title", 12, 12),)
    assert said == ()


async def test_counted_fill_rates_look_at_the_last_records_only(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await finished(queue, "one", *[{"title": "x"}] * 30, counted=True)
    monkeypatch.setattr(fill_rates, "LAST_RECORDS", 5)
    read = []
    real = queue.records

    async def counting(*words: object, **more: object) -> object:
        found = await real(*words, **more)  # type: ignore[arg-type]
        read.extend(found)
        return found

    monkeypatch.setattr(queue, "records", counting)
    rates, _ = await read_fill_rates(queue, queue, run, ["title"], final=True)
    assert rates == (("title", 30, 30),) and len(read) == 5


def test_pages_without_a_record_are_counted_with_the_selectors_that_found_nothing() -> None:
    counters: dict[str, int] = {}
    for selectors in ([".a.b", "h1"], [".a.b"], [f".x{n}" for n in range(99)], ["y" * 999]):
        add_bounded(counters, count_empty_page(3, selectors), MAX_COUNTER_NAMES)
    found = empty_pages(counters)
    assert (found.pages, found.links, found.selectors[0]) == (4, 12, (".a.b", 2))
    assert (
        len(found.selectors) == 2 + MAX_SELECTORS + 1 and max(len(name) for name, _ in found.selectors) == MAX_SELECTOR
    )
