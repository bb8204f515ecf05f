"""Failures: dead letters by cause with samples, over all runs and in one, and one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.core.run import Run
from shoal.queue.base import DeadGroup, Where
from shoal.view.letters import message_of
from shoal.web.api.tasks import tasks_page
from shoal.web.pages.charts import Hours
from shoal.web.pages.look import PAGE, At, In, Reader, Word, pages, snapshot, spans
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import head, topics
from shoal.web.room import Room

router = pages()
RUNS_ASKED = 30
SAMPLES, HOSTS = 3, 5


class Cause(msgspec.Struct):
    """All dead letters of a run with one cause."""

    run: Run
    cause: str
    count: int = 0
    hosts: list[tuple[str, int]] = []
    samples: list[tuple[str, str]] = []  # (address, what was said)
    first_at: int = 0
    last_at: int = 0


def by_cause(run: Run, groups: Iterable[DeadGroup]) -> list[Cause]:
    """The most frequent first."""
    made: dict[str, Cause] = {}
    for group in groups:
        it = made.setdefault(
            group.cause, Cause(run, group.cause, hosts=[], samples=[], first_at=group.first_at)
        )
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
async def dead(request: Request, room: In, caller: Reader, hours: Hours = 6) -> Response:
    return await page(request, caller, "dead.html", lambda: _over_all(room, hours), nav="dead")


async def _over_all(room: Room, hours: int) -> dict[str, Any]:
    failed = [it for it in (await snapshot(room)).runs if it.stats.dead]
    causes: list[Cause] = []
    for it in failed[:RUNS_ASKED]:
        causes += by_cause(it.run, await room.queue.dead_groups(it.run.id))
    return {
        "causes": sorted(causes, key=lambda it: -it.last_at)[:200],
        "total": sum(it.stats.dead for it in failed),
        "runs": len(failed),
        "HOSTS": HOSTS,
        "history": f"/api/v1/history?hours={hours}",
        "spans": spans("/dead", hours, 6),
    }


@router.get("/runs/{name}/dead")
async def of_run(
    request: Request,
    room: In,
    caller: Reader,
    name: str,
    cause: Word = "",
    host: Word = "",
    url: Word = "",
    after: At = 0,
) -> Response:
    run = await room.run(name)
    chosen = {"cause": cause.strip(), "host": host.strip(), "url": url.strip()}
    base = f"/runs/{segment(run.name)}/dead"

    async def gather() -> dict[str, Any]:
        narrow = any(chosen.values()) or bool(after)
        where = Where(chosen["host"], chosen["cause"], chosen["url"])
        letters, next = await tasks_page(room, run, "dead", where, PAGE, after) if narrow else ([], 0)
        groups = [] if narrow else await room.queue.dead_groups(run.id)
        return await head(room, run, "dead") | {
            "causes": by_cause(run, groups),
            "letters": [(view, message_of(view)) for view in letters],
            "narrow": narrow,
            "chosen": chosen,
            "HOSTS": HOSTS,
            "first": f"{base}{query(**chosen)}" if after else "",
            "next": f"{base}{query(**chosen, after=next)}" if next else "",
        }

    return await page(request, caller, "run_dead.html", gather, nav="runs", topics=topics(run))
