"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.task import REVIVED, Attempt, band
from shoal.errors import RunNameTaken, UsageError
from shoal.queue import undo as undo_refusal
from shoal.queue.base import LIMIT_SECONDS, UNDO_SECONDS, RunAction, TaskFilter
from shoal.queue.cells import read_run
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.sqlite import dead_letter, failing, lanes, needs, seen_sets
from shoal.queue.sqlite.filter import condition, dead_letters

SWEEP_SLICE = 2000
# One that comes back is level with the others, it does not catch up.
_LEVEL = "UPDATE runs SET share = max(share, ifnull((SELECT min(share) FROM runs WHERE state = 'running' AND id <> ?1), 0)) WHERE id = ?1"

_COLUMNS = "id, name, scraper, key, state, created_at, changed_at, finished_at, weight, priority, max_pages, spec, seen_set, seen_for, dead_retention"


def _run(row: tuple[object, ...]) -> Run:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    for name in ("seen_for", "dead_retention"):
        values[name] = int(str(values[name])) / lanes.SECOND
    return read_run(values, str(values.pop("spec")))


def start(db: sqlite3.Connection, now: int, new: NewRun) -> Run:
    found = db.execute(
        f"""SELECT {_COLUMNS} FROM runs WHERE key = ? AND (? OR state IN ('running', 'paused'))
            ORDER BY state IN ('running', 'paused') DESC, id DESC LIMIT 1""",
        (new.key, new.once),
    ).fetchone()
    if found:
        return _run(found)
    if new.name and db.execute("SELECT 1 FROM runs WHERE name = ?", (new.name,)).fetchone():
        raise RunNameTaken(f"there is a run called {new.name} already", hint="choose another name")
    (level,) = db.execute("SELECT ifnull(min(share), 0) FROM runs WHERE state = 'running'").fetchone()
    row = db.execute(
        f"""INSERT INTO runs (name, scraper, key, state, created_at, changed_at, weight, priority, max_pages, spec, share, seen_set, seen_for, dead_retention)
            VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}""",
        (
            new.name or f"r{now:x}",
            new.scraper,
            new.key,
            now,
            now,
            new.weight,
            new.priority,
            new.max_pages,
            msgspec.json.encode(new.spec).decode(),
            level,
            new.seen_set,
            lanes.micros(new.seen_for),
            lanes.micros(new.keeps_dead),
        ),
    ).fetchone()
    seen_sets.open_set(db, now, new.seen_set, new.seen_for)
    return _run(row)


def listing(
    db: sqlite3.Connection,
    now: int,
    *,
    key: str = "",
    name: str = "",
    states: Collection[str] = (),
    scraper: str = "",
    before: int = 0,
    limit: int = 100,
) -> list[Run]:
    terms, values = ["1"], list[object]()
    if key:
        terms.append("key = ?")
        values.append(key)
    if name:
        terms.append("(name = ? OR substr(name, 1, length(?)) = ?)")
        values += [name, name, name]
    if scraper:
        terms.append("scraper = ?")
        values.append(scraper)
    if before > 0:
        terms.append("id < ?")
        values.append(before)
    if states:
        terms.append("state IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(list(states)).decode())
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(terms)} ORDER BY id DESC LIMIT ?", (*values, limit)
    ).fetchall()
    exact = [row for row in rows if row[1] == name]
    return [_run(row) for row in exact or rows]


def ended_before(db: sqlite3.Connection, at: int) -> list[int]:
    rows = db.execute(
        "SELECT id FROM runs WHERE state IN ('finished', 'cancelled') AND finished_at <= ?", (at,)
    ).fetchall()
    return [row[0] for row in rows]


def get(db: sqlite3.Connection, run: int) -> Run:
    row = db.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise UsageError(f"there is no run with number {run}", hint="`shoal runs` lists them")
    return _run(row)


def accepts_tasks(db: sqlite3.Connection, run: int) -> bool:
    row = db.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()
    return row is not None and row[0] in ("running", "paused")


def keeps_tasks(db: sqlite3.Connection, now: int, run: int) -> bool:
    """Whether what was cancelled with a run is kept, so that this can be undone."""
    row = db.execute("SELECT undo_until FROM runs WHERE id = ?", (run,)).fetchone()
    return row is not None and row[0] > now


def keep_ready(db: sqlite3.Connection, run: int, lane: int, needed: int) -> None:
    db.execute("UPDATE run_lanes SET kept = kept + 1 WHERE run = ? AND lane = ? AND needs = ?", (run, lane, needed))


def keep_returned(db: sqlite3.Connection, now: int, task: int, run: int, lane: int, needed: int) -> None:
    """The lease of a task ended after its run was cancelled: it waits if that is undone."""
    if not keeps_tasks(db, now, run):
        db.execute("DELETE FROM tasks WHERE id = ?", (task,))
        return
    db.execute("UPDATE tasks SET state = 0, lease = 0 WHERE id = ?", (task,))
    db.execute("UPDATE runs SET kept_ready = kept_ready + 1 WHERE id = ?", (run,))
    keep_ready(db, run, lane, needed)


def set_state(db: sqlite3.Connection, now: int, run: int, action: RunAction) -> tuple[Run, bool]:
    """The run as it is then, and whether some of its lanes have not noticed yet: see lanes.move_some."""
    changed = _set_state(db, now, run, action)
    (cursor,) = db.execute("SELECT lane_cursor FROM runs WHERE id = ?", (run,)).fetchone()
    return changed, cursor >= 0


def _set_state(db: sqlite3.Connection, now: int, run: int, action: RunAction) -> Run:
    about = get(db, run)
    if action == "undo":
        return undo(db, now, about)
    wanted = {"pause": "paused", "resume": "running", "cancel": "cancelled", "finish": "finished"}[action]
    if about.state == wanted:
        return about
    if about.state in ("cancelled", "finished"):
        raise UsageError(
            f"cannot {action} run {about.name}: it is already {about.state}", hint="start a new one with --fresh"
        )
    if action == "cancel":
        cancel(db, now, run, "cancelled")
    elif action == "finish":
        finish(db, now, about)
    else:
        db.execute("UPDATE runs SET state = ?, changed_at = ? WHERE id = ?", (wanted, now, run))
        if action == "resume":
            db.execute(_LEVEL, (run,))
    return get(db, run)


def finish(db: sqlite3.Connection, now: int, run: Run) -> None:
    left, entries = db.execute("SELECT ready + leased, outbox FROM runs WHERE id = ?", (run.id,)).fetchone()
    if left:
        raise UsageError(f"run {run.name} has open tasks ({left}): it cannot finish", hint="wait, or cancel the run")
    if entries:
        raise outbox_pending(run.name, entries, "it cannot finish")
    _end(db, now, run.id, "finished")


def _end(db: sqlite3.Connection, now: int, run: int, state: str) -> None:
    db.execute(
        "UPDATE runs SET state = ?, changed_at = ?, finished_at = ?, lane_cursor = 0 WHERE id = ?",
        (state, now, now, run),
    )
    db.execute("UPDATE run_needs SET ready = 0 WHERE run = ?", (run,))
    lanes.move_some(db, now, run)


def cancel(db: sqlite3.Connection, now: int, run: int, state: str) -> None:
    """Close the account at once; the rows are kept for a while. Leased tasks may still bring their records."""
    kept_for = LIMIT_SECONDS if state == "finished" else UNDO_SECONDS
    in_flight = _set_leased(db, run, was=1, becomes=3)
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ?", [(n, lane) for lane, n in in_flight.items()]
    )
    db.execute(
        """UPDATE runs SET cancelled = cancelled + ready + leased, kept_ready = ready, kept_delayed = delayed, ready = 0, delayed = 0, leased = 0,
             leftovers = 1, undo_until = ?, state_before = state WHERE id = ?""",
        (now + lanes.micros(kept_for), run),
    )
    _end(db, now, run, state)
    lanes.wake(db, in_flight)


def _set_leased(db: sqlite3.Connection, run: int, *, was: int, becomes: int) -> Counter[int]:
    """Change the state of what a run has leased; says how many by lane."""
    held = db.execute(
        "SELECT t.id, t.lane FROM leases l CROSS JOIN tasks t ON t.lease = l.number AND t.state IN (1, 3) WHERE t.state = ? AND t.run = ?",
        (was, run),
    ).fetchall()
    db.executemany("UPDATE tasks SET state = ? WHERE id = ?", [(becomes, task) for task, _ in held])
    return Counter(lane for _, lane in held)


def undo(db: sqlite3.Connection, now: int, run: Run) -> Run:
    """Take back a cancel: the account is as it would be, and the lanes notice one after the other."""
    if run.state in ("running", "paused"):
        return run
    if run.state != "cancelled":
        raise undo_refusal.not_cancelled(run.name, run.state)
    if not keeps_tasks(db, now, run.id):
        raise undo_refusal.too_late(run.name)
    if other := going_on(db, run.key):
        raise undo_refusal.replaced(run.name, other)
    bring_back(db, now, run)
    return get(db, run.id)


def going_on(db: sqlite3.Connection, key: str) -> str:
    """The name of a run with this key that has not ended."""
    row = db.execute(
        "SELECT name FROM runs WHERE key = ? AND state IN ('running', 'paused') ORDER BY id DESC LIMIT 1", (key,)
    ).fetchone()
    return str(row[0]) if row else ""


def bring_back(db: sqlite3.Connection, now: int, run: Run) -> None:
    """What was cancelled with a run and is kept is as it was."""
    in_flight = _set_leased(db, run.id, was=3, becomes=1)
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight + ? WHERE id = ?", [(n, lane) for lane, n in in_flight.items()]
    )
    db.execute(
        """UPDATE runs SET state = state_before, finished_at = 0, changed_at = ?1, ready = kept_ready, delayed = kept_delayed, leased = ?2,
             cancelled = cancelled - kept_ready - ?2, kept_ready = 0, kept_delayed = 0, leftovers = 0, undo_until = 0, lane_cursor = 0 WHERE id = ?3""",
        (now, sum(in_flight.values()), run.id),
    )
    db.execute(
        """UPDATE run_needs SET ready = (SELECT ifnull(sum(h.ready + h.kept), 0) FROM run_lanes h WHERE h.run = run_needs.run AND h.needs = run_needs.needs)
           WHERE run = ?""",
        (run.id,),
    )
    db.execute(_LEVEL, (run.id,))
    lanes.move_some(db, now, run.id)
    lanes.wake(db, in_flight)


def stop_at_limit(db: sqlite3.Connection, now: int, run: int) -> None:
    """When as many pages have ended as were asked for, the rest is cancelled and the run is complete."""
    row = db.execute(
        "SELECT 1 FROM runs WHERE id = ? AND max_pages > 0 AND done + dead + discarded - aside >= max_pages AND state IN ('running', 'paused') AND ready + leased > 0",
        (run,),
    ).fetchone()
    if row:
        cancel(db, now, run, "finished")


def sweep(db: sqlite3.Connection, now: int) -> None:
    """Remove a slice of the tasks that were cancelled with their run and are kept no longer."""
    for (run,) in db.execute("SELECT id FROM runs WHERE lane_cursor >= 0 LIMIT 5").fetchall():
        lanes.move_some(db, now, run)
    for (run,) in db.execute("SELECT id FROM runs WHERE leftovers = 1 AND undo_until <= ? LIMIT 5", (now,)).fetchall():
        _clear(db, run)


def _clear(db: sqlite3.Connection, run: int) -> bool:
    """A slice of what was cancelled with a run goes; says whether that was the last."""
    gone = db.execute(
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE id >= ? AND id < ? AND state IN (0, 2) LIMIT ?)",
        (run << TASK_BITS, (run + 1) << TASK_BITS, SWEEP_SLICE),
    ).rowcount
    more = gone == SWEEP_SLICE or lanes.move_some(db, 0, run)
    if not more:
        some = "SELECT lane FROM run_lanes WHERE run = ?1 AND kept <> 0 LIMIT ?2"
        more = (
            db.execute(
                f"UPDATE run_lanes SET kept = 0 WHERE run = ?1 AND kept <> 0 AND lane IN ({some})", (run, SWEEP_SLICE)
            ).rowcount
            == SWEEP_SLICE
        )
    db.execute(
        "UPDATE runs SET leftovers = ?, undo_until = 0, kept_ready = 0, kept_delayed = 0 WHERE id = ?", (more, run)
    )
    return not more


def revive(db: sqlite3.Connection, now: int, number: int, where: TaskFilter, limit: int) -> int | None:
    """Dead letters start over, with their past kept for people but not held against them.

    None: only a slice of what the run's page limit had cancelled and is kept no longer went; it is to be asked again.
    """
    run = get(db, number)
    if run.state == "cancelled":
        raise UsageError(f"run {run.name} was cancelled: its dead letters stay", hint="start a new one with --fresh")
    term, values = condition(where, "t", dead=True)
    first, last = number << TASK_BITS, (number + 1) << TASK_BITS
    rows = db.execute(
        f"SELECT t.id, t.lane, t.priority, t.history, t.needs, t.url FROM {dead_letters(where)} AND t.id >= ? AND t.id < ? AND {term} ORDER BY t.id LIMIT ?",
        (number, first, last, *values, max(0, limit)),
    ).fetchall()
    if not rows:
        return 0
    if run.state == "finished":
        if keeps_tasks(db, now, number):
            bring_back(db, now, run)
        # What is kept no longer goes first, or the sweep would take the revived for leftovers.
        elif not _clear(db, number):
            return None
        db.execute(
            "UPDATE runs SET state = 'running', finished_at = 0, changed_at = ?, lane_cursor = 0 WHERE id = ?",
            (now, number),
        )
    mark = Attempt(now, "", REVIVED, "requeued")
    first_band = run.max_pages > 0  # or what was left would take the pages that they give back
    db.executemany(
        """INSERT INTO tasks (id, state, lane, run, band, due, added_at, expires_at, priority, depth, parent, kind, url, meta, request_options, returned_lease, history, auto_ack, needs)
           SELECT id, 0, lane, ?, ?, ?, ?, CASE WHEN expires_at IS NULL THEN NULL ELSE ? + expires_at - added_at END, priority, depth, parent, kind, url, meta, request_options, lease, ?, auto_ack, needs
           FROM dead WHERE id = ?""",
        [
            (number, 0 if first_band else band(row[2]), now, now, now, dead_letter.history(row[3], mark), row[0])
            for row in rows
        ],
    )
    failing.forget_done(db, [(row[0], row[5]) for row in rows], "dead")
    db.executemany("DELETE FROM dead WHERE id = ?", [(row[0],) for row in rows])
    # They were handed out once already: the page limit makes room for them again.
    db.execute(
        """UPDATE runs SET dead = dead - ?1, ready = ready + ?1, bands = bands | ?3,
             max_pages = CASE max_pages WHEN 0 THEN 0 ELSE max(max_pages, done + dead + discarded + leased - aside) END WHERE id = ?2""",
        (len(rows), number, first_band),
    )
    places = Counter((row[1], row[4]) for row in rows)
    needs.change_ready(db, number, places)
    lanes.move_some(db, now, number)  # what it asks of its lanes counts again, if it had ended
    lanes.wake(db, {lane for lane, _ in places})
    return len(rows)
