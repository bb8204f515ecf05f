"""Overview: what needs somebody first, then how everything goes."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from shoal.control.actions import recent_actions
from shoal.view.formatting import format_about, format_duration
from shoal.view.snapshot import Snapshot
from shoal.web.context import ServerContext
from shoal.web.pages import advice
from shoal.web.pages.charts import Hours
from shoal.web.pages.queries import ContextDep, ReaderDep, page_router, queue_option, time_spans
from shoal.web.pages.render import page
from shoal.web.pages.runs import sparklines

router = page_router()
RUNS_SHOWN, ACTIONS_SHOWN = 12, 8


@router.get("/")
async def overview(request: Request, context: ContextDep, caller: ReaderDep, hours: Hours = 1) -> Response:
    return await page(request, caller, "overview.html", lambda: _gather(context, hours), nav="overview")


async def _gather(context: ServerContext, hours: float) -> dict[str, Any]:
    found = await context.snapshot()
    actions, _ = await context.cached(("actions",), lambda: recent_actions(context.queue))
    return {
        "s": found,
        "as_of": found.at,
        "empty": not found.runs and not found.workers,
        "runs": found.runs[:RUNS_SHOWN],
        "sparklines": await sparklines(context),
        "alive": len(found.alive),
        "advice": await advice.urgent_advice(context),
        "actions": actions[:ACTIONS_SHOWN],
        "ends": completion_words(found),
        "queue_option": queue_option(context.settings),
        "history": f"/api/v1/history?hours={hours:g}",
        "spans": time_spans("/", hours),
    }


def completion_words(found: Snapshot) -> str:
    """When everything that goes on will be done, and what decides it."""
    going = [it for it in found.runs if it.run.state == "running" and it.stats.open]
    with_forecast = [it for it in going if it.forecast.seconds]
    if not with_forecast or len(with_forecast) < len(going):
        return ""
    last = max(with_forecast, key=lambda it: it.forecast.seconds or 0.0)
    at_least = any(it.forecast.at_least for it in with_forecast)
    words = f"All runs finish in {format_about(msgspec.structs.replace(last.forecast, at_least=at_least))}"
    if not last.forecast.lane:
        return words + "."
    others = f"; all others in {format_duration(last.forecast.others)}" if last.forecast.others else ""
    return f"{words}: {last.forecast.lane} is the bottleneck, more workers will not help{others}."
