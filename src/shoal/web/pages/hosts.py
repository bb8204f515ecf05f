"""Hosts: a list of thousands, and one with everything that decides its pace."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from shoal.control import acting
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.view.words import least_words
from shoal.web.pages.charts import Hours, heat_shown
from shoal.web.pages.look import PAGE, In, Reader, Word, least_of, pages, snapshot, spans
from shoal.web.pages.render import is_living, page, query, segment
from shoal.web.problem import no_such
from shoal.web.room import Room

router = pages()
Only = Literal["", "parked", "held", "ruled"]
RUNS_ASKED = 50  # of unfinished runs, whether they have pages of a host


@router.get("/hosts")
async def hosts(
    request: Request,
    room: In,
    caller: Reader,
    like: Word = "",
    only: Only = "",
    order: Literal["", "name"] = "",
    after: Word = "",
    hours: Hours = 6,
) -> Response:
    async def gather() -> dict[str, Any]:
        chosen = {"like": like, "only": only, "order": order, "after": after}
        given = {
            "spans": [(f"{it} h", f"/hosts{query(**chosen, hours=it)}", it == hours) for it in (1, 6, 24)]
        }
        # The living part of the page has no map.
        drawn = {} if is_living(request) else await heat_shown(room, like.strip().lower(), hours)
        return await lanes_page(room, "/hosts", like.strip(), only, order, after) | given | drawn

    return await page(request, caller, "hosts.html", gather, nav="hosts")


async def lanes_page(
    room: Room, base: str, like: str, only: Only, order: str, after: str, run: Run | None = None
) -> dict[str, Any]:
    """One page of hosts. By backlog there is one page only: whoever goes on pages through names."""
    by_name = order == "name" or bool(after)
    found = await room.queue.lanes(
        run=run.id if run else None,
        limit=PAGE + 1,
        order="name" if by_name else "ready",
        after=after,
        like=like.lower(),
        only=only,
    )
    shown, more = found[:PAGE], len(found) > PAGE
    chosen = {"like": like, "only": only, "order": order}
    next = ""
    if more:
        told = {**chosen, "order": "name"}
        next = f"{base}{query(**told, after=shown[-1].name)}" if by_name else f"{base}{query(**told)}"
    now = await room.queue.now()
    return {
        "lanes": shown,
        "now": now,
        "least": least_of(now),
        "chosen": chosen,
        "base": base,
        "run": run,
        "picks": run is None,
        "first": f"{base}{query(**chosen)}" if after else "",
        "next": next,
        "more_words": f"The {PAGE} with the most waiting; all of them by name follow."
        if more and not by_name
        else "",
        "none_words": "No host matches." if like or only or after else "No run has met a host yet.",
    }


@router.get("/hosts/{name:path}")
async def host(request: Request, room: In, caller: Reader, name: str, hours: Hours = 1) -> Response:
    lane = await acting.host(room.queue, name)
    if lane is None:
        near = [it.name for it in await room.queue.lanes(like=name.lower()[:300], limit=3)]
        raise no_such("host", name, hint=f"did you mean {' or '.join(near)}?" if near else "")

    async def gather() -> dict[str, Any]:
        found = await snapshot(room)
        return {
            "lane": lane,
            "now": found.at,
            "least": least_words(lane, found.at),
            "runs": await _runs(room, lane),
            "history": f"/api/v1/history?hours={hours}&host={segment(lane.name)}",
            "spans": spans(f"/hosts/{segment(lane.name)}", hours),
        }

    return await page(request, caller, "host.html", gather, nav="hosts")


async def _runs(room: Room, lane: LaneState) -> list[tuple[Run, int]]:
    """Unfinished runs that have pages of this host, and how many wait."""
    made = []
    for it in (await snapshot(room)).runs[:RUNS_ASKED]:
        if it.run.state not in ("running", "paused"):
            continue
        found = await room.queue.lanes(run=it.run.id, names=(lane.name,), limit=1)
        if found and (found[0].ready or found[0].in_flight):
            made.append((it.run, found[0].ready))
    return made
