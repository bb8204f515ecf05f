"""shoal export over a real state file, while the run goes on and after; and the same from a notebook."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from wait import HANG, until

import shoal
from shoal.cli.main import main
from shoal.commands.result import Result
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome, Task, digest
from shoal.queue.sqlite import SqliteQueue

SHOAL = [sys.executable, "-m", "shoal"]


class SampleRun:
    """A run whose records and failures come when a test says so."""

    def __init__(self, queue: SqliteQueue, run: Run) -> None:
        self.queue = queue
        self.run = run
        self._tasks = 0

    async def _settle(self, **more: Any) -> None:
        self._tasks += 1
        url = f"https://shop.example/{self._tasks}"
        added = Task(url, "shop.example", digest(url))
        await self.queue.add(self.run.id, [added], {"shop.example": UNLIMITED_PACE})
        (held,) = (await self.queue.claim("w1", 1)).tasks
        await self.queue.settle([Outcome(held.id, held.lease, **more)])

    async def bring(self, *records: dict[str, Any]) -> None:
        await self._settle(result="done", records=tuple(json.dumps(record).encode() for record in records))

    async def fail(self, message: str) -> None:
        attempt = Attempt(at=1, worker="w1", cause="http.404", message=message, status=404)
        await self._settle(result="dead", cause="http.404", attempt=attempt)

    async def end(self) -> None:
        await self.queue.set_run(self.run.id, "finish")

    async def result(self) -> Result:
        return Result(load({}), self.run.name, self.run.id, await self.queue.stats(self.run.id))


@pytest.fixture
async def sample_run(clean_folder: Path) -> AsyncIterator[SampleRun]:
    (clean_folder / ".shoal").mkdir()
    queue = await SqliteQueue.open(".shoal/shoal.db")
    run = await queue.start_run(NewRun(scraper="books", key="k", name="7KQ2A"))
    yield SampleRun(queue, run)
    await queue.close()


class CommandResult(NamedTuple):
    returncode: int
    bytes: bytes
    stderr: str

    @property
    def stdout(self) -> str:
        return self.bytes.decode()


async def shell(*words: str) -> CommandResult:
    """Give a command and wait for its end; in this process, to save the start of another."""
    out, err = io.BytesIO(), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(out, write_through=True)) as kept, redirect_stderr(err):
        code = await asyncio.to_thread(main, list(words))
        kept.flush()
        return CommandResult(code, out.getvalue(), err.getvalue())


def rows(name: str) -> list[dict[str, str]]:
    path = Path(name)
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def stored(name: str) -> list[Any]:
    if not Path(name).exists():
        return []
    db = sqlite3.connect(name)
    try:
        return db.execute("SELECT n FROM records").fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        db.close()


# The command


async def test_every_form_is_written_by_the_name_of_the_file(sample_run: SampleRun) -> None:
    import pyarrow.parquet
    from openpyxl import load_workbook

    await sample_run.bring({"n": 1, "t": "a"}, {"n": 2, "t": "b"})
    for name in ("o.json", "o.parquet", "o.xlsx", "o.db", "o.tsv", "o.jsonl.gz"):
        done = await shell("export", "-o", name)
        assert (done.returncode, done.stdout) == (0, f"{name}: 2 records, 2 of them new.\n"), done.stderr
    await sample_run.bring({"n": 3, "t": "c"})
    for name in ("o.json", "o.parquet", "o.xlsx", "o.db"):
        assert (await shell("export", "-o", name)).stdout == f"{name}: 3 records, 1 of them new.\n"
    assert [row["n"] for row in json.loads(Path("o.json").read_text())] == [1, 2, 3]
    assert pyarrow.parquet.read_table("o.parquet").column("n").to_pylist() == [1, 2, 3]
    assert [row[0].value for row in load_workbook("o.xlsx")["records"]] == ["n", 1, 2, 3]
    assert stored("o.db") == [(1,), (2,), (3,)]


async def test_every_form_goes_to_a_pipe(sample_run: SampleRun) -> None:
    import pyarrow.parquet

    await sample_run.bring({"n": 1}, {"n": 2, "t": "=x"})
    assert json.loads((await shell("export", "-o", "-", "--format", "json")).stdout) == [{"n": 1}, {"n": 2, "t": "=x"}]
    table = (await shell("export", "-o", "-", "--format", "csv", "--csv-safe")).stdout
    assert list(csv.DictReader(io.StringIO(table))) == [{"n": "1", "t": ""}, {"n": "2", "t": "'=x"}]
    assert (await shell("export", "-o", "-", "--format", "tsv")).stdout.splitlines()[0] == "n\tt"
    packed = (await shell("export", "-o", "-", "--format", "parquet")).bytes
    assert pyarrow.parquet.read_table(io.BytesIO(packed)).num_rows == 2
    assert [entry.name for entry in Path().iterdir()] == [".shoal"]


REFUSED = [
    (("-o", "x.txt"), "a name that ends in .jsonl"),
    (("-o", "x.parquet", "--follow"), "leave --follow out"),
    (("-o", "-", "--format", "json", "--follow"), "leave --follow out"),
    (("-o", "-", "--format", "sqlite", "--follow"), "leave --follow out"),
    (("-o", "x.csv", "--format", "csv"), "leave --format out"),
    (("-o", "-", "--failed"), "--failed"),
    (("-o", ".shoal/shoal.db", "--fresh"), "another name"),
]


@pytest.mark.parametrize(("words", "hint"), REFUSED)
async def test_what_cannot_be_done_is_refused_with_a_way_out(
    sample_run: SampleRun, words: tuple[str, ...], hint: str
) -> None:
    done = await shell("export", *words)
    assert done.returncode == 2 and hint in done.stderr and not done.stdout


async def test_failed_pages_are_written_beside_on_request(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1})
    done = await shell("export", "-o", "pages.csv", "--failed")
    assert done.stdout.endswith("No page failed.\n") and not Path("pages.failed.csv").exists()
    await sample_run.fail("=not found")
    done = await shell("export", "-o", "pages.csv", "--failed", "--csv-safe")
    assert done.stdout.endswith("pages.failed.csv: 1 page.\n"), done.stderr
    (row,) = rows("pages.failed.csv")
    assert (row["url"], row["cause"], row["status"]) == ("https://shop.example/2", "http.404", "404")
    assert row["message"] == "'=not found"


@pytest.mark.parametrize("name", ["out.csv", "out.db"])
async def test_follow_copies_while_the_run_goes_on_and_ends_with_it(sample_run: SampleRun, name: str) -> None:
    found = rows if name.endswith("csv") else stored
    await sample_run.bring({"n": 1})
    with subprocess.Popen(
        [*SHOAL, "export", "-o", name, "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        await until(lambda: len(found(name)) == 1)
        await sample_run.bring({"n": 2, "late": "x"}, {"n": 3})
        await until(lambda: len(found(name)) == 3)
        assert following.poll() is None
        await sample_run.bring({"n": 4})
        await sample_run.end()
        out, err = await asyncio.to_thread(following.communicate, timeout=HANG)
    assert (following.returncode, out, err) == (0, f"{name}: 4 records, 4 of them new.\n", "")
    assert len(found(name)) == 4


async def test_follow_that_is_interrupted_says_that_it_goes_on(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1})
    command = [*SHOAL, "export", "-o", "out.csv", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        await until(lambda: rows("out.csv"))
        following.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(following.communicate, timeout=HANG)
    assert (following.returncode, out) == (4, "") and "run it again to resume" in err
    await sample_run.bring({"n": 2})
    await sample_run.end()
    done = await shell("export", "-o", "out.csv", "--follow")
    assert done.stdout == "out.csv: 2 records, 1 of them new.\n"


async def test_follow_to_a_pipe_gives_each_record_as_it_comes(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1})
    for kind in ("jsonl", "csv"):
        command = [*SHOAL, "export", "-o", "-", "--format", kind, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            first = await asyncio.to_thread(following.stdout.readline)
            assert first == ('{"n": 1}\n' if kind == "jsonl" else "n\n")
            if kind == "csv":
                assert await asyncio.to_thread(following.stdout.readline) == "1\n"
                await sample_run.bring({"n": 2, "late": 1})
                assert await asyncio.to_thread(following.stdout.readline) == "2\n"
                await sample_run.end()
                _, err = await asyncio.to_thread(following.communicate, timeout=HANG)
                assert following.returncode == 0 and "Column late came after the first row" in err
            else:
                following.send_signal(signal.SIGINT)
                await asyncio.to_thread(following.communicate, timeout=HANG)
                assert following.returncode == 4


async def test_follow_shows_on_a_terminal_how_far_it_is(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1}, {"n": 2})
    master, slave = pty.openpty()
    command = [*SHOAL, "export", "-o", "out.jsonl", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, text=True) as following:
        os.close(slave)
        seen, end = b"", time.monotonic() + HANG
        while b"2 records so far" not in seen and time.monotonic() < end:
            if select.select([master], [], [], 1.0)[0]:
                seen += os.read(master, 1000)
        await sample_run.end()
        out, _ = await asyncio.to_thread(following.communicate, timeout=HANG)
    os.close(master)
    assert b"2 records so far" in seen and out == "out.jsonl: 2 records, 2 of them new.\n"


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.db"])
async def test_killed_and_given_again_the_command_ends_complete(sample_run: SampleRun, name: str) -> None:
    for first in range(0, 6000, 2000):
        await sample_run.bring(*({"n": n, "text": "x" * 200} for n in range(first, first + 2000)))
    for moment in range(3):
        with subprocess.Popen([*SHOAL, "export", "-o", name], stdout=subprocess.DEVNULL) as child:
            place = Path(f".{name}.shoal") if moment else Path(name)
            end = time.monotonic() + HANG
            while child.poll() is None and not place.exists() and time.monotonic() < end:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.01 * moment)
            child.kill()
    done = await shell("export", "-o", name)
    assert done.returncode == 0 and done.stdout.startswith(f"{name}: 6,000 records"), done.stderr
    if name == "out.parquet":
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(name).column("n").to_pylist()
    elif name == "out.db":
        found = [n for (n,) in stored(name)]
    else:
        found = [int(row["n"]) for row in rows(name)]
    assert found == list(range(6000))


# In a notebook


async def test_a_result_becomes_a_table_of_any_library(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1, "t": "a", "tags": ["x"]}, {"n": None, "t": "b"})
    result = await sample_run.result()
    assert result.to_arrow().column_names == ["n", "t", "tags"]
    assert result.to_polars()["tags"].to_list() == [["x"], None]
    frame = result.to_pandas()
    assert frame["t"].tolist() == ["a", "b"] and str(frame["n"].dtype) == "Int64"


async def test_a_result_works_outside_a_running_loop_too(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1})
    await sample_run.fail("gone")
    result = await sample_run.result()

    def plain() -> tuple[Any, ...]:
        return list(result), list(result.failed), result.write("out.parquet"), len(result.to_pandas())

    records, failed, written, length = await asyncio.to_thread(plain)
    assert (records, written, length) == ([{"n": 1}], 1, 1)
    assert (failed[0]["url"], failed[0]["cause"], failed[0]["message"]) == (
        "https://shop.example/2",
        "http.404",
        "gone",
    )


async def test_a_result_is_written_again_over_what_an_earlier_run_left(sample_run: SampleRun) -> None:
    await sample_run.bring({"n": 1})
    first = await sample_run.result()
    assert [first.write(name) for name in ("out.csv", "out.csv", "out.db", "out.xlsx")] == [1, 1, 1, 1]
    sample_run.run = await sample_run.queue.start_run(NewRun(scraper="books", key="other", name="8AAAA"))
    await sample_run.bring({"n": 2}, {"n": 3})
    second = await sample_run.result()
    assert [second.write(name) for name in ("out.csv", "out.db", "out.xlsx")] == [2, 2, 2]
    assert [row["n"] for row in rows("out.csv")] == ["2", "3"] and stored("out.db") == [(2,), (3,)]
    Path("mine.csv").write_text("mine")
    with pytest.raises(shoal.ShoalError, match="not written by this run"):
        second.write("mine.csv")
    assert second.write("mine.csv", fresh=True) == 2
    assert Path("mine.csv.old").read_text() == "mine"


async def test_a_missing_library_is_named_with_the_way_to_get_it(
    sample_run: SampleRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.store.formats.find_spec", lambda name: None)
    result = await sample_run.result()
    for method, extra in (("to_pandas", "pandas"), ("to_polars", "polars"), ("to_arrow", "parquet")):
        with pytest.raises(shoal.ShoalError, match="not installed") as caught:
            getattr(result, method)()
        assert getattr(caught.value, "hint", "") == f"in the folder of shoal's source: pip install '.[{extra}]'"
    with pytest.raises(shoal.ShoalError, match="pyarrow"):
        result.write("out.parquet")


async def test_what_was_scraped_is_never_markup_in_a_notebook(sample_run: SampleRun) -> None:
    bad = "<script>alert(1)</script>"
    await sample_run.bring(*({"<b>": bad, "n": n, "long": "y" * 500} for n in range(15)))
    shown = (await sample_run.result())._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown and "<th>&lt;b&gt;</th>" in shown
    assert shown.count("<tr>") == 11 and "and 5 more" in shown and "y" * 101 not in shown
    assert "<Result" not in shown


async def test_the_error_of_a_question_reaches_whoever_asked(
    sample_run: SampleRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sample_run.bring({"n": 1})
    result = await sample_run.result()
    Path("out.csv").write_text("mine")
    with pytest.raises(shoal.ShoalError, match=r"out\.csv"):
        result.write("out.csv")
