"""A live task as a claim reads it, and as the worker gets it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from shoal.core.capability import Needs
from shoal.core.claim_plan import Lane
from shoal.core.task import LeasedTask
from shoal.queue.cells import read_work
from shoal.queue.sqlite import needs
from shoal.queue.sqlite.lanes import SECOND

COLUMNS = "id, lane, run, band, due, attempts, lost, expires_at, priority, depth, parent, kind, url, meta, history, request_options, auto_ack, needs"

TaskRow = tuple[
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int | None,
    int,
    int,
    int | None,
    str,
    str,
    str | None,
    str | None,
    str | None,
    int,
    int,
]
Names = Mapping[int, Mapping[int, Needs]]  # run -> number -> what is needed


def task_names(db: sqlite3.Connection, rows: Iterable[TaskRow]) -> Names:
    return {run: needs.names(db, run) for run in {row[2] for row in rows if row[17] != needs.NONE}}


def leased_task(row: TaskRow, lease: int, lane: Lane, start_in: int, names: Names) -> LeasedTask:
    meta, request_options, past, garbled = read_work(row[13], row[15], row[14])
    needed = names[row[2]].get(row[17]) if row[17] else ()
    if needed is None:
        needed, garbled = (), garbled or f"what it needs is not known (number {row[17]})"
    return LeasedTask(
        row[0], lease, row[2], lane.name, row[12], row[11], row[8], row[9], row[10], meta,
        row[5], row[6], start_in / SECOND, lane.spacing / SECOND, past,
        request_options, lane.parked, "auto" if row[16] else "manual", needed, garbled, row[7] or 0,
    )  # fmt: skip
