"""Page limit: a run may get another one, and goes on with what was left if it was its limit that ended it."""

from __future__ import annotations

import sqlite3

from shoal.core.run import Run
from shoal.queue.page_limit import limit_refused
from shoal.queue.sqlite import runs


def set_max_pages(db: sqlite3.Connection, now: int, run: int, max_pages: int) -> tuple[Run, bool]:
    """The run as it is then, and whether some of its lanes have not noticed yet: see lanes.move_some."""
    about = runs.get(db, run)
    if about.state not in ("running", "paused"):
        _require_more(db, now, about, max_pages)
        runs.bring_back(db, now, about)
    db.execute("UPDATE runs SET max_pages = ?, changed_at = ? WHERE id = ?", (max(0, max_pages), now, run))
    (cursor,) = db.execute("SELECT lane_cursor FROM runs WHERE id = ?", (run,)).fetchone()
    return runs.get(db, run), cursor >= 0


def _require_more(db: sqlite3.Connection, now: int, run: Run, max_pages: int) -> None:
    ended, left = db.execute(
        "SELECT done + dead + discarded - aside, cancelled FROM runs WHERE id = ?", (run.id,)
    ).fetchone()
    if run.state != "finished" or not left or not 0 < run.max_pages <= ended:
        raise limit_refused("ended", run)
    if not runs.keeps_tasks(db, now, run.id):
        raise limit_refused("late", run)
    if 0 < max_pages <= ended:
        raise limit_refused("reached", run, ended)
    if other := runs.going_on(db, run.key):
        raise limit_refused("replaced", run, other)
