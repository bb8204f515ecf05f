"""Needs: combinations of capabilities that tasks of a run ask for. Ready work is kept apart by their numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping

from shoal.core.capability import Needs
from shoal.core.needs import MAX_NEEDS_SETS, needs_of, shown, too_many_sets
from shoal.core.task import Task

NONE = 0  # the number of work that any worker can do
Place = tuple[int, int]  # a lane, and the number of what is needed there


def names(db: sqlite3.Connection, run: int) -> dict[int, Needs]:
    """The combinations of a run by number."""
    rows = db.execute("SELECT needs, names FROM run_needs WHERE run = ?", (run,)).fetchall()
    return {NONE: (), **{number: tuple(text.split("+")) for number, text in rows}}


def add_sets(db: sqlite3.Connection, run: int, wanted: Iterable[Needs]) -> tuple[dict[Needs, int], list[Needs]]:
    """Their numbers, new ones included; and those that are too many."""
    known = {needs: number for number, needs in names(db, run).items()}
    refused = []
    for needs in wanted:
        if needs in known:
            continue
        if len(known) > MAX_NEEDS_SETS:
            refused.append(needs)
            continue
        known[needs] = len(known)
        db.execute("INSERT INTO run_needs (run, needs, names) VALUES (?, ?, ?)", (run, known[needs], shown(needs)))
    return known, refused


def numbers_for(db: sqlite3.Connection, run: int, tasks: Iterable[Task]) -> dict[Needs, int]:
    """The numbers of what these tasks need; UsageError where they are too many."""
    wanted = needs_of(tasks)
    if not wanted:
        return {}
    known, refused = add_sets(db, run, wanted)
    if refused:
        raise too_many_sets(refused)
    return known


def refused_of(db: sqlite3.Connection, run: int, found: Iterable[Task]) -> list[Needs]:
    """What found tasks need that is one combination too many."""
    wanted = needs_of(found)
    return add_sets(db, run, wanted)[1] if wanted else []


def reachable(db: sqlite3.Connection, run: int, capabilities: Collection[str]) -> list[int]:
    """The numbers of the work that a worker with these can do; work without needs is the first."""
    if not capabilities:
        return [NONE]
    has = set(capabilities)
    return [number for number, needs in names(db, run).items() if has.issuperset(needs)]


def change_ready(db: sqlite3.Connection, run: int, changes: Mapping[Place, int]) -> None:
    """So many tasks more, or less, are ready in these places."""
    if not changes:
        return
    db.executemany(
        "UPDATE run_lanes SET ready = ready + ? WHERE run = ? AND lane = ? AND needs = 0",
        [(count, run, lane) for (lane, number), count in changes.items() if number == NONE],
    )
    apart = [(run, lane, number, count) for (lane, number), count in changes.items() if number != NONE]
    if apart:
        db.executemany(
            """INSERT INTO run_lanes (run, lane, needs, ready) VALUES (?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET ready = ready + excluded.ready""",
            apart,
        )
        db.executemany(
            "UPDATE run_needs SET ready = ready + ? WHERE run = ? AND needs = ?",
            [(count, run, number) for _, _, number, count in apart],
        )


def ready_by_name(db: sqlite3.Connection, run: int) -> dict[str, int]:
    return dict(db.execute("SELECT names, ready FROM run_needs WHERE run = ? AND ready > 0", (run,)).fetchall())
