"""Admit: many tasks into the queue at once, each at most once per run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shoal.core.capability import capability_names
from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS
from shoal.core.task import SHORT_DIGEST, Admission, Task, band
from shoal.queue.sqlite import identity, lanes, needs, runs, seen_sets
from shoal.queue.sqlite.identity import key

_INSERT = """INSERT INTO tasks (id, state, lane, run, band, due, added_at, expires_at, priority, depth, parent, kind, url, meta, request_options, auto_ack, needs)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
MAX_PRIORITY = 2**31  # priorities beyond are as good as this
_encode = msgspec.json.Encoder().encode


def admit(
    db: sqlite3.Connection, now: int, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace]
) -> list[Admission]:
    fresh: dict[str, Task] = {}
    keys = [key(task.digest) for task in tasks]
    for name, task in zip(keys, tasks, strict=True):
        fresh.setdefault(name, task)
    for name in identity.known(db, run, fresh):
        del fresh[name]
    if fresh and identity.is_short(db, run):
        _drop_known_by_prefix(db, run, fresh)
    seen = {key(task.digest) for task in seen_sets.join(db, now, run, fresh.values())} if fresh else set()
    for name in seen:
        del fresh[name]
    # A pace given again is news also where the tasks are not.
    wanted = dict.fromkeys(task.lane for task in (tasks if paces else fresh.values()))
    lane_ids = lanes.ensure_lanes(db, run, wanted, paces)
    if fresh:
        _insert(db, now, run, fresh, lane_ids)
    lanes.wake(db, lane_ids.values())
    answers: list[Admission] = []
    for name in keys:
        # Removing what was counted makes a duplicate within the batch answer "known".
        added = fresh.pop(name, None) is not None
        answers.append("added" if added else "seen" if name in seen else "known")
    return answers


def _drop_known_by_prefix(db: sqlite3.Connection, run: int, fresh: dict[str, Task]) -> None:
    """Of what seems new, what is known by the beginning of its digest is not."""
    cut = {key(task.digest[:SHORT_DIGEST]): name for name, task in fresh.items()}
    for begun in identity.known(db, run, cut):
        del fresh[cut[begun]]


def _insert(db: sqlite3.Connection, now: int, run: int, fresh: Mapping[str, Task], lane_ids: Mapping[str, int]) -> None:
    (number,) = db.execute(
        "UPDATE runs SET next_task = next_task + ? WHERE id = ? RETURNING next_task", (len(fresh), run)
    ).fetchone()
    first = (run << TASK_BITS) + number - len(fresh)
    numbers = needs.numbers_for(db, run, fresh.values())
    rows, digests, ready = [], [], Counter[needs.Place]()
    delayed = 0
    for number, (name, task) in enumerate(fresh.items(), first):
        lane = lane_ids[task.lane]
        late = task.delay > 0
        needed = numbers[capability_names(task.needs)] if task.needs else needs.NONE
        if late:
            delayed += 1
        else:
            ready[lane, needed] += 1
        rows.append((
            number, 2 if late else 0, lane, run, band(task.priority), now + lanes.micros(task.delay) if late else now, now,
            None if task.ttl is None else now + lanes.micros(task.ttl), max(-MAX_PRIORITY, min(task.priority, MAX_PRIORITY)), task.depth, task.parent,
            task.kind, task.url, None if task.meta is None else _encode(task.meta).decode(),
            None if task.request_options is None else _encode(task.request_options).decode(), task.ack == "auto", needed,
        ))  # fmt: skip
        digests.append((run, name, number))
    # In the order of the key, neighbouring rows of the seen-set are written together.
    digests.sort()
    db.executemany("INSERT INTO seen (run, digest, task) VALUES (?, ?, ?)", digests)
    db.executemany(_INSERT, rows)
    db.execute(
        "UPDATE runs SET seen = seen + ?1, ready = ready + ?1, delayed = delayed + ?2, bands = bands | ?3 WHERE id = ?4",
        (len(rows), delayed, mask_of_bands(row[4] for row in rows), run),
    )
    needs.change_ready(db, run, ready)


def mask_of_bands(bands: Iterable[int]) -> int:
    return sum(1 << band for band in set(bands) if band >= 0)


def add(
    db: sqlite3.Connection, now: int, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
) -> list[Admission]:
    paces = paces or {}
    if not runs.accepts_tasks(db, run):
        return ["rejected"] * len(tasks)
    return admit(db, now, run, tasks, paces)
