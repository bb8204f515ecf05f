"""Push: tasks that are added and leased to a named worker in one step, as far as their lanes allow it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from shoal.core.claim_plan import UNLIMITED, Lane
from shoal.core.lane import Pace
from shoal.core.task import Claim, Task
from shoal.queue.base import LEASE_SECONDS, MAX_OUTBOX_PER_RUN, PushResult
from shoal.queue.pushed import check_push, push_result
from shoal.queue.sqlite import admit, identity, needs
from shoal.queue.sqlite.claim import Pick, lease_tasks, same_request
from shoal.queue.sqlite.due_lanes import run_lane_row, to_lane
from shoal.queue.sqlite.task_row import COLUMNS, TaskRow

_NEW = f"SELECT {COLUMNS} FROM tasks WHERE id = ? AND state = 0 AND (expires_at IS NULL OR expires_at > ?)"
_LEFT = """SELECT CASE max_pages WHEN 0 THEN ? ELSE max_pages - done - dead - discarded - leased + aside END
           FROM runs WHERE id = ? AND state = 'running' AND outbox < ?"""


def push(
    db: sqlite3.Connection,
    now: int,
    run: int,
    tasks: Sequence[Task],
    worker: str,
    paces: Mapping[str, Pace] | None = None,
    *,
    lease: float = LEASE_SECONDS,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> PushResult:
    has = check_push(tasks, capabilities)
    answers = admit.add(db, now, run, tasks, paces)
    ids = identity.owners(db, run, [task.digest for task in tasks])
    claim = same_request(db, now, worker, request_id)
    if claim is None:
        fresh = [id for answer, id in zip(answers, ids, strict=True) if answer == "added"]
        picked = _pick(db, now, run, fresh, needs.reachable(db, run, has))
        claim = lease_tasks(db, now, worker, lease, request_id, picked) if picked else Claim(0)
    return push_result(answers, ids, claim)


def _pick(db: sqlite3.Connection, now: int, run: int, ids: Sequence[int], reach: Collection[int]) -> list[Pick]:
    """Those that may start within the horizon, each with its slot."""
    row = db.execute(_LEFT, (UNLIMITED, run, MAX_OUTBOX_PER_RUN)).fetchone()
    left = row[0] if row else 0
    known: dict[int, Lane] = {}
    picked: list[Pick] = []
    for id in ids:
        task: TaskRow | None = db.execute(_NEW, (id, now)).fetchone() if len(picked) < left else None
        if task is None or task[17] not in reach:
            continue
        lane = known.get(task[1]) or known.setdefault(task[1], _lane(db, run, task[1]))
        if not lane.parked and lane.open_slots(now) > 0:
            lane.picks[run] += 1
            picked.append((task, lane, lane.take_slot(now)))
    db.execute("UPDATE runs SET share = share + 1.0 * ? / max(1, weight) WHERE id = ?", (len(picked), run))
    return picked


def _lane(db: sqlite3.Connection, run: int, id: int) -> Lane:
    row = run_lane_row(db, run, id)
    lane = to_lane(row)
    lane.picks[run] = row[2]
    return lane
