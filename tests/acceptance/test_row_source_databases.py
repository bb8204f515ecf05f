"""Lists from PostgreSQL and from a table, as commands read them; killed in between, every row comes once."""

from __future__ import annotations

import csv
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import asyncpg
import pytest
from servers import postgres
from wait import HANG, wait_until

from shoal.errors import UsageError
from shoal.sources.sql import STEP, query_rows


async def test_rows_of_postgresql_are_read_in_steps_and_nothing_can_be_written() -> None:
    url = postgres.shared().url().partition("&namespace")[0]
    table, rows = f"items_{uuid.uuid4().hex}", 2 * STEP + 5
    db = await asyncpg.connect(url)
    try:
        columns = "'https://a.example/' || n as url, n::numeric as price, now() as at"
        await db.execute(f"create table {table} as select {columns} from generate_series(1, {rows}) n")
        found = [row async for row in query_rows(url, f"select * from {table} order by price")]
        assert [row["url"] for row in found] == [f"https://a.example/{n}" for n in range(1, rows + 1)]
        changes = f"with gone as (delete from {table} returning 1) select count(*) from gone"
        for query, problem in ((changes, "read-only"), (f"drop table {table}", "no rows"), ("select nope", "nope")):
            with pytest.raises(UsageError, match=problem):
                async for _ in query_rows(url, query):
                    pass
        assert await db.fetchval(f"select count(*) from {table}") == rows
    finally:
        await db.execute(f"drop table if exists {table}")
        await db.close()


def test_a_table_that_is_read_into_a_run_that_is_killed_comes_once_row_by_row(tmp_path: Path) -> None:
    """Nothing is fetched: the rows name a host that cannot be, so that each is a failed page of its own."""
    count = 1_500
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("create table items (url text, sku integer)")
        db.executemany("insert into items values (?, ?)", ((f"http://127.0.0.1:1/{n}", n) for n in range(count)))
    db.close()
    command = [
        sys.executable, "-m", "shoal", "run", "--from-sql", "shop.db", "--query", "select url, sku from items",
        "-o", "out.csv", "--workers", "1", "--delay", "0",
    ]  # fmt: skip
    environment = {**os.environ, "NO_COLOR": "1"}

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    process = started()
    wait_until(lambda: list((tmp_path / ".shoal" / "inputs").glob("*.json")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=HANG)
    with sqlite3.connect(tmp_path / "shop.db") as db:  # the run goes on with the rows it began with
        db.execute("delete from items where sku % 2")
    db.close()
    process = started()
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 3, errors.decode()
    with (tmp_path / "out.failed.csv").open(newline="") as file:
        assert sorted(int(row["url"].rpartition("/")[2]) for row in csv.DictReader(file)) == list(range(count))
