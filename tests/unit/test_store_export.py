"""Export: whole rows only, nothing doubled, nothing lost, whatever is killed when."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.core.run import Run
from shoal.errors import ActionRequired, OutputTaken, RunBusy, UsageError
from shoal.queue.base import StoredRecord
from shoal.store import append_file, output_state
from shoal.store.export import Exporter, check_output

RUN = Run(id=1, name="AAAAA", scraper="s", key="k", state="running", created_at=1, changed_at=1)
OTHER = Run(id=2, name="BBBBB", scraper="s", key="k", state="running", created_at=2, changed_at=2)


class FakeRecords:
    """Records as a queue keeps them."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def add(self, *values: Any) -> None:
        self.data += [json.dumps(value).encode() for value in values]

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> list[StoredRecord]:
        found = enumerate(self.data[after : after + limit], after + 1)
        return [StoredRecord(seq=seq, task=1, data=data) for seq, data in found]


@pytest.fixture
def kept() -> FakeRecords:
    return FakeRecords()


@pytest.fixture(autouse=True)
def _widening_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine where everything takes long."""
    monkeypatch.setattr("shoal.store.append_writer.CHEAP_REWRITE", float("inf"))


def opened(kept: FakeRecords, path: Path, run: Run = RUN, **options: Any) -> Exporter:
    return Exporter(kept, run, path, path.parent / ".shoal", **options)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


async def test_drain_copies_what_is_new_each_time(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    exporter = opened(kept, path)
    assert await exporter.drain() == 0
    kept.add({"n": 1}, {"n": 2})
    assert await exporter.drain() == 2
    kept.add(*({"n": n} for n in range(3, 2503)))
    assert await exporter.drain() == 2500
    assert [row["n"] for row in lines(path)] == list(range(1, 2503))
    exporter.close()


async def test_a_later_process_goes_on_where_the_position_stands(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    kept.add({"n": 1})
    first = opened(kept, path)
    await first.drain()
    first.close()
    with path.open("ab") as file:
        # Written by a process that was killed before it was durable; longer than what is written in its place.
        file.write(b'{"n": 2}\n' * 9 + b'{"n"')
    kept.add({"n": 2}, {"n": 3})
    second = opened(kept, path)
    assert await second.drain() == 2
    assert second.rows == 3
    second.close()
    assert [row["n"] for row in lines(path)] == [1, 2, 3]


async def test_a_row_is_one_line_even_if_the_record_was_not(kept: FakeRecords, tmp_path: Path) -> None:
    kept.data = [b'{\n "a": "x\\ny"\n}']
    path = tmp_path / "out.jsonl"
    exporter = opened(kept, path)
    await exporter.drain()
    exporter.close()
    assert path.read_bytes() == b'{"a":"x\\ny"}\n'


async def test_a_file_of_something_else_is_refused_and_kept_aside_by_fresh(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("mine\n")
    with pytest.raises(OutputTaken, match=r"out\.jsonl exists") as caught:
        opened(kept, path)
    assert "--fresh" in caught.value.hint and not caught.value.is_replaceable
    assert path.read_text() == "mine\n"
    kept.add({"n": 1})
    exporter = opened(kept, path, fresh=True)
    await exporter.drain()
    exporter.close()
    assert lines(path) == [{"n": 1}]
    assert (tmp_path / "out.jsonl.old").read_text() == "mine\n"
    assert exporter.notes == ("out.jsonl was there already: it is kept as out.jsonl.old",)


async def test_the_file_of_another_run_is_refused_and_replaced_by_fresh(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.drain()
    exporter.close()
    with pytest.raises(OutputTaken, match="run AAAAA"):
        opened(kept, path, OTHER)
    exporter = opened(kept, path, OTHER, fresh=True)
    assert await exporter.drain() == 1
    exporter.close()
    assert not (tmp_path / "out.jsonl.old").exists()


async def test_a_file_changed_by_someone_else_is_refused(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.drain()
    exporter.close()
    path.write_text('{"n": 7}\n')
    with pytest.raises(OutputTaken, match="changed"):
        opened(kept, path)


async def test_a_removed_file_is_written_again_and_an_empty_one_is_taken(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    kept.add({"n": 1})
    for _ in range(2):
        exporter = opened(kept, path)
        assert await exporter.drain() == 1
        exporter.close()
        path.unlink()


@pytest.mark.parametrize("other", [".shoal", "elsewhere/.shoal"])
async def test_two_processes_cannot_write_one_file_nor_can_two_projects(
    kept: FakeRecords, tmp_path: Path, other: str
) -> None:
    path = tmp_path / "out.jsonl"
    exporter = opened(kept, path)
    with pytest.raises(RunBusy, match="another process"):
        Exporter(kept, RUN, path, tmp_path / other)
    exporter.close()
    Exporter(kept, RUN, path, tmp_path / other).close()


async def test_locks_that_others_could_have_laid_out_are_not_used(
    kept: FakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"shoal-{os.getuid()}").symlink_to(tmp_path / "theirs")
    opened(kept, tmp_path / "out.jsonl").close()
    assert not any((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("name", ["out.txt", "out.gz", "out", ".csv", "none/out.csv", ""])
def test_an_output_that_cannot_be_written_is_refused_with_what_can(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check_output(tmp_path / name)
    assert caught.value.hint


async def test_csv_has_a_column_per_key_in_order_of_appearance(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    kept.add({"b": 'say "hi", you', "a": None}, {"a": [1, {"x": "é"}], "b": "two\nlines\r", "c": True, "d": 1.5})
    exporter = opened(kept, path)
    await exporter.drain()
    exporter.close()
    text = path.read_bytes().decode()
    assert text.startswith('b,a,c,d\r\n"say ""hi"", you",,,\r\n')
    assert table(path)[1] == {"b": "two\nlines\r", "a": '[1, {"x": "é"}]', "c": "true", "d": "1.5"}


async def test_a_column_that_appears_late_widens_the_whole_file(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    kept.add(*({"n": n} for n in range(2500)))
    exporter = opened(kept, path)
    await exporter.drain()
    kept.add({"n": 2500, "late": "x"}, {"more": 1})
    assert await exporter.drain() == 2
    kept.add({"n": 2502})
    assert await exporter.drain() == 1
    exporter.close()
    found = table(path)
    assert [row["n"] for row in found] == [*map(str, range(2501)), "", "2502"]
    assert found[0] == {"n": "0", "late": "", "more": ""}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".shoal", "out.csv"]


class LateRecords(FakeRecords):
    """Another record arrives the moment that all of them have been read."""

    def __init__(self, *late: Any) -> None:
        super().__init__()
        self._late = list(late)

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> list[StoredRecord]:
        found = await super().records(run, after=after, limit=limit)
        if not found and self._late:
            self.add(self._late.pop(0))
        return found


async def test_records_that_arrive_while_a_table_is_widened_keep_their_columns(tmp_path: Path) -> None:
    kept, path = LateRecords({"n": 3, "later": "y"}), tmp_path / "out.csv"
    kept.add({"n": 1}, {"n": 2, "late": "x"})
    exporter = opened(kept, path)
    assert await exporter.finish() == 3
    exporter.close()
    assert [tuple(row.values()) for row in table(path)] == [("1", "", ""), ("2", "x", ""), ("3", "", "y")]
    assert list(table(path)[0]) == ["n", "late", "later"]


@pytest.mark.parametrize("already", [0, 2])
@pytest.mark.parametrize("name", ["out.parquet", "out.xlsx", "out.json"])
async def test_records_that_arrive_while_a_file_is_written_as_a_whole_come_with_the_next(
    tmp_path: Path, name: str, already: int
) -> None:
    kept = LateRecords({"n": 9, "later": "y"})
    kept.add(*({"n": n} for n in range(already)))
    exporter = opened(kept, tmp_path / name)
    assert await exporter.finish() + await exporter.finish() == exporter.rows == already + 1
    assert await exporter.finish() == 0
    exporter.close()


@pytest.mark.parametrize("name", ["out.csv", "out.json"])
async def test_a_private_output_stays_private_while_and_after_it_is_written_anew(
    kept: FakeRecords, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.finish()
    path.chmod(0o600)
    seen = set[int]()
    real = output_state.OutputState.replace

    def replace(state: output_state.OutputState, *args: Any, **named: Any) -> None:
        seen.add(state.temporary_path.stat().st_mode & 0o777)
        real(state, *args, **named)

    async def records(run: int, *, after: int = 0, limit: int = 1000) -> list[StoredRecord]:
        seen.update(entry.stat().st_mode & 0o777 for entry in tmp_path.glob(".*.shoal"))
        return await FakeRecords.records(kept, run, after=after, limit=limit)

    monkeypatch.setattr(output_state.OutputState, "replace", replace)
    kept.records = records  # type: ignore[method-assign]
    kept.add({"n": 2, "late": "x"})
    before = os.umask(0o022)
    try:
        assert await exporter.finish() == 1
    finally:
        os.umask(before)
    exporter.close()
    assert seen == {0o600}
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_kill_between_widening_and_its_position_is_recognised(
    kept: FakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    kept.add({"n": 1})
    for when in ("before the rename", "after the rename"):
        exporter = opened(kept, path)
        await exporter.drain()
        kept.add({"n": 2, f"late {when}": "x"})
        with monkeypatch.context() as patch:
            target = (Path, "replace") if when.startswith("before") else (output_state, "sync_folder")
            seen: list[object] = []
            real = getattr(*target)

            def stop(*args: Any, seen: list[object] = seen, real: Any = real) -> Any:
                if args[0] == path.parent or getattr(args[0], "name", "").endswith(".csv.shoal"):
                    raise KeyboardInterrupt
                return real(*args)

            patch.setattr(*target, stop)
            with pytest.raises(KeyboardInterrupt):
                await exporter.drain()
        exporter.close()
        again = opened(kept, path)
        await again.drain()
        again.close()
        assert len(table(path)) == len(kept.data)
    assert list(table(path)[0]) == ["n", "late before the rename", "late after the rename"]


async def test_a_full_disk_leaves_whole_rows_and_says_what_to_do(kept: FakeRecords, tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    file = append_file.AppendFile.__new__(append_file.AppendFile)
    file.path, file.size, file._file, file._is_compressed = full, 0, os.open(full, os.O_WRONLY), False
    with pytest.raises(ActionRequired, match="no space left") as caught:
        file.append(b"x\n")
    assert "same command again" in caught.value.hint
    file.close()


async def test_a_failed_write_is_cut_back_and_can_be_repeated(kept: FakeRecords, tmp_path: Path) -> None:
    """With a limit on file sizes the kernel takes half a slice, as a full disk does."""
    code = """
import asyncio, json, resource, signal, sys
sys.path.insert(0, sys.argv[1])
from test_store_export import FakeRecords, opened
from pathlib import Path
from shoal.errors import ActionRequired
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    kept, path = FakeRecords(), Path(sys.argv[2])
    kept.add(*({"n": n} for n in range(100)))
    exporter = opened(kept, path)
    await exporter.drain()
    whole = path.read_bytes()
    kept.add(*({"n": n} for n in range(100, 1000)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 1000, resource.RLIM_INFINITY))
    try:
        await exporter.drain()
        raise SystemExit("nothing was refused")
    except ActionRequired as error:
        assert "no space left" in str(error), error
    assert path.read_bytes() == whole
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await exporter.drain()
    assert [json.loads(line)["n"] for line in path.read_bytes().splitlines()] == list(range(1000))

asyncio.run(main())
"""
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, here, str(tmp_path / "out.jsonl")], check=True, timeout=120)


async def test_records_that_are_large_are_read_few_at_a_time(kept: FakeRecords, tmp_path: Path) -> None:
    asked: list[int] = []
    real = kept.records

    async def records(run: int, *, after: int = 0, limit: int = 1000) -> list[StoredRecord]:
        found = await real(run, after=after, limit=limit)
        asked.append(sum(len(record.data) for record in found))
        return found

    kept.records = records  # type: ignore[method-assign]
    kept.add(*({"text": "x" * 100_000} for _ in range(300)))
    exporter = opened(kept, tmp_path / "out.jsonl")
    assert await exporter.drain() == 300
    exporter.close()
    assert max(asked) < 6_000_000


async def test_csv_that_is_to_be_safe_from_now_on_is_written_anew(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    kept.add({"=a": "=1+1", "n": -5})
    for safe, cell in ((False, "=1+1"), (True, "'=1+1"), (False, "=1+1")):
        exporter = opened(kept, path, csv_safe=safe)
        await exporter.drain()
        exporter.close()
        (row,) = table(path)
        assert list(row.values()) == [cell, "-5"]
        assert next(iter(row)) == ("'=a" if safe else "=a")


async def test_a_table_that_is_dear_to_widen_is_widened_at_the_end(
    kept: FakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.store.append_writer.CHEAP_REWRITE", 0.0)
    monkeypatch.setattr("shoal.store.append_writer.REWRITE_PAUSE_FACTOR", 1e9)
    path = tmp_path / "out.csv"
    kept.add({"n": 1})
    exporter = opened(kept, path)
    assert await exporter.drain() == 1
    kept.add({"n": 2, "late": "x"})
    assert await exporter.drain() == 0
    assert len(table(path)) == 1
    assert await exporter.finish() == 1
    exporter.close()
    assert table(path) == [{"n": "1", "late": ""}, {"n": "2", "late": "x"}]


async def test_what_a_form_needs_is_asked_for_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.formats.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed") as caught:
        check_output(tmp_path / "out.parquet")
    assert caught.value.hint == "in the folder of shoal's source: pip install '.[parquet]'"


async def test_replace_takes_the_place_of_another_run_only_where_the_file_is_as_it_was(
    kept: FakeRecords, tmp_path: Path
) -> None:
    for name in ("out.jsonl", "out.parquet", "out.db"):
        path = tmp_path / name
        kept.data = []
        kept.add({"n": 1})
        first = opened(kept, path)
        await first.finish()
        first.close()
        second = opened(kept, path, OTHER, replace=True)
        assert await second.finish() == 1
        second.close()
    path = tmp_path / "out.jsonl"
    path.write_text("mine now")
    with pytest.raises(OutputTaken):
        opened(kept, path, RUN, replace=True)


async def test_fresh_keeps_what_somebody_put_in_the_place_of_ours(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    kept.add({"n": 1})
    exporter = opened(kept, path)
    await exporter.drain()
    exporter.close()
    path.write_text("work of a day")
    opened(kept, path, OTHER, fresh=True).close()
    assert (tmp_path / "out.jsonl.old").read_text() == "work of a day"


async def test_what_was_set_aside_before_is_kept_too(kept: FakeRecords, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    (tmp_path / "out.jsonl.old").write_text("older")
    path.write_text("mine")
    opened(kept, path, fresh=True).close()
    assert (tmp_path / "out.jsonl.old").read_text() == "older"
    assert (tmp_path / "out.jsonl.old2").read_text() == "mine"
