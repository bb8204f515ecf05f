"""Advice: what the numbers suggest, with the figures behind it and what can be done at once."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from starlette.responses import Response

from shoal.control.scaling.scale_documents import read_history
from shoal.view.scale import scale_document
from shoal.web.api.advice import advice_of
from shoal.web.context import ServerContext
from shoal.web.pages.actions import FILTER
from shoal.web.pages.queries import ContextDep, ReaderDep, page_router
from shoal.web.pages.render import page, segment

router = page_router()
DECISIONS = 20  # shown
_CALL = re.compile(r"/api/v1/(runs|hosts|workers)/([^/]+)/(\w+)").fullmatch
_ACTIONS_BY_CALL = {
    ("runs", "pause"): "run.pause",
    ("runs", "resume"): "run.resume",
    ("runs", "cancel"): "run.cancel",
    ("runs", "revive"): "dead.revive",
    ("hosts", "park"): "host.park",
    ("hosts", "release"): "host.release",
    ("workers", "drain"): "worker.drain",
}


@router.get("/advice")
async def advice(request: Request, context: ContextDep, caller: ReaderDep) -> Response:
    async def gather() -> dict[str, Any]:
        found = await context.snapshot()
        listing = await advice_of(context)
        return {
            "items": [advice_item(one) for one in listing["advice"]],
            "scale": listing["autoscale"],
            "scaler": scale_document(found.scale),
            "decisions": (await context.cached(("scale-history",), lambda: read_history(context.queue)))[:DECISIONS],
            "s": found,
            "as_of": found.at,
            "alive": len(found.alive),
        }

    return await page(request, caller, "advice.html", gather, nav="advice")


async def urgent_advice(context: ServerContext) -> list[dict[str, Any]]:
    """What somebody should look at."""
    listing = await advice_of(context)
    return [advice_item(one) for one in listing["advice"] if one["level"] != "good"]


def advice_item(one: dict[str, Any]) -> dict[str, Any]:
    """One piece of advice as a page shows it: where to look, and what a button can do."""
    links = []
    if one["run"]:
        path = f"/runs/{segment(one['run'])}"
        links.append(
            {"label": "See", "path": f"{path}/dead" if one["kind"] in ("common_cause", "code_error") else path}
        )
    if one["host"]:
        links.append({"label": "Host", "path": f"/hosts/{segment(one['host'])}"})
    if one["worker"]:
        links.append({"label": "Worker", "path": f"/fleet/{segment(one['worker'])}"})
    return one | {"links": links, "buttons": [made for step in one["actions"] if (made := _button(step))]}


def _button(step: dict[str, Any]) -> dict[str, Any] | None:
    """The button for a step, where there is one: not for those that need a choice first."""
    call = _CALL(step["path"] or "")
    action = _ACTIONS_BY_CALL.get((call[1], call[3])) if call else None
    if call is None or action is None:
        return None
    body = step["body"] or {}
    more = {name: str(body[name]) for name in FILTER if body.get(name)}
    return {"action": action, "about": unquote(call[2]), "label": "", "more": more}
