"""Documents: what machines see of runs, hosts, workers and tasks, in --json, in the API and in events.

The keys are stable: new ones may come, none goes or changes its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.cost import Cost, cost_of
from shoal.core.forecast import lane_seconds
from shoal.core.lane import LaneState, WorkerStatus
from shoal.core.run import Run
from shoal.core.run_counters import cache_usage, fetch_usage, field_fill, sitemap_usage
from shoal.core.stats import Stats
from shoal.core.task import Attempt
from shoal.logs import redact
from shoal.queue.base import DeadLetterGroup, SeenSet, TaskView, UrlFailures
from shoal.runs.identity import run_code_version
from shoal.runs.no_records import NO_RECORDS, wants_records
from shoal.view.blocks import block_usage_documents, noticed_documents
from shoal.view.budget import per_record
from shoal.view.cache import usage_document
from shoal.view.dead_letters import count_by_cause, last_message
from shoal.view.formatting import describe_reason, iso_time
from shoal.view.hosts import hold_reason, pace_set_by
from shoal.view.snapshot import RunSnapshot, Snapshot
from shoal.view.status import Status, limiting_factors
from shoal.view.why import Explanation
from shoal.view.workers import code_versions, count_by_state, worker_sort_key, worker_state

HOSTS_SHOWN = 100
WORKERS_SHOWN = 100

Document = dict[str, Any]


def stats_document(stats: Stats) -> Document:
    """The account of a run, or of several together."""
    names = (
        "seen", "done", "dead", "discarded", "aside", "cancelled", "open", "ready", "delayed", "leased", "claimable",
        "records", "retries", "lost", "stale", "bytes", "outbox", "in_transit",
    )  # fmt: skip
    counts = {name: getattr(stats, name) for name in names}
    return (
        counts
        | {"skipped": dict(stats.skipped), "needs": dict(stats.needs), "balanced": stats.is_balanced}
        | {"away": list(stats.away)}
    )


def run_document(run: Run, stats: Stats) -> Document:
    return {
        "name": run.name,
        "scraper": run.scraper,
        "state": run.state,
        "created_at": iso_time(run.created_at),
        "finished_at": iso_time(run.finished_at),
        "priority": run.priority,
        "weight": run.weight,
        "max_pages": run.max_pages,
        "seen_set": run.seen_set or None,
        **stats_document(stats),
    }


def seen_set_document(found: SeenSet) -> Document:
    return {
        "name": found.name,
        "entries": found.entries,
        "bytes": found.bytes,
        "seen_for": found.seen_for or None,
        "created_at": iso_time(found.created_at),
        "changed_at": iso_time(found.changed_at),
    }


def status_document(found: Status) -> Document:
    """How a run goes, and what limits it."""
    return {
        **run_document(found.run, found.stats),
        "at": iso_time(found.now),
        "pages_per_second": found.rate,
        "seconds_left": _rounded(found.forecast.seconds),
        "at_least": found.forecast.at_least,
        "decided_by": found.forecast.lane or None,
        "display_state": found.state,
        "cause": _cause(found),
        "no_records": msgspec.to_builtins(found.no_records),
        "seeding": found.seeding,
        "code_version": run_code_version(found.run) or None,
        "limits": [{"kind": kind, "words": words} for kind, words in limiting_factors(found)],
        "workers": [worker_document(status, found.now) for status in found.workers[:WORKERS_SHOWN]],
        "hosts": [host_document(lane, found.now) for lane in found.lanes[:HOSTS_SHOWN]],
        "dead_by_cause": count_by_cause(found.dead),
        "fields": field_documents(found.counters),
        "fetched": fetch_documents(found.counters),
        "blocked": block_usage_documents(found.counters),
        "noticed_blocks": noticed_documents(found.counters),
        "sitemaps": sitemap_document(found.counters, found.stats),
        "cache": usage_document(cache_usage(found.counters)),
        **cost_documents(found),
    }


def cost_documents(found: Status) -> Document:
    """What a run has cost, in all and per record; and its budget. Seconds, and bytes."""
    cost = cost_of(found.counters)
    each, budget = per_record(cost, found.stats.records), found.budget
    return {
        "cost": amounts_document(cost),
        "cost_per_record": amounts_document(each) if each else None,
        "budget": {
            "limits": amounts_document(budget.limits),
            "set_aside": amounts_document(budget.set_aside),
            "lost": amounts_document(budget.lost),
            "largest": amounts_document(budget.largest),
            "spent": budget.spent or None,
        }
        if budget
        else None,
    }


def amounts_document(cost: Cost) -> Document:
    return {
        "bytes": cost.bytes,
        "proxy_bytes": cost.proxy,
        "cpu_seconds": round(cost.cpu / 1e6, 6),
        "browser_seconds": round(cost.browser / 1e6, 6),
    }


def _cause(found: Status) -> str | None:
    """Why it did not end as it should."""
    if found.over_time:
        return "timeout"
    if found.budget is not None and found.budget.spent:
        return f"budget.{found.budget.spent}"
    return NO_RECORDS if found.no_records and wants_records(found.run) else None


def field_documents(counters: Mapping[str, int]) -> list[Document]:
    """Fields of the records: how many have a value, of how many that have the field, and of which types."""
    return [{"name": name, **msgspec.structs.asdict(fill)} for name, fill in field_fill(counters).items()]


def sitemap_document(counters: Mapping[str, int], stats: Stats) -> Document | None:
    """What the sitemaps of a run came to; None where none was read, and none failed."""
    usage = sitemap_usage(counters, stats)
    return None if usage is None else msgspec.structs.asdict(usage)


def fetch_documents(counters: Mapping[str, int]) -> list[Document]:
    """What was fetched, by fetcher and exit: responses, bytes, seconds waited for them and of the processor."""
    return [msgspec.structs.asdict(one) for one in fetch_usage(counters)]


def watch_document(found: Status) -> Document:
    """One look at a run that goes on, in the words of `shoal watch`."""
    stats = found.stats
    return {
        "at": iso_time(found.now),
        "run_id": found.run.name,
        "scraper": found.run.scraper,
        "state": found.run.state,
        "seen": stats.seen,
        "pending": stats.ready,
        "delayed": stats.delayed,
        "claimed": stats.leased,
        "done": stats.done,
        "failed": stats.failed,
        "cancelled": stats.cancelled,
        "remaining": stats.open,
        "records": stats.records,
        "seeding": found.seeding,
        "pages_per_second": round(found.rate or 0.0, 2),
        "seconds_left": _rounded(found.forecast.seconds),
        "at_least": found.forecast.at_least,
        "decided_by": found.forecast.lane or None,
        "limits": [{"kind": kind, "words": words} for kind, words in limiting_factors(found)],
        "workers": [_watched_worker(status) for status in found.workers],
        "hosts": [host_document(lane, found.now) for lane in found.lanes[:HOSTS_SHOWN]],
    }


def _watched_worker(status: WorkerStatus) -> Document:
    names = ("id", "name", "host", "pid", "state", "leased", "done", "failed", "memory", "code")
    shown = {"doing": status.activity, "seen_at": iso_time(status.seen_at)}
    return {name: getattr(status, name) for name in names} | shown


def host_document(lane: LaneState, now: int = 0) -> Document:
    """With the moment, also why it gets no requests and how long it needs at least."""
    made: Document = {
        "name": lane.name,
        "next_at": iso_time(lane.next_at),
        "spacing": lane.spacing,
        "asked": lane.requested,
        "learned": lane.learned,
        "max_in_flight": lane.max_in_flight,
        "in_flight": lane.in_flight,
        "ready": lane.ready,
        "held_until": iso_time(lane.held_until),
        "parked": lane.parked,
        "reason": describe_reason(lane),
        "rule": lane.spacing_override if lane.spacing_override >= 0 else None,
        "limit": lane.limit if lane.limit >= 0 else None,
        "set_by": pace_set_by(lane) or None,
    }
    if now:
        made["why_held"] = hold_reason(lane, now) or None
        made["seconds_left"] = None if lane.is_held_indefinitely(now) else round(lane_seconds(lane, now), 3)
    return made


def worker_document(status: WorkerStatus, now: int, stale_after: float = math.inf) -> Document:
    return {
        "id": status.id,
        "name": status.name,
        "host": status.host,
        "pid": status.pid,
        "version": status.version,
        "serves": list(status.serves),
        "capabilities": list(status.capabilities),
        "code": code_versions(status),
        "state": worker_state(status, now, stale_after),
        "asked": status.command,
        "doing": status.activity,
        "leased": status.leased,
        "done": status.done,
        "failed": status.failed,
        "memory": status.memory,
        "started_at": iso_time(status.started_at),
        "seen_at": iso_time(status.seen_at),
        "seen_seconds_ago": round(max(0.0, (now - status.seen_at) / 1e6), 1),
    }


def dead_group_document(group: DeadLetterGroup) -> Document:
    return {
        "host": group.lane,
        "cause": group.cause,
        "count": group.count,
        "sample": group.sample,
        "message": group.message,
        "first_at": iso_time(group.first_at),
        "last_at": iso_time(group.last_at),
    }


def dead_letter_document(view: TaskView) -> Document:
    return {
        "id": view.id,
        "url": view.url,
        "host": view.lane,
        "cause": view.cause,
        "message": last_message(view),
        "attempts": view.attempts,
        "lost": view.lost,
        "depth": view.depth,
        "dead_at": iso_time(view.finished_at),
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
        "needs": list(view.needs),
        "attempts": view.attempts,
        "lost": view.lost,
        "added_at": iso_time(view.added_at),
        "due_at": iso_time(view.due_at),
        "finished_at": iso_time(view.finished_at),
        "worker": view.worker or None,
        "leased_until": iso_time(view.leased_until),
        "cause": view.cause or None,
        "records": view.records,
    }
    last = view.history[-1] if view.history else None
    return made | {"last": attempt_document(last) if last else None}


def attempt_document(attempt: Attempt) -> Document:
    return {
        "at": iso_time(attempt.at),
        "worker": attempt.worker,
        "milliseconds": round(attempt.seconds * 1000, 1),
        "status": attempt.status,
        "bytes": attempt.size,
        "cause": attempt.cause,
        "message": redact(attempt.message),
    }


def explanation_document(answer: Explanation) -> Document:
    """The whole story of one URL."""
    task = answer.task
    known = task_document(task) if task else {}
    return {
        "id": task.id if task else None,
        "url": answer.url,
        "run": answer.run.name,
        "run_state": answer.run.state,
        "run_display_state": answer.run_state or answer.run.state,
        "at": iso_time(answer.now),
        "state": task.state if task else "unknown",
        "reason": answer.reason,
        "skipped": list(answer.skipped),
        **{name: known.get(name, default) for name, default in _UNKNOWN_TASK.items()},
        "found_by": [view.url for view in answer.chain],
        "found_by_ids": [view.id for view in answer.chain],
        "attempts": [attempt_document(attempt) for attempt in (task.history if task else ())],
        "evidence": task.evidence if task else None,
        "others": [
            {"id": it.id, "kind": it.kind, "state": it.state, "cause": it.cause or None} for it in answer.others
        ],
        "failures": failures_document(answer.failures),
        "fetch": answer.fetch or None,
        "blocked": answer.blocks or None,
    }


def failures_document(about: UrlFailures) -> Document:
    """How often and how a URL failed, in all runs."""
    return {"count": about.count, "causes": about.causes, "last_at": iso_time(about.last_at) if about.count else None}


_UNKNOWN_TASK: Document = {
    **dict.fromkeys(("host", "kind", "depth", "priority", "added_at", "due_at", "finished_at")),
    **dict.fromkeys(("worker", "leased_until", "cause")),
    "records": 0,
    "lost": 0,
}


def run_snapshot_document(found: RunSnapshot) -> Document:
    """A run as it is listed, with how it goes."""
    return {
        **run_document(found.run, found.stats),
        "display_state": found.display_state,
        "pages_per_second": round(found.rate, 2),
        "failing_per_second": round(found.failing, 2),
        "seconds_left": _rounded(found.forecast.seconds),
        "at_least": found.forecast.at_least,
        "decided_by": found.forecast.lane or None,
        "seeding": found.seeding,
        "workers": found.workers,
        "limits": [{"kind": kind, "words": words} for kind, words in found.limits],
    }


def fleet_document(snapshot: Snapshot) -> Document:
    """The whole fleet at one moment."""
    now, stale_after = snapshot.at, snapshot.stale_after
    statuses = sorted(snapshot.workers, key=worker_sort_key)
    return {
        "at": iso_time(now),
        "pages_per_second": round(snapshot.rate, 2),
        "failing_per_second": round(snapshot.failing, 2),
        "totals": stats_document(snapshot.totals),
        "oldest_waiting_at": iso_time(snapshot.oldest_at),
        "unfinished_runs": snapshot.unfinished,
        "runs": [run_snapshot_document(found) for found in snapshot.runs],
        "more_runs": snapshot.more_runs,
        "workers_by_state": count_by_state(statuses, now, stale_after),
        "workers": [worker_document(status, now, stale_after) for status in statuses[:WORKERS_SHOWN]],
        "more_workers": len(statuses) > WORKERS_SHOWN,
        "hosts": [host_document(lane, now) for lane in snapshot.hosts],
        "parked": [host_document(lane, now) for lane in snapshot.parked],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
