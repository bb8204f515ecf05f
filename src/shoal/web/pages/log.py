"""The log of a run: what happened to it, the newest first."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control.actions import recent_actions
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.glance import glance
from shoal.view.run_log import RunLogEntry, build_run_log, paginate
from shoal.web.context import ServerContext
from shoal.web.pages.queries import PAGE_SIZE, ContextDep, IdParam, ReaderDep, page_router
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import run_header, run_history, topics

router = page_router()
GROUPS = 200  # of dead letters, the largest


@router.get("/runs/{name}/log")
async def log(request: Request, context: ContextDep, caller: ReaderDep, name: str, before: IdParam = 0) -> Response:
    run = await context.find_run(name)
    base = f"/runs/{segment(run.name)}/log"

    async def gather() -> dict[str, Any]:
        header = await run_header(context, run, "log")
        entries = await context.cached(("log", run.id), lambda: _entries(context, run, header["stats"]))
        shown, next = paginate(entries, before, PAGE_SIZE)
        return header | {
            "entries": shown,
            "first": base if before else "",
            "next": f"{base}{query(before=next)}" if next else "",
        }

    return await page(request, caller, "run_log.html", gather, nav="runs", topics=topics(run))


async def _entries(context: ServerContext, run: Run, stats: Stats) -> list[RunLogEntry]:
    actions, _ = await context.cached(("actions",), lambda: recent_actions(context.queue))
    groups = await glance(context.queue.dead_groups(run.id, limit=GROUPS)) if stats.dead else []
    return build_run_log(run, stats, actions, groups, await run_history(context, run))
