"""Page states: what a run remembers of its pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

import msgspec

from shoal.core.run import TASK_BITS
from shoal.queue.base import PageState
from shoal.queue.page_state_limits import answer_size, check_page_states, chosen_tasks

_OF_TASKS = "SELECT id, head, {body} FROM page_states WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?"
_PAGE = "SELECT id, head, {body} FROM page_states WHERE id > ? AND id < ? ORDER BY id LIMIT ?"


def save(db: sqlite3.Connection, now: int, run: int, states: Sequence[PageState]) -> None:
    check_page_states(run, states)
    if db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is not None:
        db.executemany(
            "INSERT OR REPLACE INTO page_states (id, head, body) VALUES (?, ?, ?)",
            [(state.task, state.head, state.body) for state in states],
        )


def listing(
    db: sqlite3.Connection,
    now: int,
    run: int,
    *,
    after: int = 0,
    limit: int = 1000,
    tasks: Collection[int] = (),
    whole: bool = False,
) -> list[PageState]:
    body, most = "body" if whole else "x''", answer_size(limit, whole)
    if tasks:
        chosen = msgspec.json.encode(chosen_tasks(run, tasks, after)).decode()
        rows = db.execute(_OF_TASKS.format(body=body), (chosen, most))
    else:
        first, last = max(after, run << TASK_BITS), (run + 1) << TASK_BITS
        rows = db.execute(_PAGE.format(body=body), (first, last, most))
    return [PageState(*row) for row in rows]
