"""One run, in parts: progress, tasks, hosts and settings; failures and records have files of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.control.history import Series
from shoal.control.report import cause_words
from shoal.core.forecast import lane_seconds
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.task import State
from shoal.logs import redact
from shoal.queue.base import TaskView, Where
from shoal.view.comparison import Comparison, compared
from shoal.view.letters import by_cause
from shoal.view.progress import Progress, progress
from shoal.view.standing import standing
from shoal.view.status import Status, limits
from shoal.view.words import lasting, least_words
from shoal.web.api.tasks import tasks_page
from shoal.web.pages.hosts import Only, lanes_page
from shoal.web.pages.look import PAGE, At, In, Reader, Word, hours_of, hours_since, pages, snapshot, status
from shoal.web.pages.render import page, query, segment
from shoal.web.room import Room

router = pages()
LANES_SHOWN, CAUSES_SHOWN = 10, 8
TaskState = Literal["", "ready", "delayed", "leased", "done", "dead", "cancelled"]


async def head(room: Room, run: Run, tab: str) -> dict[str, Any]:
    """What the head of every part shows."""
    listed = next((it for it in (await snapshot(room)).runs if it.run.id == run.id), None)
    return {
        "run": run,
        "tab": tab,
        "stats": await room.once(("stats", run.id), lambda: room.queue.stats(run.id)),
        "standing": listed.standing if listed else await standing(room.queue, room.settings, run),
        "seeding": listed.seeding if listed else False,
        "now": await room.queue.now(),
    }


async def against(room: Room, run: Run, stats: Stats, now: int) -> Comparison | None:
    """How it compares with the one before."""
    return await room.once(("against", run.id), lambda: compared(room.queue, run, stats, now))


async def past(room: Room, run: Run) -> Series:
    """The history of the fleet since the run began, as far as it is kept."""
    hours = hours_since(run.created_at, await room.queue.now())
    return await hours_of(room, hours)


def topics(run: Run) -> str:
    return f"run:{run.name}"


@router.get("/runs/{name}")
async def show(request: Request, room: In, caller: Reader, name: str) -> Response:
    run = await room.run(name)

    async def gather() -> dict[str, Any]:
        found = await status(room, run)
        slowest = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))[:LANES_SHOWN]
        history = f"/api/v1/history?hours={hours_since(run.created_at, found.now)}&run="
        causes = sorted(by_cause(found.dead).items(), key=lambda pair: -pair[1])
        return await head(room, run, "") | {
            "stats": found.stats,
            "standing": found.state,
            "seeding": found.seeding,
            "now": found.now,
            "as_of": found.now,
            "running": found.run.state == "running",
            "rate": found.rate or 0.0,
            "ahead": found.ahead,
            "took": (run.finished_at - run.created_at) / 1e6 if run.finished_at else 0.0,
            "limits": [(kind, words) for kind, words in limits(found)],
            "lanes": [(lane, least_words(lane, found.now)) for lane in slowest],
            "causes": causes[:CAUSES_SHOWN],
            "workers": found.workers,
            "moved": found.moved,
            "against": await against(room, run, found.stats, found.now),
            "history": history + segment(run.name),
            "drawn": drawn(progress(run, found.stats, await past(room, run), found.now, _left(found))),
        }

    return await page(request, caller, "run.html", gather, nav="runs", topics=topics(run))


def _left(found: Status) -> float | None:
    """Seconds until it ends; a run that nobody works on has no pace."""
    return found.ahead.seconds if found.state == "running" else None


def drawn(found: Progress | None) -> dict[str, Any] | None:
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
    room: In,
    caller: Reader,
    name: str,
    state: TaskState = "",
    host: Word = "",
    cause: Word = "",
    url: Word = "",
    after: At = 0,
) -> Response:
    run = await room.run(name)
    chosen = {"state": state, "host": host.strip(), "cause": cause.strip(), "url": url.strip()}
    base = f"/runs/{segment(run.name)}/tasks"

    async def gather() -> dict[str, Any]:
        where = Where(chosen["host"], chosen["cause"], chosen["url"])
        found, next = await tasks_page(room, run, state or None, where, PAGE, after)
        now = await room.queue.now()
        return await head(room, run, "tasks") | {
            "tasks": found,
            "chosen": chosen,
            "filtered": any(chosen.values()),
            "why": _why(now),
            "looked": "",
            "first": f"{base}{query(**chosen)}" if after else "",
            "next": f"{base}{query(**chosen, after=next)}" if next else "",
        }

    return await page(request, caller, "run_tasks.html", gather, nav="runs", topics=topics(run))


def _why(now: int) -> Callable[[TaskView], str]:
    """In a few words why a task is where it is; its own page says more."""

    def words(view: TaskView) -> str:
        last = next((attempt for attempt in reversed(view.history) if attempt.cause), None)
        state: State = view.state
        if state in ("dead", "cancelled"):
            return (
                cause_words(view.cause)
                if view.cause
                else "the run was cancelled"
                if state == "cancelled"
                else ""
            )
        if state in ("ready", "delayed") and view.due_at > now:
            after = f" after {cause_words(last.cause)}" if last else ""
            return f"again in {lasting((view.due_at - now) / 1e6)}{after}"
        if state == "leased":
            return "a worker has it"
        return "" if state == "done" else "waits for its turn"

    return words


@router.get("/runs/{name}/hosts")
async def hosts(
    request: Request,
    room: In,
    caller: Reader,
    name: str,
    like: Word = "",
    only: Only = "",
    order: Literal["", "name"] = "",
    after: Word = "",
) -> Response:
    run = await room.run(name)
    base = f"/runs/{segment(run.name)}/hosts"

    async def gather() -> dict[str, Any]:
        found = await lanes_page(room, base, like.strip(), only, order, after, run)
        return found | await head(room, run, "hosts")

    return await page(request, caller, "run_hosts.html", gather, nav="runs", topics=topics(run))


@router.get("/runs/{name}/settings")
async def settings(request: Request, room: In, caller: Reader, name: str) -> Response:
    run = await room.run(name)

    async def gather() -> dict[str, Any]:
        spec = msgspec.to_builtins(run.spec)
        spec.pop("hooks", None)  # an address may itself be a secret
        told = spec.pop("settings", {}) if isinstance(spec.get("settings"), dict) else {}
        return await head(room, run, "settings") | {
            "told": {key: redact(_text(value)) for key, value in sorted(told.items())},
            "spec": {key: redact(_text(value)) for key, value in sorted(spec.items())},
        }

    return await page(request, caller, "run_settings.html", gather, nav="runs", topics=topics(run))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
