"""Health: whether the server lives, whether its queue answers, and the figures of the fleet."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from shoal.errors import ActionRequired
from shoal.view.metric_family import prometheus_text
from shoal.view.metrics import fleet_metrics
from shoal.view.snapshot import Snapshot
from shoal.web.api.models import problem_docs
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ServerContext, context_of
from shoal.web.http.json_response import json_response

if TYPE_CHECKING:
    from shoal.web.server import Server

MAINTENANCE_TIMEOUT = 15.0  # seconds without an answer to maintenance after which we are not ready

router = APIRouter(tags=["health"])
NO_AUTH: dict[str, Any] = {"security": []}  # nobody is asked for a token
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(BaseModel):
    status: str
    role: str
    name: str


class Ready(BaseModel):
    ready: bool
    role: str
    name: str
    queue: str
    maintenance: bool
    stopping: bool


READY: dict[int | str, Any] = {
    200: {"model": Ready, "description": "It is"},
    503: {"model": Ready, "description": "It is not, and `queue` says why"},
}
METRICS: dict[int | str, Any] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Text of Prometheus"},
    **problem_docs(),
}


@router.get("/health", include_in_schema=False)
@router.get(
    "/api/health", summary="Whether the server is alive", responses={200: {"model": Health}}, openapi_extra=NO_AUTH
)
async def health(request: Request) -> Response:
    server: Server = request.app.state.server
    return json_response({"status": "ok", "role": server.role, "name": server.name})


@router.get("/ready", include_in_schema=False)
@router.get("/api/ready", summary="Whether the server can serve", responses=READY, openapi_extra=NO_AUTH)
async def ready(request: Request) -> Response:
    server: Server = request.app.state.server
    context = context_of(request)
    words = "ok"
    if context.queue_probe.is_down or context.queue_probe.last_error:
        words = context.queue_probe.last_error or f"no answer for {context.queue_probe.seconds_silent:.0f} s"
    elif (
        server.maintenance is not None
        and (silence := time.monotonic() - server.maintenance.reached_at) > MAINTENANCE_TIMEOUT
    ):
        words = f"no answer to maintenance for {silence:.0f} s"
    found = {
        "ready": words == "ok" and not server.stopping.is_set(),
        "role": server.role,
        "name": server.name,
        "queue": words,
        "maintenance": server.maintenance is not None,
        "stopping": server.stopping.is_set(),
    }
    return json_response(found, 200 if found["ready"] else 503)


@router.get("/metrics", summary="The fleet's metrics, for Prometheus", responses=METRICS)
async def metrics(request: Request, caller: ReaderDep) -> Response:
    """Names are stable between releases; docs/metrics.md lists them."""
    context, server = context_of(request), request.app.state.server
    text = ""
    if not context.queue_probe.is_down:
        with contextlib.suppress(ActionRequired):
            text = await context.cached(("metrics",), lambda: _render_metrics(context, server))
    text = text or fleet_metrics(Snapshot(at=0), server.fleet_count, reachable=False)
    text += prometheus_text(server.own_families())
    return Response(text, 200, {"Cache-Control": "no-store"}, METRICS_TYPE)


async def _render_metrics(context: ServerContext, server: Server) -> str:
    found = await context.snapshot()
    return fleet_metrics(found, server.fleet_count, await context.lifetime_counters())
