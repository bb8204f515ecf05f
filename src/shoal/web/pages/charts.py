"""Charts: the busiest hosts and workers side by side, which the API gives one by one; and where it fails."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from shoal.control.history_sample import Sample
from shoal.view.failure_heatmap import MAX_HOSTS, FailureHeatmap, build_heatmap
from shoal.view.formatting import iso_time, local_time
from shoal.view.series import HOURS, binned, busiest
from shoal.web.context import ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.pages.queries import ContextDep, ReaderDep, TextParam, history_of, page_router
from shoal.web.pages.render import environment

router = page_router()
MIN_HOURS = 1 / 60
Hours = Annotated[float, Query(ge=MIN_HOURS, le=HOURS, allow_inf_nan=False)]
HEATMAP_MAX_AGE = 10.0  # seconds; there is a new sample so often
SERIES_FIELDS = {"hosts": "hosts", "workers": "by_worker", "runs": "runs"}


@router.get("/charts/heat")
async def heatmap_part(context: ContextDep, caller: ReaderDep, like: TextParam = "", hours: Hours = 6) -> Response:
    """The map alone, for a page that keeps it up to date."""
    shown = await heatmap_context(context, like.strip().lower(), hours)
    body = environment().get_template("failure_heatmap.html").render(shown)
    return Response(body, 200, {"Cache-Control": "no-store"}, "text/html")


async def heatmap_context(context: ServerContext, like: str, hours: float) -> dict[str, Any]:
    async def load() -> FailureHeatmap:
        return build_heatmap(await history_of(context, hours), hours, like=like)

    found = await context.cached(("heat", like, hours), load, HEATMAP_MAX_AGE)
    moments = [at * 1_000_000 for at in found.times]
    return {
        "heat": found,
        "heat_times": [(iso_time(at), local_time(at)[11:16]) for at in moments],
        "heat_like": like,
        "heat_hours": f"{hours:g}",
        "HOSTS_KNOWN": MAX_HOSTS,
    }


@router.get("/charts/{which}")
async def charts(
    context: ContextDep, caller: ReaderDep, which: Literal["hosts", "workers", "runs"], hours: Hours = 1
) -> Response:
    return json_response(
        await context.cached(("charts", which, hours), lambda: _busiest(context, which, hours), max_age=5.0)
    )


async def _busiest(context: ServerContext, which: str, hours: float) -> dict[str, Any]:
    series = await history_of(context, hours)
    times, bins = binned(series, hours)
    kind = SERIES_FIELDS[which]
    names = busiest(series, hours * 3600.0, kind)

    def rate(one: Sample | None, name: str) -> float | None:
        if one is None:
            return None
        point = getattr(one, kind).get(name)
        return round(point.done / one.span, 3) if one.span and point else 0.0

    return {"times": times, which: {name: [rate(one, name) for one in bins] for name in names}}
