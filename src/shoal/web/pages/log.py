"""The log of a run: what happened to it, the newest first."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control import acting
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.view.chronicle import Entry, chronicle, paged
from shoal.web.pages.look import PAGE, At, In, Reader, pages
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import head, past, topics
from shoal.web.room import Room

router = pages()
GROUPS = 200  # of dead letters, the largest


@router.get("/runs/{name}/log")
async def log(request: Request, room: In, caller: Reader, name: str, before: At = 0) -> Response:
    run = await room.run(name)
    base = f"/runs/{segment(run.name)}/log"

    async def gather() -> dict[str, Any]:
        above = await head(room, run, "log")
        entries = await room.once(("log", run.id), lambda: _entries(room, run, above["stats"]))
        shown, next = paged(entries, before, PAGE)
        return above | {
            "entries": shown,
            "first": base if before else "",
            "next": f"{base}{query(before=next)}" if next else "",
        }

    return await page(request, caller, "run_log.html", gather, nav="runs", topics=topics(run))


async def _entries(room: Room, run: Run, stats: Stats) -> list[Entry]:
    actions, _ = await room.once(("actions",), lambda: acting.actions(room.queue))
    groups = await room.queue.dead_groups(run.id, limit=GROUPS) if stats.dead else []
    return chronicle(run, stats, actions, groups, await past(room, run))
