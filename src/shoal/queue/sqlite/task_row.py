"""A live task as a claim reads it, and as the worker gets it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

import msgspec

from shoal.core.capability import Needs
from shoal.core.claim_plan import Lane
from shoal.core.task import Attempt, LeasedTask, RequestOptions, failures
from shoal.queue.sqlite import needs
from shoal.queue.sqlite.lanes import SECOND

COLUMNS = "id, lane, run, band, due, attempts, lost, expires_at, priority, depth, parent, kind, url, meta, history, request_options, auto_ack, needs"
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode
_decode_request_options = msgspec.json.Decoder(RequestOptions).decode

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
    past = failures(_decode_attempts(row[14])) if row[14] else None
    return LeasedTask(
        row[0], lease, row[2], lane.name, row[12], row[11], row[8], row[9], row[10],
        None if row[13] is None else msgspec.json.decode(row[13]),
        row[5], row[6], start_in / SECOND, lane.spacing / SECOND, past,
        None if row[15] is None else _decode_request_options(row[15]), lane.parked, "auto" if row[16] else "manual",
        names[row[2]][row[17]] if row[17] else (),
    )  # fmt: skip
