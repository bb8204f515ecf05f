"""Outputs under kill -9: whatever the instant, the same command again leaves every row once."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_store_export import FakeRecords, opened

ROWS = 240
HERE = str(Path(__file__))


def numbers(path: Path) -> list[int]:
    """What a reader of that form finds."""
    ending = path.suffix
    if ending == ".parquet":
        from pyarrow import parquet

        found: list[int] = parquet.read_table(path).column("n").to_pylist()
        return found
    if ending == ".db":
        db = sqlite3.connect(path)
        try:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return [n for (n,) in db.execute("SELECT n FROM records ORDER BY rowid")]
        finally:
            db.close()
    if ending == ".json":
        return [row["n"] for row in json.loads(path.read_text())]
    if ending == ".jsonl":
        return [json.loads(line)["n"] for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return [int(row["n"]) for row in csv.DictReader(file)]


async def export(path: Path) -> None:
    from shoal.store import append_writer, record_batches

    record_batches.BATCH_SIZE = record_batches.FIRST_BATCH = 30
    append_writer.COMMIT_EVERY = 0.0
    kept = FakeRecords()
    exporter = opened(kept, path)
    for first in range(0, ROWS, 80):  # each part has a column of its own
        kept.add(*({"n": n, f"c{first}": n} for n in range(first, first + 80)))
        await exporter.drain()
    await exporter.finish()
    exporter.close()


class Reaper:
    """Kills its own process at the nth step that touches a disk, in the middle of it if it writes."""

    def __init__(self, step: int) -> None:
        self.left = step
        self._pwrite, self._fsync = os.pwrite, os.fsync

    def due(self) -> bool:
        self.left -= 1
        return self.left == 0

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pwrite(self, file: int, data: Any, at: int) -> int:
        if self.due():
            self._pwrite(file, data[: len(data) // 2], at)
            self.die()
        return self._pwrite(file, data, at)

    def fsync(self, file: int) -> None:
        if self.due():
            self.die()
        self._fsync(file)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or event in ("os.rename", "os.remove", "os.truncate")) and self.due():
            self.die()

    def watch(self) -> None:
        os.pwrite, os.fsync = self.pwrite, self.fsync  # type: ignore[assignment]
        sys.addaudithook(self.hook)


def killed_at(step: int, path: Path) -> bool:
    """One process that dies at that step; False if it was through before."""
    child = os.fork()
    if not child:
        Reaper(step).watch()
        asyncio.run(export(path))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status)


def every_step(folder: Path, ending: str) -> None:
    """Kill at step 1, 2, 3 …; each time look at what is there, then let it end."""
    if ending == ".parquet":
        import pyarrow.parquet  # noqa: F401 - before the forks, which share it

    stride = 2 if ending in (".json", ".parquet") else 5
    step = 1
    while True:
        path = folder / f"out{step}{ending}"
        alive = not killed_at(step, path)
        if ending in (".json", ".parquet") and path.exists():
            assert numbers(path) == list(range(ROWS)), "what has the name is whole"
        # A second one dies where the first had not been.
        killed_at(step + 3, path)
        assert not killed_at(100_000, path)
        assert numbers(path) == list(range(ROWS)), (step, numbers(path))
        assert not (folder / f".{path.name}.shoal").exists()
        if alive:
            break
        step += stride
    print(step)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".json", ".parquet"])
def test_killed_at_any_step_the_next_one_ends_complete(tmp_path: Path, ending: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE, str(tmp_path), ending], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 6


def test_a_database_killed_by_the_clock_is_without_a_gap_and_ends_complete(tmp_path: Path) -> None:
    code = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_store_kill
print("begun", flush=True)
asyncio.run(test_store_kill.export(Path(sys.argv[2])))
"""
    path = tmp_path / "out.db"
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(path)]
    for moment in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(0.006 * (moment + 1))
            except subprocess.TimeoutExpired:
                child.kill()
        if path.exists() and path.stat().st_size:
            found = numbers(path) if has_rows(path) else []
            assert found == list(range(len(found))), "live and without a gap"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert numbers(path) == list(range(ROWS))


def test_a_full_disk_leaves_no_half_file_and_the_next_try_ends_complete(tmp_path: Path) -> None:
    """With a limit on file sizes the kernel refuses to write on, as a full disk does."""
    code = """
import asyncio, os, resource, signal, sys
sys.path.insert(0, sys.argv[1])
import pyarrow.parquet
from pathlib import Path
from test_store_export import FakeRecords, opened
from test_store_kill import numbers
from shoal.errors import ActionRequired
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main(path):
    kept = FakeRecords()
    kept.add(*({"n": n, "text": os.urandom(40).hex()} for n in range(3000)))
    exporter = opened(kept, path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    try:
        await exporter.finish()
        raise SystemExit("nothing was refused")
    except ActionRequired as error:
        assert path.name in str(error) and error.hint, error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    left = sorted(entry.name for entry in path.parent.iterdir() if entry.name != ".shoal")
    assert left == ([path.name] if path.suffix in (".csv", ".db") else []), left
    await exporter.finish()
    exporter.close()
    assert path.suffix == ".xlsx" or numbers(path) == list(range(3000))
    path.unlink()

for ending in (".json", ".parquet", ".xlsx", ".db", ".csv"):
    asyncio.run(main(Path(sys.argv[2], f"out{ending}")))
"""
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, here, str(tmp_path)], check=True, timeout=60)


def has_rows(path: Path) -> bool:
    db = sqlite3.connect(path)
    try:
        columns = [row[1] for row in db.execute("PRAGMA table_info(records)")]
        return "n" in columns
    finally:
        db.close()


if __name__ == "__main__":
    every_step(Path(sys.argv[1]), sys.argv[2])
