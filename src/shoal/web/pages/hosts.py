"""Hosts: a list of thousands, and one with everything that decides its pace."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from shoal.control import actions
from shoal.control.history import Series
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.queue.host_blocks import find_evidence
from shoal.runs.host_limits import asked_spacing
from shoal.view.auto_fetch import host_fetching
from shoal.view.blocks import host_blocks, page_number
from shoal.view.budget import describe_cost, host_cost, per_record
from shoal.view.formatting import describe_reason, format_least_time
from shoal.view.host_evidence import describe_robots, last_answers
from shoal.view.sessions import describe_session, session_views
from shoal.web.context import ServerContext
from shoal.web.http.problem import not_found
from shoal.web.pages.charts import Hours, heatmap_context
from shoal.web.pages.queries import (
    PAGE_SIZE,
    SPANS,
    ContextDep,
    ReaderDep,
    TextParam,
    history_of,
    least_time_of,
    page_router,
    time_spans,
)
from shoal.web.pages.render import is_live_part, page, query, segment
from shoal.web.pages.text import printable

router = page_router()
OnlyFilter = Literal["", "parked", "held", "overridden"]
MAX_RUNS = 50  # of unfinished runs, whether they have pages of a host


@router.get("/hosts")
async def hosts(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    like: TextParam = "",
    only: OnlyFilter = "",
    order: Literal["", "name"] = "",
    after: TextParam = "",
    hours: Hours = 6,
) -> Response:
    async def gather() -> dict[str, Any]:
        chosen = {"like": like, "only": only, "order": order, "after": after}
        given: dict[str, Any] = {
            "spans": [(label, f"/hosts{query(**chosen, hours=f'{it:g}')}", it == hours) for it, label in SPANS.items()]
        }
        # The living part of the page has no map.
        drawn = {} if is_live_part(request) else await heatmap_context(context, like.strip().lower(), hours)
        sessions = await session_views(context.queue, context.settings)
        given |= {"sessions": [(one, describe_session(one, await context.queue.now())) for one in sessions]}
        return await lanes_page(context, "/hosts", like.strip(), only, order, after) | given | drawn

    return await page(request, caller, "hosts.html", gather, nav="hosts")


async def lanes_page(
    context: ServerContext, base: str, like: str, only: OnlyFilter, order: str, after: str, run: Run | None = None
) -> dict[str, Any]:
    """One page of hosts. By backlog there is one page only: whoever goes on pages through names."""
    by_name = order == "name" or bool(after)
    found = await context.queue.lanes(
        run=run.id if run else None,
        limit=PAGE_SIZE + 1,
        order="name" if by_name else "ready",
        after=after,
        like=like.lower(),
        only=only,
    )
    shown, more = found[:PAGE_SIZE], len(found) > PAGE_SIZE
    chosen = {"like": like, "only": only, "order": order}
    next = ""
    if more:
        params = {**chosen, "order": "name"}
        next = f"{base}{query(**params, after=shown[-1].name)}" if by_name else f"{base}{query(**params)}"
    now = await context.queue.now()
    return {
        "lanes": shown,
        "now": now,
        "least": least_time_of(now),
        "chosen": chosen,
        "base": base,
        "run": run,
        "picks": run is None,
        "first": f"{base}{query(**chosen)}" if after else "",
        "next": next,
        "more_words": f"The {PAGE_SIZE} with the most waiting pages; the next page lists all by name."
        if more and not by_name
        else "",
        "none_words": "No host matches." if like or only or after else "No hosts yet.",
    }


@router.get("/block-pages/{page_id}")
async def block_page(context: ContextDep, caller: ReaderDep, page_id: str, host: TextParam = "") -> Response:
    """A block page as it came: a stranger's, so it is shown as text and not as a page."""
    number = page_number(page_id)
    found = await find_evidence(context.queue, host, number) if number >= 0 else None
    if found is None:
        raise not_found("block page", page_id[:40], hint="they are kept for a week")
    head = f"{found.url}\n{found.final_url}\n{found.status} {found.content_type}, by {found.fetcher} {found.exit}\n\n"
    return Response(printable(head) + found.text, media_type="text/plain; charset=utf-8")


@router.get("/hosts/{name:path}")
async def host(request: Request, context: ContextDep, caller: ReaderDep, name: str, hours: Hours = 1) -> Response:
    lane = await actions.find_host(context.queue, name)
    if lane is None:
        near = [it.name for it in await context.queue.lanes(like=name.lower()[:300], limit=3)]
        raise not_found("host", name, hint=f"did you mean {' or '.join(near)}?" if near else "")

    async def gather() -> dict[str, Any]:
        found = await context.snapshot()
        runs = await _runs(context, lane)
        latest = [it for it, _, _ in runs] or [it.run for it in found.runs]
        return {
            "lane": lane,
            "now": found.at,
            "least": format_least_time(lane, found.at),
            "slow_reason": "" if lane.held_until else describe_reason(lane),
            "runs": runs,
            "answers": await last_answers(context.queue, lane.name, latest),
            "cost": describe_host_cost(await history_of(context, hours), lane.name),
            "fetching": await host_fetching(context.queue, lane.name),
            "blocks": await host_blocks(context.queue, lane.name),
            "robots": describe_robots(context.settings, lane.name, found.at / 1e6),
            "has_learnt": lane.learned > 0 or (lane.held_until > found.at and not lane.is_held_indefinitely(found.at)),
            "history": f"/api/v1/history?hours={hours:g}&host={segment(lane.name)}",
            "spans": time_spans(f"/hosts/{segment(lane.name)}", hours),
        }

    return await page(request, caller, "host.html", gather, nav="hosts")


def describe_host_cost(series: Series, host: str) -> str:
    """What its pages have cost in the time that the page shows; empty where nothing is known."""
    cost, pages = host_cost(series.samples, host)
    each = per_record(cost, pages)
    return f"{describe_cost(cost)}; per page {describe_cost(each)}" if each and describe_cost(cost) else ""


async def _runs(context: ServerContext, lane: LaneState) -> list[tuple[Run, int, float]]:
    """Unfinished runs that have pages of this host, how many wait, and the spacing each asks for."""
    made = []
    for it in (await context.snapshot()).runs[:MAX_RUNS]:
        if it.run.state not in ("running", "paused"):
            continue
        found = await context.queue.lanes(run=it.run.id, names=(lane.name,), limit=1)
        if found:
            made.append((it.run, found[0].ready, asked_spacing(it.run, lane.name)))
    return made
