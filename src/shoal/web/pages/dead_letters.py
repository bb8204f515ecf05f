"""Failures: dead letters by cause with samples, over all runs and in one, and one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.core.run import Run
from shoal.queue.base import DeadLetterGroup, TaskFilter
from shoal.view.dead_letters import last_message
from shoal.web.api.tasks import tasks_page
from shoal.web.context import ServerContext
from shoal.web.pages.charts import Hours
from shoal.web.pages.queries import PAGE_SIZE, ContextDep, IdParam, ReaderDep, TextParam, page_router, time_spans
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import run_header, topics

router = page_router()
MAX_RUNS = 30
SAMPLES, HOSTS = 3, 5


class CauseGroup(msgspec.Struct):
    """All dead letters of a run with one cause."""

    run: Run
    cause: str
    count: int = 0
    hosts: list[tuple[str, int]] = []
    samples: list[tuple[str, str]] = []  # (URL, message)
    first_at: int = 0
    last_at: int = 0


def count_by_cause(run: Run, groups: Iterable[DeadLetterGroup]) -> list[CauseGroup]:
    """The most frequent first."""
    made: dict[str, CauseGroup] = {}
    for group in groups:
        it = made.setdefault(group.cause, CauseGroup(run, group.cause, hosts=[], samples=[], first_at=group.first_at))
        it.count += group.count
        it.hosts.append((group.lane, group.count))
        it.first_at = min(it.first_at, group.first_at)
        it.last_at = max(it.last_at, group.last_at)
        if len(it.samples) < SAMPLES and group.sample:
            it.samples.append((group.sample, group.message if group.message != group.cause else ""))
    for it in made.values():
        it.hosts.sort(key=lambda pair: -pair[1])
    return sorted(made.values(), key=lambda it: -it.count)


@router.get("/dead")
async def dead(request: Request, context: ContextDep, caller: ReaderDep, hours: Hours = 6) -> Response:
    return await page(request, caller, "dead_letters.html", lambda: _gather_all(context, hours), nav="dead")


async def _gather_all(context: ServerContext, hours: float) -> dict[str, Any]:
    failed = [it for it in (await context.snapshot()).runs if it.stats.dead]
    causes: list[CauseGroup] = []
    for it in failed[:MAX_RUNS]:
        causes += count_by_cause(it.run, await context.queue.dead_groups(it.run.id))
    return {
        "causes": sorted(causes, key=lambda it: -it.last_at)[:200],
        "total": sum(it.stats.dead for it in failed),
        "runs": len(failed),
        "HOSTS": HOSTS,
        "history": f"/api/v1/history?hours={hours:g}",
        "spans": time_spans("/dead", hours, 6),
    }


@router.get("/runs/{name}/dead")
async def of_run(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    name: str,
    cause: TextParam = "",
    host: TextParam = "",
    url: TextParam = "",
    after: IdParam = 0,
) -> Response:
    run = await context.find_run(name)
    chosen = {"cause": cause.strip(), "host": host.strip(), "url": url.strip()}
    base = f"/runs/{segment(run.name)}/dead"

    async def gather() -> dict[str, Any]:
        narrow = any(chosen.values()) or bool(after)
        where = TaskFilter(chosen["host"], chosen["cause"], chosen["url"])
        letters, next = await tasks_page(context, run, "dead", where, PAGE_SIZE, after) if narrow else ([], 0)
        groups = [] if narrow else await context.queue.dead_groups(run.id)
        return await run_header(context, run, "dead") | {
            "causes": count_by_cause(run, groups),
            "letters": [(view, last_message(view)) for view in letters],
            "narrow": narrow,
            "chosen": chosen,
            "HOSTS": HOSTS,
            "first": f"{base}{query(**chosen)}" if after else "",
            "next": f"{base}{query(**chosen, after=next)}" if next else "",
        }

    return await page(request, caller, "run_dead_letters.html", gather, nav="runs", topics=topics(run))
