"""The list of runs."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from shoal.core.run import RunState
from shoal.view.comparison import compare_all_with_previous
from shoal.view.run_state import display_state, live_workers
from shoal.view.series import binned
from shoal.view.snapshot import RunSnapshot
from shoal.web.context import ServerContext
from shoal.web.pages.queries import PAGE_SIZE, ContextDep, IdParam, ReaderDep, TextParam, page_router
from shoal.web.pages.render import page, query

router = page_router()
POINTS = 30  # of a run's line


@router.get("/runs")
async def runs(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    state: Literal["", "running", "paused", "finished", "cancelled"] = "",
    scraper: TextParam = "",
    name: TextParam = "",
    before: IdParam = 0,
) -> Response:
    chosen = {"state": state, "scraper": scraper.strip(), "name": name.strip()}
    states = (state,) if state else ()
    return await page(request, caller, "runs.html", lambda: _gather(context, chosen, states, before), nav="runs")


async def _gather(
    context: ServerContext, chosen: dict[str, str], states: tuple[RunState, ...], before: int
) -> dict[str, Any]:
    found = await context.queue.runs(
        name=chosen["name"], scraper=chosen["scraper"], states=states, before=before, limit=PAGE_SIZE + 1
    )
    shown = found[:PAGE_SIZE]
    stats = await context.queue.stats_of([run.id for run in shown])
    statuses = await live_workers(context.queue, context.settings) if shown else []
    known = {it.run.id: it for it in (await context.snapshot()).runs}
    looks = []
    for run, counted in zip(shown, stats, strict=True):
        made = known.get(run.id) or RunSnapshot(
            run, await display_state(context.queue, context.settings, run, statuses), counted
        )
        looks.append(made)
    return {
        "runs": looks,
        "against": await compare_all_with_previous(context.queue, shown, stats, await context.queue.now()),
        "sparklines": await sparklines(context),
        "chosen": chosen,
        "first": f"/runs{query(**chosen)}" if before else "",
        "next": f"/runs{query(**chosen, before=shown[-1].id)}" if len(found) > PAGE_SIZE else "",
        "none_words": " match" if any(chosen.values()) else " yet",
    }


async def sparklines(context: ServerContext) -> dict[str, tuple[str, float]]:
    """For each run that did something in the last hour: its line, and the most pages per second in it."""
    return await context.cached(("sparklines",), lambda: _sparklines(context), max_age=5.0)


async def _sparklines(context: ServerContext) -> dict[str, tuple[str, float]]:
    _, bins = binned(await context.history.read(3600.0), 1, POINTS)
    rates: dict[str, list[float]] = {}
    for at, one in enumerate(bins):
        for name, point in one.runs.items() if one and one.span else ():
            rates.setdefault(name, [0.0] * len(bins))[at] = point.done / one.span if one else 0.0
    made = {}
    for name, values in rates.items():
        most = max(values)
        if most:
            step = 100 / (len(values) - 1)
            line = " ".join(f"{at * step:.1f},{19 - 18 * value / most:.1f}" for at, value in enumerate(values))
            made[name] = (line, most)
    return made
