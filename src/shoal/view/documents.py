"""Documents: what machines see of runs, hosts, workers and tasks, in --json, in the API and in events.

The keys are stable: new ones may come, none goes or changes its meaning.
"""

from __future__ import annotations

import math
from typing import Any

from shoal.control.runs import version_of
from shoal.core.forecast import lane_seconds
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.task import Attempt
from shoal.logs import redact
from shoal.queue.base import DeadGroup, TaskView
from shoal.view.hosts import set_by, why_held
from shoal.view.letters import by_cause, message_of
from shoal.view.snapshot import RunLook, Snapshot
from shoal.view.status import Status, limits
from shoal.view.why import Answer
from shoal.view.words import stamp
from shoal.view.workers import by_state, place, state_of, versions_of

HOSTS_SHOWN = 100
WORKERS_SHOWN = 100

Document = dict[str, Any]


def stats_document(stats: Stats) -> Document:
    """The account of a run, or of several together."""
    return {
        "seen": stats.seen,
        "done": stats.done,
        "dead": stats.dead,
        "cancelled": stats.cancelled,
        "open": stats.open,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "leased": stats.leased,
        "claimable": stats.claimable,
        "records": stats.records,
        "retries": stats.retries,
        "lost": stats.lost,
        "stale": stats.stale,
        "bytes": stats.bytes,
        "skipped": dict(stats.skipped),
        "balanced": stats.balanced,
    }


def run_document(run: Run, stats: Stats) -> Document:
    return {
        "name": run.name,
        "scraper": run.scraper,
        "state": run.state,
        "created_at": stamp(run.created_at),
        "finished_at": stamp(run.finished_at),
        "max_pages": run.max_pages,
        **stats_document(stats),
    }


def status_document(found: Status) -> Document:
    """How a run goes, and what limits it."""
    return {
        **run_document(found.run, found.stats),
        "at": stamp(found.now),
        "pages_per_second": found.rate,
        "seconds_left": _rounded(found.ahead.seconds),
        "decided_by": found.ahead.lane or None,
        "standing": found.state,
        "seeding": found.seeding,
        "code_version": version_of(found.run) or None,
        "limits": [{"kind": kind, "words": words} for kind, words in limits(found)],
        "workers": [worker_document(mark, found.now) for mark in found.workers[:WORKERS_SHOWN]],
        "hosts": [host_document(lane, found.now) for lane in found.lanes[:HOSTS_SHOWN]],
        "dead_by_cause": by_cause(found.dead),
    }


def watch_document(found: Status) -> Document:
    """One look at a run that goes on, in the words of `shoal watch`."""
    stats = found.stats
    return {
        "at": stamp(found.now),
        "run_id": found.run.name,
        "scraper": found.run.scraper,
        "state": found.run.state,
        "seen": stats.seen,
        "pending": stats.ready,
        "delayed": stats.delayed,
        "claimed": stats.leased,
        "done": stats.done,
        "failed": stats.dead,
        "cancelled": stats.cancelled,
        "remaining": stats.open,
        "records": stats.records,
        "seeding": found.seeding,
        "pages_per_second": round(found.rate or 0.0, 2),
        "seconds_left": _rounded(found.ahead.seconds),
        "decided_by": found.ahead.lane or None,
        "limits": [{"kind": kind, "words": words} for kind, words in limits(found)],
        "workers": [_watched_worker(mark) for mark in found.workers],
        "hosts": [host_document(lane, found.now) for lane in found.lanes[:HOSTS_SHOWN]],
    }


def _watched_worker(mark: Mark) -> Document:
    names = ("id", "name", "host", "pid", "state", "doing", "leased", "done", "failed", "memory", "code")
    return {name: getattr(mark, name) for name in names} | {"seen_at": stamp(mark.seen_at)}


def host_document(lane: LaneState, now: int = 0) -> Document:
    """With the moment, also why it gets no requests and how long it needs at least."""
    made: Document = {
        "name": lane.name,
        "next_at": stamp(lane.next_at),
        "spacing": lane.spacing,
        "asked": lane.asked,
        "learned": lane.learned,
        "max_in_flight": lane.max_in_flight,
        "in_flight": lane.in_flight,
        "ready": lane.ready,
        "held_until": stamp(lane.held_until),
        "parked": lane.parked,
        "reason": lane.reason,
        "rule": lane.rule if lane.rule >= 0 else None,
        "limit": lane.limit if lane.limit >= 0 else None,
        "set_by": set_by(lane) or None,
    }
    if now:
        made["why_held"] = why_held(lane, now) or None
        made["seconds_left"] = None if lane.for_good(now) else round(lane_seconds(lane, now), 3)
    return made


def worker_document(mark: Mark, now: int, stale_after: float = math.inf) -> Document:
    return {
        "id": mark.id,
        "name": mark.name,
        "host": mark.host,
        "pid": mark.pid,
        "version": mark.version,
        "serves": list(mark.serves),
        "code": versions_of(mark),
        "state": state_of(mark, now, stale_after),
        "asked": mark.asked,
        "doing": mark.doing,
        "leased": mark.leased,
        "done": mark.done,
        "failed": mark.failed,
        "memory": mark.memory,
        "started_at": stamp(mark.started_at),
        "seen_at": stamp(mark.seen_at),
        "seen_seconds_ago": round(max(0.0, (now - mark.seen_at) / 1e6), 1),
    }


def group_document(group: DeadGroup) -> Document:
    return {
        "host": group.lane,
        "cause": group.cause,
        "count": group.count,
        "sample": group.sample,
        "message": group.message,
        "first_at": stamp(group.first_at),
        "last_at": stamp(group.last_at),
    }


def letter_document(view: TaskView) -> Document:
    return {
        "id": view.id,
        "url": view.url,
        "host": view.lane,
        "cause": view.cause,
        "message": message_of(view),
        "attempts": view.attempts,
        "lost": view.lost,
        "depth": view.depth,
        "dead_at": stamp(view.finished_at),
        "evidence": view.evidence,
    }


def task_document(view: TaskView, run: str = "") -> Document:
    """A task as it is listed; `run` is the name of its run."""
    made: Document = {
        "id": view.id,
        "run": run or None,
        "url": view.url,
        "host": view.lane,
        "state": view.state,
        "kind": view.kind,
        "priority": view.priority,
        "depth": view.depth,
        "parent": view.parent,
        "attempts": view.attempts,
        "lost": view.lost,
        "added_at": stamp(view.added_at),
        "due_at": stamp(view.due_at),
        "finished_at": stamp(view.finished_at),
        "worker": view.worker or None,
        "leased_until": stamp(view.leased_until),
        "cause": view.cause or None,
        "records": view.records,
    }
    last = view.history[-1] if view.history else None
    return made | {"last": attempt_document(last) if last else None}


def attempt_document(attempt: Attempt) -> Document:
    return {
        "at": stamp(attempt.at),
        "worker": attempt.worker,
        "milliseconds": round(attempt.seconds * 1000, 1),
        "status": attempt.status,
        "bytes": attempt.size,
        "cause": attempt.cause,
        "message": redact(attempt.message),
    }


def answer_document(answer: Answer, url: str = "") -> Document:
    """The whole story of one address."""
    task = answer.task
    return {
        "id": task.id if task else None,
        "url": url or answer.url,
        "run": answer.run.name,
        "run_state": answer.run.state,
        "run_standing": answer.run_state or answer.run.state,
        "at": stamp(answer.now),
        "state": task.state if task else "unknown",
        "reason": answer.reason,
        "skipped": list(answer.skipped),
        "host": task.lane if task else None,
        "kind": task.kind if task else None,
        "depth": task.depth if task else None,
        "priority": task.priority if task else None,
        "added_at": stamp(task.added_at) if task else None,
        "due_at": stamp(task.due_at) if task else None,
        "finished_at": stamp(task.finished_at) if task else None,
        "worker": task.worker if task else None,
        "leased_until": stamp(task.leased_until) if task else None,
        "cause": task.cause if task else None,
        "records": task.records if task else 0,
        "lost": task.lost if task else 0,
        "found_by": [view.url for view in answer.chain],
        "found_by_ids": [view.id for view in answer.chain],
        "attempts": [attempt_document(attempt) for attempt in (task.history if task else ())],
        "evidence": task.evidence if task else None,
    }


def run_look_document(found: RunLook) -> Document:
    """A run as it is listed, with how it goes."""
    return {
        **run_document(found.run, found.stats),
        "standing": found.standing,
        "pages_per_second": round(found.rate, 2),
        "failing_per_second": round(found.failing, 2),
        "seconds_left": _rounded(found.ahead.seconds),
        "decided_by": found.ahead.lane or None,
        "seeding": found.seeding,
        "workers": found.workers,
        "limits": [{"kind": kind, "words": words} for kind, words in found.limits],
    }


def fleet_document(snapshot: Snapshot) -> Document:
    """The whole fleet at one moment."""
    now, stale_after = snapshot.at, snapshot.stale_after
    marks = sorted(snapshot.workers, key=place)
    return {
        "at": stamp(now),
        "pages_per_second": round(snapshot.rate, 2),
        "failing_per_second": round(snapshot.failing, 2),
        "totals": stats_document(snapshot.totals),
        "oldest_waiting_at": stamp(snapshot.oldest_at),
        "unfinished_runs": snapshot.unfinished,
        "runs": [run_look_document(found) for found in snapshot.runs],
        "more_runs": snapshot.more_runs,
        "workers_by_state": by_state(marks, now, stale_after),
        "workers": [worker_document(mark, now, stale_after) for mark in marks[:WORKERS_SHOWN]],
        "more_workers": len(marks) > WORKERS_SHOWN,
        "hosts": [host_document(lane, now) for lane in snapshot.hosts],
        "parked": [host_document(lane, now) for lane in snapshot.parked],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
