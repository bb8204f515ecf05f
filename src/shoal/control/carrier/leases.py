"""The leases under which tasks are published ahead: they are the relays' own, whichever of them took them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from shoal.core.run import run_of
from shoal.core.task import Attempt, Outcome
from shoal.core.task import failures as failures_by_cause
from shoal.queue.base import LOST_LIMIT, ExtendResult, Queue, ReapResult, TaskFilter, TaskView
from shoal.queue.broker.wire import LeaseAnswer, LeaseCheck

RELAY = "rabbitmq"  # the name under which all relays of a ledger lease what they publish ahead
LEASE_SECONDS = 3600.0
WORKER_LOST = "worker_lost"
PAGE = 500


async def find_leased(ledger: Queue, tasks: Iterable[int]) -> dict[int, TaskView]:
    """Those of these tasks that are leased."""
    by_run: dict[int, list[int]] = defaultdict(list)
    for task in tasks:
        by_run[run_of(task)].append(task)
    found: dict[int, TaskView] = {}
    for run, ids in by_run.items():
        for at in range(0, len(ids), PAGE):
            some = TaskFilter(ids=tuple(ids[at : at + PAGE]))
            for view in await ledger.list_tasks(run, state="leased", where=some, limit=PAGE):
                found[view.id] = view
    return found


async def check(ledger: Queue, asked: LeaseCheck, held: Collection[int]) -> list[LeaseAnswer]:
    """Which of these are still to be done by whoever asks; `held` are in the hands of others."""
    found = await find_leased(ledger, {task for task, _ in asked.tasks})

    def answer(task: int, lease: int) -> LeaseAnswer:
        view = found.get(task)
        if view is None or view.lease != lease:
            return "gone"
        return "wait" if task in held else "go"

    return [answer(task, lease) for task, lease in asked.tasks]


async def extend(ledger: Queue, worker: str, leases: Mapping[int, Collection[int]], **named: Any) -> ExtendResult:
    """A worker's heartbeat: what is not its own may be the relays', and goes on as long as somebody needs it."""
    own = await ledger.extend(worker, leases, **named)
    if not own.lost:
        return own
    ours = await ledger.extend(RELAY, dict.fromkeys(own.lost, ()), lease=LEASE_SECONDS)
    return ExtendResult(ours.lost, own.cancelled | ours.cancelled)


async def reap(ledger: Queue, dead_workers: Mapping[str, Collection[int]] | None) -> ReapResult:
    """As the ledger does; of dead workers, tasks that were published ahead are charged, too.

    The broker gives them to others by itself; only that they were executing must be told.
    """
    reaped = await ledger.reap(dead_workers)
    charged = {task: worker for worker, tasks in (dead_workers or {}).items() for task in tasks}
    if not charged:
        return reaped
    ours = [view for view in (await find_leased(ledger, charged)).values() if view.worker == RELAY]
    outcomes = [_lost(view, charged[view.id], await ledger.now()) for view in ours]
    verdicts = await ledger.settle(outcomes) if outcomes else []
    counted = [outcome.result for outcome, verdict in zip(outcomes, verdicts, strict=True) if verdict == "ok"]
    return msgspec.structs.replace(
        reaped, returned=reaped.returned + counted.count("retry"), dead=reaped.dead + counted.count("dead")
    )


def _lost(view: TaskView, worker: str, now: int) -> Outcome:
    lost = view.lost + failures_by_cause(view.history).get(WORKER_LOST, 0) + 1
    attempt = Attempt(now, worker, WORKER_LOST, "the worker died while it held this task")
    return Outcome(
        task=view.id,
        lease=view.lease,
        result="dead" if lost >= LOST_LIMIT else "retry",
        cause=WORKER_LOST,
        attempt=attempt,
    )
