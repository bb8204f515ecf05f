"""Advice: the fleet at one moment, what to do about it, and how many workers there should be."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.view.advice import advice_listing, advise, autoscale, dead_of
from shoal.view.capacity import LATELY, TARGET
from shoal.web.access import Reader
from shoal.web.answer import answer
from shoal.web.api.models import Given, described
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["fleet"])

Target = Annotated[
    float,
    Query(
        ge=1, le=30 * 86_400, allow_inf_nan=False, description="Seconds in which what waits should be done."
    ),
]


class FleetDocument(Given):
    at: str
    pages_per_second: float
    totals: dict[str, Any]
    runs: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    hosts: list[dict[str, Any]]


class AdviceDocument(Given):
    desired_workers: int
    autoscale: dict[str, Any]
    advice: list[dict[str, Any]]


class AutoscaleDocument(Given):
    desired_workers: int


@router.get(
    "/fleet", summary="The whole fleet now", responses=described(FleetDocument), response_class=Response
)
async def show_fleet(room: In, caller: Reader) -> Response:
    """Runs that go on, workers, busy and parked hosts, and how fast it goes."""
    return answer(await room.hub.fleet())


@router.get(
    "/advice", summary="What to do next", responses=described(AdviceDocument), response_class=Response
)
async def show_advice(room: In, caller: Reader, target: Target = TARGET) -> Response:
    """Most pressing first, each with the figures behind it and the calls that do it."""
    return answer(await advice_of(room, target))


async def advice_of(room: Room, target: float = TARGET) -> dict[str, Any]:
    """What to do, at most a second old."""

    async def ask() -> dict[str, Any]:
        snapshot, series = await room.snapshot(), await room.history.read(LATELY)
        said = advise(snapshot, series, target=target, dead=await dead_of(room.queue, snapshot))
        return advice_listing(snapshot, said, autoscale(snapshot, series, target=target))

    return await room.once(("advice", target), ask)


@router.get(
    "/autoscale",
    summary="How many workers there should be",
    responses=described(AutoscaleDocument),
    response_class=Response,
)
async def show_autoscale(room: In, caller: Reader, target: Target = TARGET) -> Response:
    """For whoever starts and stops them."""
    snapshot, series = await room.snapshot(), await room.history.read(LATELY)
    return answer(autoscale(snapshot, series, target=target))
