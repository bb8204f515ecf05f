"""Overview: what needs somebody first, then how everything goes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from shoal.control import acting
from shoal.view.snapshot import Snapshot
from shoal.view.words import lasting
from shoal.web.pages import advice
from shoal.web.pages.look import In, Reader, at_queue, pages, snapshot, spans
from shoal.web.pages.render import page
from shoal.web.pages.runs import sparks
from shoal.web.room import Room

router = pages()
RUNS_SHOWN, ACTIONS_SHOWN = 12, 8


@router.get("/")
async def overview(
    request: Request, room: In, caller: Reader, hours: Annotated[int, Query(ge=1, le=24)] = 1
) -> Response:
    return await page(request, caller, "overview.html", lambda: _gather(room, hours), nav="overview")


async def _gather(room: Room, hours: int) -> dict[str, Any]:
    found = await snapshot(room)
    actions, _ = await room.once(("actions",), lambda: acting.actions(room.queue))
    return {
        "s": found,
        "as_of": found.at,
        "empty": not found.runs and not found.workers,
        "runs": found.runs[:RUNS_SHOWN],
        "sparks": await sparks(room),
        "alive": len(found.alive),
        "advice": await advice.pressing(room),
        "actions": actions[:ACTIONS_SHOWN],
        "ends": ends(found),
        "at_queue": at_queue(room.settings),
        "history": f"/api/v1/history?hours={hours}",
        "spans": spans("/", hours),
    }


def ends(found: Snapshot) -> str:
    """When everything that goes on will be done, and what decides it."""
    going = [it for it in found.runs if it.run.state == "running" and it.stats.open]
    told = [it for it in going if it.ahead.seconds]
    if not told or len(told) < len(going):
        return ""
    last = max(told, key=lambda it: it.ahead.seconds or 0.0)
    words = f"All runs end in about {lasting(last.ahead.seconds or 0.0)}"
    if not last.ahead.lane:
        return words + "."
    others = f"; all others in {lasting(last.ahead.others)}" if last.ahead.others else ""
    return f"{words}: {last.ahead.lane} decides, more workers will not help{others}."
