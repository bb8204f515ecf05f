"""Advice: the fleet at one moment, what to do about it, and how many workers there should be."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.core.scaling import TARGET
from shoal.view.advice import autoscale, dead_groups_by_run, recommend, recommendations_document
from shoal.view.capacity import RECENT_SECONDS
from shoal.web.api.models import ExtensibleModel, response_docs
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response

router = APIRouter(prefix="/api/v1", tags=["fleet"])

Target = Annotated[
    float, Query(ge=1, le=30 * 86_400, allow_inf_nan=False, description="Target time in seconds for what is waiting.")
]


class FleetDocument(ExtensibleModel):
    at: str
    pages_per_second: float
    totals: dict[str, Any]
    runs: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    hosts: list[dict[str, Any]]


class AdviceDocument(ExtensibleModel):
    desired_workers: int
    autoscale: dict[str, Any]
    advice: list[dict[str, Any]]


class AutoscaleDocument(ExtensibleModel):
    desired_workers: int


@router.get("/fleet", summary="The whole fleet now", responses=response_docs(FleetDocument))
async def show_fleet(context: ContextDep, caller: ReaderDep) -> Response:
    """Unfinished runs, workers, busy and parked hosts, and throughput."""
    return json_response(await context.hub.fleet_status())


@router.get("/advice", summary="What to do next", responses=response_docs(AdviceDocument))
async def show_advice(context: ContextDep, caller: ReaderDep, target: Target = TARGET) -> Response:
    """Most urgent first, each with its figures and the API calls that do it."""
    return json_response(await advice_of(context, target))


async def advice_of(context: ServerContext, target: float = TARGET) -> dict[str, Any]:
    """What to do, at most a second old."""

    async def load() -> dict[str, Any]:
        snapshot, series = await context.snapshot(), await context.history.read(RECENT_SECONDS)
        advice = recommend(snapshot, series, target=target, dead=await dead_groups_by_run(context.queue, snapshot))
        return recommendations_document(snapshot, advice, autoscale(snapshot, series, target=target))

    return await context.cached(("advice", target), load)


@router.get("/autoscale", summary="How many workers there should be", responses=response_docs(AutoscaleDocument))
async def show_autoscale(context: ContextDep, caller: ReaderDep, target: Target = TARGET) -> Response:
    """For autoscalers."""
    snapshot, series = await context.snapshot(), await context.history.read(RECENT_SECONDS)
    return json_response(autoscale(snapshot, series, target=target))
