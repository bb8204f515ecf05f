"""Advice: what the numbers suggest, with the figures behind it and what can be done at once."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from starlette.responses import Response

from shoal.web.api.advice import advice_of
from shoal.web.pages.deeds import FILTER
from shoal.web.pages.look import In, Reader, pages, snapshot
from shoal.web.pages.render import page, segment
from shoal.web.room import Room

router = pages()
_CALL = re.compile(r"/api/v1/(runs|hosts|workers)/([^/]+)/(\w+)").fullmatch
_DEEDS = {
    ("runs", "pause"): "run.pause",
    ("runs", "resume"): "run.resume",
    ("runs", "cancel"): "run.cancel",
    ("runs", "revive"): "dead.revive",
    ("hosts", "park"): "host.park",
    ("hosts", "release"): "host.release",
    ("workers", "drain"): "worker.drain",
}


@router.get("/advice")
async def advice(request: Request, room: In, caller: Reader) -> Response:
    async def gather() -> dict[str, Any]:
        found = await snapshot(room)
        listing = await advice_of(room)
        return {
            "items": [item(one) for one in listing["advice"]],
            "scale": listing["autoscale"],
            "s": found,
            "as_of": found.at,
            "alive": len(found.alive),
        }

    return await page(request, caller, "advice.html", gather, nav="advice")


async def pressing(room: Room) -> list[dict[str, Any]]:
    """What somebody should look at."""
    listing = await advice_of(room)
    return [item(one) for one in listing["advice"] if one["level"] != "good"]


def item(one: dict[str, Any]) -> dict[str, Any]:
    """One piece of advice as a page shows it: where to look, and what a button can do."""
    links = []
    if one["run"]:
        path = f"/runs/{segment(one['run'])}"
        links.append({"label": "See", "path": f"{path}/dead" if one["kind"] == "one_cause" else path})
    if one["host"]:
        links.append({"label": "Host", "path": f"/hosts/{segment(one['host'])}"})
    if one["worker"]:
        links.append({"label": "Worker", "path": f"/fleet/{segment(one['worker'])}"})
    return one | {
        "links": links,
        "deeds": [made for step in one["actions"] if (made := _deed(step))],
        "commands": [step["command"] for step in one["actions"] if step["command"]],
    }


def _deed(step: dict[str, Any]) -> dict[str, Any] | None:
    """The button for a step, where there is one: not for those that need a choice first."""
    call = _CALL(step["path"] or "")
    deed = _DEEDS.get((call[1], call[3])) if call else None
    if call is None or deed is None:
        return None
    body = step["body"] or {}
    more = {name: str(body[name]) for name in FILTER if body.get(name)}
    return {"deed": deed, "about": unquote(call[2]), "label": "", "more": more}
