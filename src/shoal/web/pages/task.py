"""One task: its whole story, from being found to what became of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.core.task import REVIVED, Attempt
from shoal.logs import redact
from shoal.view.why import BIGGEST, Answer, explain_id
from shoal.web.pages.look import In, Reader, pages
from shoal.web.pages.render import page
from shoal.web.problem import no_such

router = pages()
AHEAD = 2_000  # tasks before it that are counted; more would hold up everybody else
WAITED = 2.0  # seconds between two attempts that are worth telling


class Step(msgspec.Struct, frozen=True):
    kind: str  # ok, failed, wait, now, or nothing special
    what: str
    at: int = 0
    more: str = ""
    worker: str = ""
    facts: tuple[str, ...] = ()


@router.get("/tasks/{id}")
async def task(request: Request, room: In, caller: Reader, id: str) -> Response:
    number = int(id) if id.isascii() and id.isdecimal() and len(id) < 20 else 0
    found = None
    if 0 < number <= BIGGEST:
        found = await room.once(
            ("page-task", number),
            lambda: explain_id(room.queue, room.settings, number, most_ahead=AHEAD),
        )
    if found is None or found.task is None:
        raise no_such("task", id[:40], hint="it may have been removed with its run")

    async def gather() -> dict[str, Any]:
        return {"a": found, "t": found.task, "steps": story(found), "evidence": evidence(found)}

    return await page(request, caller, "task.html", gather, nav="runs", topics=f"run:{found.run.name}")


def story(found: Answer) -> list[Step]:
    """What happened, in order; the last step is what is so now."""
    view = found.task
    assert view is not None
    steps = [
        Step(
            "",
            "found on another page" if found.chain else "given as a start address",
            view.added_at,
            facts=(f"depth {view.depth}", f"priority {view.priority}"),
        )
    ]
    before = 0
    for attempt in view.history:
        began = attempt.at - int(attempt.seconds * 1e6)
        if before and (began - before) / 1e6 > WAITED:
            steps.append(Step("wait", "waited", before, more=f"{(began - before) / 1e6:.0f}"))
        steps.append(_attempt(attempt))
        before = attempt.at
    if view.lost:
        words = "a worker died while working on it" if view.lost == 1 else f"{view.lost} workers died with it"
        steps.append(Step("failed", words))
    kinds = {"done": "ok", "dead": "failed", "leased": "now", "cancelled": ""}
    steps.append(Step(kinds.get(view.state, "wait"), found.reason, view.finished_at))
    return steps


def _attempt(attempt: Attempt) -> Step:
    if attempt.cause == REVIVED:
        return Step("now", "put back to work by a person", attempt.at, worker=attempt.worker)
    facts = [f"{attempt.seconds * 1000:,.0f} ms"] if attempt.seconds else []
    if attempt.status:
        facts.append(f"status {attempt.status}")
    if attempt.size:
        facts.append(f"{attempt.size:,} bytes")
    return Step(
        "failed" if attempt.cause else "ok",
        attempt.cause,
        attempt.at,
        redact(attempt.message) if attempt.message != attempt.cause else "",
        attempt.worker,
        tuple(facts),
    )


def evidence(found: Answer) -> list[tuple[str, str]]:
    """What was kept of the failure, as text."""
    kept = found.task.evidence if found.task else None
    made = []
    for name, value in (kept or {}).items():
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
        )
        made.append((str(name), redact(text)))
    return sorted(made, key=lambda pair: pair[0] != "traceback")
