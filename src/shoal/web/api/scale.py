"""The scaler: what it decided and why, and setting the number of workers; the machines workers run on."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.scaling.scale_documents import MAX_EVENTS
from shoal.view.machines import machine_views, resources_document
from shoal.view.scale import ScaleStatus, history_documents, scale_document, scale_status
from shoal.web.api.models import EventList, MachineList, ScaleDocument, ScaleRequestBody, response_docs
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1", tags=["fleet"])
EventLimit = Annotated[int, Query(ge=1, le=MAX_EVENTS, description="Maximum number of events.")]


@router.get("/scale", summary="The autoscaler", responses=response_docs(ScaleDocument))
async def show_scale(context: ContextDep, caller: ReaderDep) -> Response:
    """Who scales, what was decided last, and why; `acting` is false where nobody does."""
    return json_response(scale_document((await context.snapshot()).scale))


@router.post("/scale", summary="Set the number of workers", responses=response_docs(ScaleDocument, 409))
async def set_scale(context: ContextDep, caller: OperatorDep, wanted: ScaleRequestBody) -> Response:
    """The scaler that acts keeps to it from its next evaluation on; null lets it decide again."""
    await check_workers(context, wanted.workers)
    if not wanted.dry_run:
        await context.actor(caller).set_workers(wanted.workers)
        context.invalidate()
    return json_response(scale_document(await scale_status(context.queue)))


async def check_workers(context: ServerContext, workers: int | None) -> ScaleStatus:
    """Refuse a number that no scaler would keep to; None lets it decide."""
    status = await scale_status(context.queue)
    if workers is not None:
        if status.state is None or not status.is_acting:
            raise Problem(409, "no-scaler", "no scaler is acting: nobody would start them", hint="shoal scale auto")
        most = status.state.limits.maximum
        if workers > most:
            raise Problem(409, "above-maximum", f"the scaler may start {most}", hint="--max-workers N")
    return status


@router.get("/scale/history", summary="What the autoscaler did", responses=response_docs(EventList))
async def show_history(context: ContextDep, caller: ReaderDep, limit: EventLimit = 50) -> Response:
    """Changes and problems, the newest first, each with its reason and the load at that moment."""
    return json_response({"items": await history_documents(context.queue, limit)})


@router.get("/machines", summary="Machines with workers", responses=response_docs(MachineList))
async def list_machines(context: ContextDep, caller: ReaderDep) -> Response:
    """CPU, memory and disk of each, and how many more workers it could take."""
    found: list[dict[str, Any]] = [
        {"host": view.host} | resources_document(view.have, view.verdict, view.workers)
        for view in machine_views((await context.snapshot()).alive)
    ]
    return json_response({"items": found})
