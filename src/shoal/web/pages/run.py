"""One run, in parts: progress, tasks, hosts and settings; failures and records have files of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.control.history import Series
from shoal.core.cost import cost_of
from shoal.core.forecast import lane_seconds
from shoal.core.run import Run
from shoal.core.run_counters import cache_usage, sitemap_usage
from shoal.core.stats import Stats
from shoal.core.task import State
from shoal.logs import redact
from shoal.queue.base import TaskFilter, TaskView
from shoal.runs.progress import describe_cause
from shoal.runs.undo_cancel import is_undoable
from shoal.view.budget import describe_budget, describe_cost, per_record
from shoal.view.cache import describe_usage
from shoal.view.changes import count_changes, describe_changes
from shoal.view.comparison import Comparison, compare_with_previous
from shoal.view.dead_letters import count_by_cause
from shoal.view.formatting import format_account, format_duration, format_least_time, sitemap_words
from shoal.view.no_records import describe_no_records
from shoal.view.progress import ProgressCurve, progress_curve
from shoal.view.run_state import display_state
from shoal.view.status import limiting_factors
from shoal.web.api.tasks import tasks_page
from shoal.web.context import ServerContext
from shoal.web.pages.hosts import OnlyFilter, lanes_page
from shoal.web.pages.queries import (
    PAGE_SIZE,
    ContextDep,
    IdParam,
    ReaderDep,
    TextParam,
    history_of,
    hours_since,
    page_router,
    run_status,
)
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.text import as_text

router = page_router()
LANES_SHOWN, CAUSES_SHOWN = 10, 8
TaskState = Literal["", "ready", "delayed", "leased", "done", "dead", "cancelled"]


async def run_header(context: ServerContext, run: Run, tab: str) -> dict[str, Any]:
    """What the head of every part shows."""
    listed = next((it for it in (await context.snapshot()).runs if it.run.id == run.id), None)
    standing = listed.display_state if listed else None
    standing = standing or await display_state(context.queue, context.settings, run)
    now = await context.queue.now()
    return {
        "run": run,
        "tab": tab,
        "stats": await context.cached(("stats", run.id), lambda: context.queue.stats(run.id)),
        "display_state": standing,
        "undoable": standing == "cancelled" and is_undoable(run, now),
        "seeding": listed.seeding if listed else False,
        "now": now,
    }


async def comparison(context: ServerContext, run: Run, stats: Stats, now: int) -> Comparison | None:
    """How it compares with the one before."""
    return await context.cached(("against", run.id), lambda: compare_with_previous(context.queue, run, stats, now))


async def changes(context: ServerContext, run: Run) -> str:
    """Which of its pages changed, came and went, in words; nothing where they are not compared."""
    counts = await context.cached(("changes", run.id), lambda: count_changes(context.queue, run))
    return describe_changes(counts) if counts is not None else ""


async def run_history(context: ServerContext, run: Run) -> Series:
    """The history of the fleet since the run began, as far as it is kept."""
    hours = hours_since(run.created_at, await context.queue.now())
    return await history_of(context, hours)


def topics(run: Run) -> str:
    return f"run:{run.name}"


@router.get("/runs/{name}")
async def show_run(request: Request, context: ContextDep, caller: ReaderDep, name: str) -> Response:
    run = await context.find_run(name)

    async def gather() -> dict[str, Any]:
        found = await run_status(context, run)
        slowest = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))[:LANES_SHOWN]
        history = f"/api/v1/history?hours={hours_since(run.created_at, found.now)}&run="
        causes = sorted(count_by_cause(found.dead).items(), key=lambda pair: -pair[1])
        series = await run_history(context, run)
        # A run that nobody works on has no pace.
        seconds_left = found.forecast.seconds if found.state == "running" else None
        curve = progress_curve(run, found.stats, series, found.now, seconds_left)
        return await run_header(context, run, "") | {
            "stats": found.stats,
            "display_state": found.state,
            "seeding": found.seeding,
            "now": found.now,
            "as_of": found.now,
            "running": found.run.state == "running",
            "rate": found.rate or 0.0,
            "ahead": found.forecast,
            "took": (run.finished_at - run.created_at) / 1e6 if run.finished_at else 0.0,
            "limits": [(kind, words) for kind, words in limiting_factors(found)],
            "cache": describe_usage(cached) if (cached := cache_usage(found.counters)) else "",
            "cost": describe_cost(cost := cost_of(found.counters)),
            "cost_per_record": describe_cost(each) if (each := per_record(cost, found.stats.records)) else "",
            "budget": describe_budget(found.budget) if found.budget is not None else "",
            "sitemaps": sitemap_words(read) if (read := sitemap_usage(found.counters, found.stats)) else "",
            "account": format_account(found.stats),
            "no_records": describe_no_records(found.no_records) if found.no_records else [],
            "lanes": [(lane, format_least_time(lane, found.now)) for lane in slowest],
            "causes": causes[:CAUSES_SHOWN],
            "workers": found.workers,
            "moved": found.moved,
            "against": await comparison(context, run, found.stats, found.now),
            "changes": await changes(context, run),
            "changes_command": f"shoal changes {shlex.quote(run.name)}",
            "history": history + segment(run.name),
            "drawn": progress_chart(curve),
        }

    return await page(request, caller, "run.html", gather, nav="runs", topics=topics(run))


def progress_chart(found: ProgressCurve | None) -> dict[str, Any] | None:
    """Lines within 1000 by 100, and what they say."""
    if found is None:
        return None
    span = max(found.ends, found.last) - found.begun

    def place(at: float, number: float) -> str:
        return f"{1000 * (at - found.begun) / span:.1f},{100 - 96 * number / found.total:.1f}"

    last = found.line[-1]
    return {
        "line": " ".join(place(*point) for point in found.line),
        "ahead": f"{place(*last)} {place(found.ends, found.total)}" if found.ends else "",
        "now": f"{1000 * (found.last - found.begun) / span:.1f}",
        "done": last[1],
        "total": found.total,
        "begun": int(found.begun * 1e6),
        "last": int(found.last * 1e6),
        "ends": int(found.ends * 1e6),
    }


@router.get("/runs/{name}/tasks")
async def tasks(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    name: str,
    state: TaskState = "",
    host: TextParam = "",
    cause: TextParam = "",
    url: TextParam = "",
    after: IdParam = 0,
) -> Response:
    run = await context.find_run(name)
    chosen = {"state": state, "host": host.strip(), "cause": cause.strip(), "url": url.strip()}
    base = f"/runs/{segment(run.name)}/tasks"

    async def gather() -> dict[str, Any]:
        where = TaskFilter(chosen["host"], chosen["cause"], chosen["url"])
        found, next = await tasks_page(context, run, state or None, where, PAGE_SIZE, after)
        now = await context.queue.now()
        return await run_header(context, run, "tasks") | {
            "tasks": found,
            "chosen": chosen,
            "filtered": any(chosen.values()),
            "why": _reason_words(now),
            "looked": "",
            "first": f"{base}{query(**chosen)}" if after else "",
            "next": f"{base}{query(**chosen, after=next)}" if next else "",
        }

    return await page(request, caller, "run_tasks.html", gather, nav="runs", topics=topics(run))


def _reason_words(now: int) -> Callable[[TaskView], str]:
    """In a few words why a task is where it is; its own page says more."""

    def words(view: TaskView) -> str:
        last = next((attempt for attempt in reversed(view.history) if attempt.cause), None)
        state: State = view.state
        if state in ("dead", "cancelled"):
            if view.cause:
                return describe_cause(view.cause)
            return "the run was cancelled" if state == "cancelled" else ""
        if state in ("ready", "delayed") and view.due_at > now:
            after = f" after {describe_cause(last.cause)}" if last else ""
            return f"again in {format_duration((view.due_at - now) / 1e6)}{after}"
        if state == "leased":
            return "a worker has it"
        return "" if state == "done" else "waiting for its turn"

    return words


@router.get("/runs/{name}/hosts")
async def hosts(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    name: str,
    like: TextParam = "",
    only: OnlyFilter = "",
    order: Literal["", "name"] = "",
    after: TextParam = "",
) -> Response:
    run = await context.find_run(name)
    base = f"/runs/{segment(run.name)}/hosts"

    async def gather() -> dict[str, Any]:
        found = await lanes_page(context, base, like.strip(), only, order, after, run)
        return found | await run_header(context, run, "hosts")

    return await page(request, caller, "run_hosts.html", gather, nav="runs", topics=topics(run))


@router.get("/runs/{name}/settings")
async def settings(request: Request, context: ContextDep, caller: ReaderDep, name: str) -> Response:
    run = await context.find_run(name)

    async def gather() -> dict[str, Any]:
        spec = msgspec.to_builtins(run.spec)
        spec.pop("hooks", None)  # a URL may itself be a secret
        run_settings = spec.pop("settings", {}) if isinstance(spec.get("settings"), dict) else {}
        return await run_header(context, run, "settings") | {
            "run_settings": {key: redact(as_text(value)) for key, value in sorted(run_settings.items())},
            "spec": {key: redact(as_text(value)) for key, value in sorted(spec.items())},
        }

    return await page(request, caller, "run_settings.html", gather, nav="runs", topics=topics(run))
