"""Hosts: their pace and backlog, and what people decide about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import acting, hosting
from shoal.control.acting import Acting
from shoal.core.lane import LaneState
from shoal.core.task import LaneChange
from shoal.view.documents import host_document
from shoal.web.access import Caller, Operator, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Cursor, HostDocument, HostName, Hosts, Limit, Page, described
from shoal.web.api.paging import cursor, page, place
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/hosts", tags=["hosts"])


@router.get("", summary="List hosts", responses=described(Page, 404), response_class=Response)
async def list_hosts(
    room: In,
    caller: Reader,
    run: Annotated[str, Query(max_length=200, pattern=models.LINE, description="Only those of a run.")] = "",
    like: Annotated[str, Query(max_length=300, pattern=models.LINE, description="A part of the name.")] = "",
    only: Annotated[
        Literal["", "parked", "held", "ruled"],
        Query(description="Parked; held back, too; or with a pace that a person set."),
    ] = "",
    order: Annotated[
        Literal["ready", "name"],
        Query(description="The most waiting first, which is one page only; or by name, page by page."),
    ] = "ready",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Thousands of hosts are paged through by name; the busiest come first without paging."""
    after = place("hosts", cursor_, str) or ""
    if after:
        order = "name"
    chosen = await room.run(run) if run else None

    async def ask() -> tuple[list[dict[str, Any]], str | None]:
        found = await room.queue.lanes(
            run=chosen.id if chosen else None,
            limit=limit + 1,
            order=order,
            after=after,
            like=like.lower(),
            only=only,
        )
        now = await room.queue.now()
        more = len(found) > limit and order == "name"
        shown = found[:limit]
        return [host_document(lane, now) for lane in shown], cursor("hosts", shown[-1].name) if more else None

    key = ("hosts", chosen.id if chosen else 0, like, only, order, after, limit)
    items, next = await room.once(key, ask)
    return page(items, next)


async def _host(room: Room, named: str) -> LaneState:
    found = await acting.host(room.queue, named)
    if found is None:
        near = [lane.name for lane in await room.queue.lanes(like=named.lower(), limit=3)]
        hint = f"did you mean {' or '.join(near)}?" if near else "GET /api/v1/hosts lists those there are"
        raise no_such("host", named, hint=hint)
    return found


async def _shown(room: Room, name: str) -> Response:
    return answer(host_document(await _host(room, name), await room.queue.now()))


@router.get("/{host}", summary="One host", responses=described(HostDocument, 404), response_class=Response)
async def show_host(room: In, caller: Reader, host: HostName) -> Response:
    return await _shown(room, host)


@router.post(
    "/{host}/park",
    summary="Send a host no requests",
    responses=described(HostDocument, 404),
    response_class=Response,
)
async def park(room: In, caller: Operator, host: HostName, how: models.Parking | None = None) -> Response:
    """For a while, or until it is released; its pages wait. Holds for all runs and workers, at once."""
    found = await _host(room, host)
    how = how or models.Parking.model_validate({})
    await Acting(room.queue, caller.name).park(found.name, how.seconds, how.reason)
    room.touched()
    return await _shown(room, found.name)


@router.post(
    "/{host}/release",
    summary="Let requests go to a host again",
    responses=described(HostDocument, 404),
    response_class=Response,
)
async def release(room: In, caller: Operator, host: HostName) -> Response:
    found = await _host(room, host)
    await Acting(room.queue, caller.name).release(found.name)
    room.touched()
    return await _shown(room, found.name)


@router.post(
    "/{host}/pace",
    summary="Set a host's pace and limit",
    responses=described(HostDocument, 404),
    response_class=Response,
)
async def pace(room: In, caller: Operator, host: HostName, how: models.Pacing) -> Response:
    """For all runs and workers, in place of what they ask for."""
    spacing, limit = _pace_of(how)
    found = await _host(room, host)
    await Acting(room.queue, caller.name).pace(found.name, spacing=spacing, limit=limit)
    room.touched()
    return await _shown(room, found.name)


def _pace_of(how: models.Pacing) -> tuple[float | None, int | None]:
    given = [it for it in (how.delay, how.rate, how.in_flight) if it is not None]
    if how.reset:
        if given:
            raise Problem(422, "reset-stands-alone", "reset takes back what was set, and stands alone")
        return -1.0, -1
    if not given:
        raise Problem(422, "say-what", "say what to set", hint="delay, rate, in_flight or reset")
    if how.delay is not None and how.rate is not None:
        raise Problem(422, "said-twice", "delay and rate say the same thing twice", hint="keep one")
    return (1.0 / how.rate if how.rate is not None else how.delay), how.in_flight


@router.post("/park", summary="Park many hosts", responses=described(Hosts), response_class=Response)
async def park_many(room: In, caller: Operator, which: models.ParkHosts) -> Response:
    """All that match, in steps; where there are too many for one request, `next` says how to go on."""
    return await _many(room, caller, which, hosting.parking(which.seconds, which.reason))


@router.post("/release", summary="Release many hosts", responses=described(Hosts), response_class=Response)
async def release_many(room: In, caller: Operator, which: models.HostFilter) -> Response:
    """All that are held back and match, in steps."""
    return await _many(room, caller, which, hosting.releasing())


@router.post(
    "/pace",
    summary="Set the pace and limit of many hosts",
    responses=described(Hosts),
    response_class=Response,
)
async def pace_many(room: In, caller: Operator, which: models.PaceHosts) -> Response:
    """All that match, in steps; `reset` changes those for which a person had set something."""
    return await _many(room, caller, which, hosting.pacing(*_pace_of(which)))


async def _many(room: Room, caller: Caller, which: models.HostFilter, change: LaneChange) -> Response:
    if bool(which.like or which.only or which.hosts) == which.all:
        raise Problem(
            422,
            "say-which",
            "say which hosts: like, only or hosts",
            hint='{"all": true} means every host, and stands alone',
        )
    names = tuple(dict.fromkeys(acting.host_word(name) for name in which.hosts))
    chosen = hosting.Which(which.like, which.only, names)
    if which.dry_run:
        found = await hosting.count(room.queue, chosen, change, after=which.after)
    else:
        found = await hosting.change_hosts(room.queue, caller.name, chosen, change, after=which.after)
        room.touched()
    return answer(
        {
            "names": found.names,
            "count": found.count,
            "more": bool(found.next),
            "next": found.next or None,
            "dry_run": which.dry_run,
        }
    )
