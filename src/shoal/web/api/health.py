"""Health: whether the server lives, whether its queue answers, and the figures of the fleet."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from shoal.errors import Act
from shoal.view.metrics import fleet_metrics
from shoal.view.snapshot import Snapshot
from shoal.web.access import Reader
from shoal.web.answer import answer
from shoal.web.api.models import problems
from shoal.web.room import Room, room_in

if TYPE_CHECKING:
    from shoal.web.server import Server

SILENCE = 15.0  # seconds without an answer to the upkeep after which we are not ready

router = APIRouter(tags=["health"])
OPEN: dict[str, Any] = {"security": []}  # nobody is asked for a token
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Health(BaseModel):
    status: str
    role: str
    name: str


class Ready(BaseModel):
    ready: bool
    role: str
    name: str
    queue: str
    upkeep: bool
    stopping: bool


READY: dict[int | str, Any] = {
    200: {"model": Ready, "description": "It is"},
    503: {"model": Ready, "description": "It is not, and `queue` says why"},
}
METRICS: dict[int | str, Any] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Text of Prometheus"},
    **problems(),
}


@router.get("/health", include_in_schema=False)
@router.get(
    "/api/health", summary="Whether the server lives", responses={200: {"model": Health}}, openapi_extra=OPEN
)
async def health(request: Request) -> Response:
    server: Server = request.app.state.server
    return answer({"status": "ok", "role": server.role, "name": server.name})


@router.get("/ready", include_in_schema=False)
@router.get(
    "/api/ready", summary="Whether the queue answers and is seen to", responses=READY, openapi_extra=OPEN
)
async def ready(request: Request) -> Response:
    server: Server = request.app.state.server
    room = room_in(request)
    words = "ok"
    if room.pulse.away or room.pulse.why:
        words = room.pulse.why or f"no answer for {room.pulse.silence:.0f} s"
    elif server.upkeep is not None and (silence := time.monotonic() - server.upkeep.reached_at) > SILENCE:
        words = f"no answer to the upkeep for {silence:.0f} s"
    found = {
        "ready": words == "ok" and not server.stopping.is_set(),
        "role": server.role,
        "name": server.name,
        "queue": words,
        "upkeep": server.upkeep is not None,
        "stopping": server.stopping.is_set(),
    }
    return answer(found, 200 if found["ready"] else 503)


@router.get("/metrics", summary="The fleet's figures, for Prometheus", responses=METRICS)
async def metrics(request: Request, caller: Reader) -> Response:
    """Names stay from release to release; docs/metrics.md lists them."""
    room, server = room_in(request), request.app.state.server
    text = ""
    if not room.pulse.away:
        with contextlib.suppress(Act):
            text = await room.once(("metrics",), lambda: _figures(room, server))
    text = text or fleet_metrics(Snapshot(at=0), server.counted, reachable=False)
    return Response(text, 200, {"Cache-Control": "no-store"}, TEXT)


async def _figures(room: Room, server: Server) -> str:
    found = await room.snapshot()
    return fleet_metrics(found, server.counted, await room.ledger())
