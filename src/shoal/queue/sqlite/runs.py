"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import REVIVED, Attempt, band
from shoal.errors import Usage
from shoal.queue.base import SLOT_HORIZON, RunAction, Where
from shoal.queue.sqlite import bury, lanes, workers
from shoal.queue.sqlite.filter import condition

SWEEP_SLICE = 2000
CLAIMABLE_LANES = 1000
RIPE_COUNTED = 10_000

_COLUMNS = "id, name, scraper, key, state, created_at, changed_at, finished_at, weight, max_pages, spec"
_COUNTERS = (
    "seen, ready, delayed, leased, done, dead, cancelled, records, retries, lost, stale, bytes, trimmed"
)


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
    db: sqlite3.Connection, now: int, key: str, name: str, states: Collection[str], limit: int
) -> list[Run]:
    terms, values = ["1"], list[object]()
    if key:
        terms.append("key = ?")
        values.append(key)
    if name:
        terms.append("(name = ? OR substr(name, 1, length(?)) = ?)")
        values += [name, name, name]
    if states:
        terms.append("state IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(list(states)).decode())
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(terms)} ORDER BY id DESC LIMIT ?", (*values, limit)
    ).fetchall()
    exact = [row for row in rows if row[1] == name]
    return [_run(row) for row in exact or rows]


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
            f"run {run.name} is {run.state} already: it cannot {action}", hint="start it anew with --fresh"
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
        first, last = run << TASK_BITS, (run + 1) << TASK_BITS
        gone = db.execute(
            "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE id >= ? AND id < ? AND state IN (0, 2) LIMIT ?)",
            (first, last, SWEEP_SLICE),
        ).rowcount
        if gone < SWEEP_SLICE:
            db.execute("UPDATE runs SET leftovers = 0 WHERE id = ?", (run,))


def counters(db: sqlite3.Connection, run: int) -> dict[str, int]:
    row = db.execute(f"SELECT {_COUNTERS} FROM runs WHERE id = ?", (run,)).fetchone()
    return dict(zip(_COUNTERS.split(", "), row, strict=True))


def stats(db: sqlite3.Connection, now: int, run: int) -> Stats:
    row = db.execute(f"SELECT {_COUNTERS}, state, max_pages FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        get(db, run)
    known = dict(zip(_COUNTERS.split(", "), row, strict=False))
    ripe = _ripe(db, now, run) if known["delayed"] else {}
    known["delayed"] -= sum(ripe.values())
    claimable = 0
    if row[-2] == "running":
        claimable = _claimable(db, now, run, ripe)
        if row[-1]:
            claimable = max(0, min(claimable, row[-1] - known["done"] - known["dead"] - known["leased"]))
    skipped = dict(db.execute("SELECT reason, count FROM skips WHERE run = ?", (run,)).fetchall())
    return Stats(**known, claimable=claimable, skipped=skipped)


def _ripe(db: sqlite3.Connection, now: int, run: int) -> dict[int, int]:
    """Delayed tasks by lane whose time has come and that no claim has promoted yet."""
    rows = db.execute(
        """SELECT lane, count(*) FROM (SELECT lane, run FROM tasks WHERE state = 2 AND due <= ? LIMIT ?)
           WHERE run = ? GROUP BY lane""",
        (now, RIPE_COUNTED, run),
    ).fetchall()
    return dict(rows)


def _claimable(db: sqlite3.Connection, now: int, run: int, ripe: Mapping[int, int]) -> int:
    columns = "h.lane, h.ready, iif(l.parked, 1, l.max_in_flight) - l.in_flight, l.max_in_flight OR l.parked, l.spacing, max(l.next_at, l.held_until)"
    rows = db.execute(
        f"SELECT {columns} FROM heads h JOIN lanes l ON l.id = h.lane WHERE h.run = ? AND h.wake_at <= ? LIMIT ?",
        (run, now, CLAIMABLE_LANES),
    ).fetchall()
    due = {row[0]: row for row in rows}
    for lane in ripe:
        if lane not in due:
            row = db.execute(
                f"SELECT {columns} FROM heads h JOIN lanes l ON l.id = h.lane WHERE h.run = ? AND h.lane = ?",
                (run, lane),
            ).fetchone()
            if row is not None and row[5] <= now:
                due[lane] = row
    total = 0
    for lane, ready, free, limit, spacing, _ in due.values():
        waiting = ready + ripe.get(lane, 0)
        slots = int(lanes.micros(SLOT_HORIZON) // spacing) + 1 if spacing else waiting
        total += max(0, min(waiting, slots, free if limit else waiting))
    return total


def recount(db: sqlite3.Connection, now: int, run: int) -> Stats:
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    known = stats(db, now, run)

    def count(table: str, term: str = "1") -> int:
        return int(
            db.execute(
                f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ? AND {term}", (first, last)
            ).fetchone()[0]
        )

    open_ = db.execute("SELECT state IN ('running', 'paused') FROM runs WHERE id = ?", (run,)).fetchone()[0]
    ready, ripe, delayed, leased = (
        count("tasks", term) if open_ else 0
        for term in ("state = 0", f"state = 2 AND due <= {now}", f"state = 2 AND due > {now}", "state = 1")
    )
    ready += ripe
    (seen,) = db.execute("SELECT count(*) FROM seen WHERE run = ? AND task > 0", (run,)).fetchone()
    done, dead = count("ended", "state = 'done'"), count("dead")
    # Tasks cancelled with their run leave no row behind: what the seen-set knows and no table holds.
    gone = (
        seen - done - dead - ready - delayed - leased
        if known.cancelled
        else count("ended", "state = 'cancelled'")
    )
    return msgspec.structs.replace(
        known,
        seen=seen,
        ready=ready + delayed,
        delayed=delayed,
        leased=leased,
        done=done,
        dead=dead,
        cancelled=gone,
        records=count("records") + known.trimmed,
    )


def strays(db: sqlite3.Connection, now: int, run: int, limit: int) -> list[int]:
    if (
        get(db, run).state == "cancelled"
        or db.execute("SELECT cancelled FROM runs WHERE id = ?", (run,)).fetchone()[0]
    ):
        return []
    rows = db.execute(
        """SELECT s.task FROM seen s WHERE s.run = ? AND s.task > 0
             AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM ended WHERE id = s.task)
             AND NOT EXISTS (SELECT 1 FROM dead WHERE id = s.task) ORDER BY s.task LIMIT ?""",
        (run, limit),
    ).fetchall()
    return [row[0] for row in rows]


def revive(db: sqlite3.Connection, now: int, number: int, where: Where) -> int:
    """Dead letters start over, with their past kept for people but not held against them."""
    run = get(db, number)
    if run.state == "cancelled":
        raise Usage(f"run {run.name} was cancelled: its dead letters stay", hint="start it anew with --fresh")
    term, values = condition(where, "d", dead=True)
    first, last = number << TASK_BITS, (number + 1) << TASK_BITS
    rows = db.execute(
        f"SELECT d.id, d.lane, d.priority, d.history FROM dead d JOIN lanes l ON l.id = d.lane WHERE d.id >= ? AND d.id < ? AND {term}",
        (first, last, *values),
    ).fetchall()
    if not rows:
        return 0
    if run.state == "finished":
        # What its page limit cancelled goes first, or the sweep would take the revived for leftovers.
        db.execute("DELETE FROM tasks WHERE id >= ? AND id < ? AND state IN (0, 2)", (first, last))
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
    lanes.reconsider(db, number)
    return len(rows)


def purge(db: sqlite3.Connection, now: int, run: int | None, older_than: float | None) -> int:
    if run is not None:
        chosen = [get(db, run)]
        if chosen[0].state not in ("finished", "cancelled"):
            raise Usage(
                f"run {chosen[0].name} is {chosen[0].state}: only ended runs can be removed",
                hint="cancel it first",
            )
    elif older_than is not None:
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE state IN ('finished', 'cancelled') AND finished_at <= ?",
            (now - lanes.micros(older_than),),
        ).fetchall()
        chosen = [_run(row) for row in rows]
        workers.forget_silent(db, now, older_than)
    else:
        chosen = []
    for item in chosen:
        _remove(db, item.id)
    return len(chosen)


def _remove(db: sqlite3.Connection, run: int) -> None:
    lanes.drop_heads(db, run)
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    # One claim may hold tasks of several runs: only leases that hold nothing else go with this one.
    held = db.execute(
        "SELECT DISTINCT lease FROM tasks WHERE state IN (1, 3) AND id >= ? AND id < ?", (first, last)
    ).fetchall()
    for table in ("tasks", "ended", "dead", "records"):
        db.execute(f"DELETE FROM {table} WHERE id >= ? AND id < ?", (first, last))
    db.executemany(
        "DELETE FROM leases WHERE number = ?1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE state IN (1, 3) AND lease = ?1)",
        held,
    )
    for table in ("seen", "skips", "skip_samples"):
        db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    db.execute("DELETE FROM runs WHERE id = ?", (run,))
