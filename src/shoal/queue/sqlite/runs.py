"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.task import REVIVED, Attempt, band
from shoal.errors import Usage
from shoal.queue.base import RunAction, Where
from shoal.queue.sqlite import bury, lanes
from shoal.queue.sqlite.filter import condition, dead_letters

SWEEP_SLICE = 2000

_COLUMNS = "id, name, scraper, key, state, created_at, changed_at, finished_at, weight, max_pages, spec"


def _run(row: tuple[object, ...]) -> Run:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    values["spec"] = msgspec.json.decode(str(values["spec"]))
    return msgspec.convert(values, Run)


def start(db: sqlite3.Connection, now: int, new: NewRun) -> Run:
    found = db.execute(
        f"""SELECT {_COLUMNS} FROM runs WHERE key = ? AND (? OR state IN ('running', 'paused'))
            ORDER BY state IN ('running', 'paused') DESC, id DESC LIMIT 1""",
        (new.key, new.once),
    ).fetchone()
    if found:
        return _run(found)
    if new.name and db.execute("SELECT 1 FROM runs WHERE name = ?", (new.name,)).fetchone():
        raise Usage(f"there is a run called {new.name} already", hint="choose another name")
    (level,) = db.execute("SELECT ifnull(min(share), 0) FROM runs WHERE state = 'running'").fetchone()
    row = db.execute(
        f"""INSERT INTO runs (name, scraper, key, state, created_at, changed_at, weight, max_pages, spec, share)
            VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}""",
        (
            new.name or f"r{now:x}",
            new.scraper,
            new.key,
            now,
            now,
            new.weight,
            new.max_pages,
            msgspec.json.encode(new.spec).decode(),
            level,
        ),
    ).fetchone()
    return _run(row)


def listing(
    db: sqlite3.Connection,
    now: int,
    key: str,
    name: str,
    states: Collection[str],
    scraper: str,
    before: int,
    limit: int,
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
        raise Usage(f"there is no run with number {run}", hint="`shoal runs` lists them")
    return _run(row)


def takes_work(db: sqlite3.Connection, run: int) -> bool:
    row = db.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()
    return row is not None and row[0] in ("running", "paused")


def act(db: sqlite3.Connection, now: int, number: int, action: RunAction) -> Run:
    run = get(db, number)
    wanted = {"pause": "paused", "resume": "running", "cancel": "cancelled", "finish": "finished"}[action]
    if run.state == wanted:
        return run
    if run.state in ("cancelled", "finished"):
        raise Usage(
            f"run {run.name} is {run.state} already: it is too late to {action} it",
            hint="start it anew with --fresh",
        )
    if action == "cancel":
        cancel(db, now, number, "cancelled")
    elif action == "finish":
        finish(db, now, run)
    else:
        db.execute("UPDATE runs SET state = ?, changed_at = ? WHERE id = ?", (wanted, now, number))
        if action == "resume":
            db.execute(
                "UPDATE runs SET share = max(share, ifnull((SELECT min(share) FROM runs WHERE state = 'running' AND id <> ?1), 0)) WHERE id = ?1",
                (number,),
            )
    return get(db, number)


def finish(db: sqlite3.Connection, now: int, run: Run) -> None:
    (left,) = db.execute("SELECT ready + leased FROM runs WHERE id = ?", (run.id,)).fetchone()
    if left:
        raise Usage(
            f"run {run.name} has {left} open tasks: it cannot finish", hint="wait for them, or cancel the run"
        )
    _end(db, now, run.id, "finished")


def _end(db: sqlite3.Connection, now: int, run: int, state: str) -> None:
    db.execute(
        "UPDATE runs SET state = ?, changed_at = ?, finished_at = ? WHERE id = ?", (state, now, now, run)
    )
    db.execute("UPDATE heads SET ready = 0 WHERE run = ? AND ready <> 0", (run,))
    lanes.reconsider(db, run)


def cancel(db: sqlite3.Connection, now: int, run: int, state: str) -> None:
    """Close the account at once; the rows go in slices later. Leased tasks may still bring their records."""
    held = db.execute(
        "SELECT t.id, t.lane FROM leases l CROSS JOIN tasks t ON t.lease = l.number AND t.state IN (1, 3) WHERE t.state = 1 AND t.run = ?",
        (run,),
    ).fetchall()
    db.executemany("UPDATE tasks SET state = 3 WHERE id = ?", [(task,) for task, _ in held])
    in_flight = Counter(lane for _, lane in held)
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ?",
        [(n, lane) for lane, n in in_flight.items()],
    )
    db.execute(
        "UPDATE runs SET cancelled = cancelled + ready + leased, ready = 0, delayed = 0, leased = 0, leftovers = 1 WHERE id = ?",
        (run,),
    )
    _end(db, now, run, state)
    lanes.wake(db, in_flight)


def stop_at_limit(db: sqlite3.Connection, now: int, run: int) -> None:
    """When as many pages have ended as were asked for, the rest is cancelled and the run is complete."""
    row = db.execute(
        "SELECT 1 FROM runs WHERE id = ? AND max_pages > 0 AND done + dead >= max_pages AND state IN ('running', 'paused') AND ready + leased > 0",
        (run,),
    ).fetchone()
    if row:
        cancel(db, now, run, "cancelled")
        db.execute("UPDATE runs SET state = 'finished' WHERE id = ?", (run,))


def sweep(db: sqlite3.Connection, now: int) -> None:
    """Remove a slice of the tasks that were cancelled with their run."""
    for (run,) in db.execute("SELECT id FROM runs WHERE leftovers = 1 LIMIT 5").fetchall():
        if _clear(db, run) < SWEEP_SLICE:
            db.execute("UPDATE runs SET leftovers = 0 WHERE id = ?", (run,))


def _clear(db: sqlite3.Connection, run: int) -> int:
    return db.execute(
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE id >= ? AND id < ? AND state IN (0, 2) LIMIT ?)",
        (run << TASK_BITS, (run + 1) << TASK_BITS, SWEEP_SLICE),
    ).rowcount


def revive(db: sqlite3.Connection, now: int, number: int, where: Where, limit: int) -> int | None:
    """Dead letters start over, with their past kept for people but not held against them.

    None: only a slice of what the run's page limit had cancelled went; it is to be asked again.
    """
    run = get(db, number)
    if run.state == "cancelled":
        raise Usage(f"run {run.name} was cancelled: its dead letters stay", hint="start it anew with --fresh")
    term, values = condition(where, "t", dead=True)
    first, last = number << TASK_BITS, (number + 1) << TASK_BITS
    rows = db.execute(
        f"SELECT t.id, t.lane, t.priority, t.history FROM {dead_letters(where)} AND t.id >= ? AND t.id < ? AND {term} ORDER BY t.id LIMIT ?",
        (number, first, last, *values, max(0, limit)),
    ).fetchall()
    if not rows:
        return 0
    if run.state == "finished":
        # What its page limit cancelled goes first, or the sweep would take the revived for leftovers.
        if _clear(db, number) == SWEEP_SLICE:
            return None
        db.execute(
            "UPDATE runs SET state = 'running', finished_at = 0, changed_at = ?, leftovers = 0 WHERE id = ?",
            (now, number),
        )
    mark = Attempt(now, "", REVIVED, "put back to work")
    db.executemany(
        """INSERT INTO tasks (id, state, lane, run, band, due, added_at, expires_at, priority, depth, parent, kind, url, meta, ask, gave_back, history)
           SELECT id, 0, lane, ?, ?, ?, ?, CASE WHEN expires_at IS NULL THEN NULL ELSE ? + expires_at - added_at END, priority, depth, parent, kind, url, meta, ask, lease, ?
           FROM dead WHERE id = ?""",
        [(number, band(row[2]), now, now, now, bury.history(row[3], mark), row[0]) for row in rows],
    )
    db.executemany("DELETE FROM dead WHERE id = ?", [(row[0],) for row in rows])
    # They were handed out once already: the page limit makes room for them again.
    db.execute(
        """UPDATE runs SET dead = dead - ?1, ready = ready + ?1,
             max_pages = CASE max_pages WHEN 0 THEN 0 ELSE max(max_pages, done + dead - ?1 + leased + ?1) END WHERE id = ?2""",
        (len(rows), number),
    )
    places = Counter(row[1] for row in rows)
    db.executemany(
        "UPDATE heads SET ready = ready + ? WHERE run = ? AND lane = ?",
        [(n, number, lane) for lane, n in places.items()],
    )
    if run.state == "finished":
        lanes.reconsider(db, number)  # what it asks of its lanes counts again
    else:
        lanes.wake(db, places)
    return len(rows)
