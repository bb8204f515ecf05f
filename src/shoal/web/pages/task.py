"""One task: its timeline, from being found to its end."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.core.task import REVIVED, Attempt
from shoal.logs import redact
from shoal.queue.base import TaskView
from shoal.queue.captures import MAX_CAPTURE, MAX_CAPTURES, find_capture
from shoal.view.formatting import count
from shoal.view.why import MAX_ID, Explanation, describe_origin, explain_task
from shoal.web.http.problem import not_found
from shoal.web.pages.queries import ContextDep, ReaderDep, page_router
from shoal.web.pages.render import page
from shoal.web.pages.text import as_text

router = page_router()
MAX_AHEAD = 2_000  # tasks before it that are counted; more would hold up everybody else
MIN_WAIT = 2.0  # seconds between two attempts that are worth telling


class TimelineStep(msgspec.Struct, frozen=True):
    kind: str  # ok, failed, wait, now, or nothing special
    what: str
    at: int = 0
    more: str = ""
    worker: str = ""
    facts: tuple[str, ...] = ()


@router.get("/tasks/{id}")
async def task(request: Request, context: ContextDep, caller: ReaderDep, id: str) -> Response:
    number = int(id) if id.isascii() and id.isdecimal() and len(id) < 20 else 0
    found = None
    if 0 < number <= MAX_ID:
        found = await context.cached(
            ("page-task", number), lambda: explain_task(context.queue, context.settings, number, most_ahead=MAX_AHEAD)
        )
    if found is None or found.task is None:
        raise not_found("task", id[:40], hint="it may have been removed with its run")

    async def gather() -> dict[str, Any]:
        origin = describe_origin(found.task) if found.task else ""
        kept = [await find_capture(context.queue, number, n) for n in range(MAX_CAPTURES)]
        return {
            "a": found,
            "t": found.task,
            "steps": timeline(found),
            "evidence": evidence(found),
            "origin": origin,
            "captures": [(n, one.media_type == "image/png", one.too_big) for n, one in enumerate(kept) if one],
            "max_capture": MAX_CAPTURE,
        }

    return await page(request, caller, "task.html", gather, nav="runs", topics=f"run:{found.run.name}")


@router.get("/tasks/{id}/captures/{capture}")
async def task_capture(context: ContextDep, caller: ReaderDep, id: str, capture: str) -> Response:
    """A screenshot or PDF of the task's page."""
    numbers = [int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1 for text in (id, capture)]
    found = None
    if 0 < numbers[0] <= MAX_ID and 0 <= numbers[1] < MAX_CAPTURES:
        found = await find_capture(context.queue, *numbers)
    if found is None or found.too_big:
        raise not_found("capture", capture[:40], hint="they are kept for a week")
    place = "inline" if found.media_type == "image/png" else f'attachment; filename="task-{numbers[0]}.pdf"'
    return Response(found.data, media_type=found.media_type, headers={"content-disposition": place})


def _origin(view: TaskView) -> str:
    words = describe_origin(view).removeprefix("none: ")
    return "given as a start URL" if words == "it is a start URL" else words


def timeline(found: Explanation) -> list[TimelineStep]:
    """What happened, in order; the last step is what is so now."""
    view = found.task
    assert view is not None
    steps = [
        TimelineStep(
            "",
            "found on another page" if found.chain else _origin(view),
            view.added_at,
            facts=(f"depth {view.depth}", f"priority {view.priority}"),
        )
    ]
    before = 0
    for attempt in view.history:
        began = attempt.at - int(attempt.seconds * 1e6)
        if before and (began - before) / 1e6 > MIN_WAIT:
            steps.append(TimelineStep("wait", "waited", before, more=f"{(began - before) / 1e6:.0f}"))
        steps.append(_attempt(attempt))
        before = attempt.at
    if view.lost:
        words = f"{count(view.lost, 'worker')} died while working on it"
        steps.append(TimelineStep("failed", words))
    kinds = {"done": "ok", "dead": "failed", "leased": "now", "cancelled": ""}
    steps.append(TimelineStep(kinds.get(view.state, "wait"), found.reason, view.finished_at))
    return steps


def _attempt(attempt: Attempt) -> TimelineStep:
    if attempt.cause == REVIVED:
        return TimelineStep("now", "requeued by a person", attempt.at, worker=attempt.worker)
    facts = [f"{attempt.seconds * 1000:,.0f} ms"] if attempt.seconds else []
    if attempt.status:
        facts.append(f"status {attempt.status}")
    if attempt.size:
        facts.append(f"{attempt.size:,} bytes")
    return TimelineStep(
        "failed" if attempt.cause else "ok",
        attempt.cause,
        attempt.at,
        redact(attempt.message) if attempt.message != attempt.cause else "",
        attempt.worker,
        tuple(facts),
    )


def evidence(found: Explanation) -> list[tuple[str, str]]:
    """What was kept of the failure, as text."""
    kept = found.task.evidence if found.task else None
    made = []
    for name, value in (kept or {}).items():
        made.append((str(name), redact(as_text(value))))
    return sorted(made, key=lambda pair: pair[0] != "traceback")
