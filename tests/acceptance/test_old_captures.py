"""Captures on a machine that has no server: runs remove those that have been kept long enough."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from shell_user import ShellUser

from shoal.queue.captures import Capture, find_capture, save_capture
from shoal.queue.sqlite import SqliteQueue

TASKS = 64  # a run looks at a quarter of all shards: that it meets none of theirs does not happen
EIGHT_DAYS = 8 * 86_400_000_000


async def with_captures(path: Path, *, save: bool) -> list[int]:
    """The tasks that have one."""
    queue = await SqliteQueue.open(str(path))
    try:
        for task in range(1, TASKS + 1) if save else ():
            assert await save_capture(queue, task, 0, Capture("image/png", b"picture"))
        return [task for task in range(1, TASKS + 1) if await find_capture(queue, task, 0)]
    finally:
        await queue.close()


def test_runs_remove_old_captures_and_leave_new_ones(tmp_path: Path) -> None:
    state = tmp_path / ".shoal" / "shoal.db"
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "one.html").write_text("<title>one</title>")
    command = ("run", "./pages/", "-f", "title=title", "--workers", "1")
    with ShellUser(tmp_path) as user:
        assert user.shoal(*command).code == 0
        assert len(asyncio.run(with_captures(state, save=True))) == TASKS
        assert user.shoal(*command, "--fresh").code == 0
        assert len(asyncio.run(with_captures(state, save=False))) == TASKS
        with closing(sqlite3.connect(state)) as db, db:
            db.execute("UPDATE documents SET made_at = made_at - ? WHERE kind LIKE 'capture.%'", (EIGHT_DAYS,))
        assert user.shoal(*command, "--fresh").code == 0
        assert len(asyncio.run(with_captures(state, save=False))) < TASKS
