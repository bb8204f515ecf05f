"""Hosts: their pace and backlog, and what people decide about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control import actions, host_actions
from shoal.core.lane import LaneState, host_of_lane
from shoal.core.task import LaneChange
from shoal.queue.host_blocks import mark_content
from shoal.view.blocks import block_document, host_blocks, page_number
from shoal.view.documents import host_document
from shoal.web.api import models
from shoal.web.api.models import (
    BlockPageName,
    Cursor,
    HostBlocks,
    HostDocument,
    HostList,
    HostName,
    Limit,
    ListPage,
    response_docs,
)
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1/hosts", tags=["hosts"])


@router.get("", summary="List hosts", responses=response_docs(ListPage, 404))
async def list_hosts(
    context: ContextDep,
    caller: ReaderDep,
    run: Annotated[str, models.line_query(200, "Only those of a run.")] = "",
    like: Annotated[str, models.line_query(300, "A part of the name.")] = "",
    only: Annotated[
        Literal["", "parked", "held", "overridden"],
        Query(description="Parked; held (parked included); or with limits set by a person."),
    ] = "",
    order: Annotated[
        Literal["ready", "name"], Query(description="Most waiting pages first (one page only), or by name (paged).")
    ] = "ready",
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """Thousands of hosts are paged through by name; the busiest come first without paging."""
    after = read_cursor("hosts", cursor_, str) or ""
    if after:
        order = "name"
    chosen = await context.find_run(run) if run else None

    async def load() -> tuple[list[dict[str, Any]], str | None]:
        found = await context.queue.lanes(
            run=chosen.id if chosen else None, limit=limit + 1, order=order, after=after, like=like.lower(), only=only
        )
        now = await context.queue.now()
        more = len(found) > limit and order == "name"
        shown = found[:limit]
        return [host_document(lane, now) for lane in shown], make_cursor("hosts", shown[-1].name) if more else None

    key = ("hosts", chosen.id if chosen else 0, like, only, order, after, limit)
    items, next = await context.cached(key, load)
    return page_response(items, next)


async def _find_host(context: ServerContext, named: str) -> LaneState:
    found = await actions.find_host(context.queue, named)
    if found is None:
        near = [lane.name for lane in await context.queue.lanes(like=named.lower(), limit=3)]
        hint = f"did you mean {' or '.join(near)}?" if near else "GET /api/v1/hosts lists them"
        raise not_found("host", named, hint=hint)
    return found


async def _host_response(context: ServerContext, name: str) -> Response:
    return json_response(host_document(await _find_host(context, name), await context.queue.now()))


@router.get("/{host}", summary="One host", responses=response_docs(HostDocument, 404))
async def show_host(context: ContextDep, caller: ReaderDep, host: HostName) -> Response:
    return await _host_response(context, host)


@router.get("/{host}/blocks", summary="Block pages of a host", responses=response_docs(HostBlocks, 404))
async def list_blocks(context: ContextDep, caller: ReaderDep, host: HostName) -> Response:
    """Captcha, consent and login pages that it gives with status 200, and how many came by which fetcher and exit."""
    found = await _find_host(context, host)
    return json_response(block_document(await host_blocks(context.queue, found.name)))


@router.post(
    "/{host}/blocks/{page}/accept", summary="Say that a page is no block", responses=response_docs(HostBlocks, 404)
)
async def accept_block(context: ContextDep, caller: OperatorDep, host: HostName, page: BlockPageName) -> Response:
    """Such pages count from now on."""
    found = await _find_host(context, host)
    name = host_of_lane(found.name)
    if not await mark_content(context.queue, name, page_number(page)):
        raise not_found("block page", page, hint=f"GET /api/v1/hosts/{name}/blocks lists them")
    await context.actor(caller).log_action("accept block page", name, page=page)
    context.invalidate()
    return json_response(block_document(await host_blocks(context.queue, name)))


@router.post("/{host}/park", summary="Park a host", responses=response_docs(HostDocument, 404))
async def park(
    context: ContextDep, caller: OperatorDep, host: HostName, change: models.ParkRequest | None = None
) -> Response:
    """For a while, or until it is released; its pages wait. Applies to all runs and workers, at once."""
    found = await _find_host(context, host)
    change = change or models.ParkRequest.model_validate({})
    await context.actor(caller).park(found.name, change.seconds, change.reason)
    context.invalidate()
    return await _host_response(context, found.name)


@router.post("/{host}/release", summary="Release a host", responses=response_docs(HostDocument, 404))
async def release(context: ContextDep, caller: OperatorDep, host: HostName) -> Response:
    found = await _find_host(context, host)
    await context.actor(caller).release(found.name)
    context.invalidate()
    return await _host_response(context, found.name)


@router.post("/{host}/forget", summary="Forget what was learnt of a host", responses=response_docs(HostDocument, 404))
async def forget(context: ContextDep, caller: OperatorDep, host: HostName) -> Response:
    """Slower paces, holds, and parks for failures; what people set or parked until released stays."""
    found = await _find_host(context, host)
    change = host_actions.change_for(host_actions.forget_change(), found, await context.queue.now())
    await context.actor(caller).change_lane("forget", change)
    context.invalidate()
    return await _host_response(context, found.name)


@router.post("/{host}/pace", summary="Set a host's rate limits", responses=response_docs(HostDocument, 404))
async def pace(context: ContextDep, caller: OperatorDep, host: HostName, change: models.PaceRequest) -> Response:
    """For all runs and workers, overriding their own limits."""
    spacing, limit = _pace_of(change)
    found = await _find_host(context, host)
    await context.actor(caller).pace(found.name, spacing=spacing, limit=limit)
    context.invalidate()
    return await _host_response(context, found.name)


def _pace_of(change: models.PaceRequest) -> tuple[float | None, int | None]:
    given = [it for it in (change.delay, change.rate, change.in_flight) if it is not None]
    if change.reset:
        if given:
            raise Problem(422, "conflicting-fields", "reset cannot be combined with other limits")
        return -1.0, -1
    if not given:
        raise Problem(422, "missing-fields", "nothing to set", hint="delay, rate, in_flight or reset")
    if change.delay is not None and change.rate is not None:
        raise Problem(422, "conflicting-fields", "delay and rate conflict", hint="keep one")
    return (1.0 / change.rate if change.rate is not None else change.delay), change.in_flight


@router.post("/park", summary="Park many hosts", responses=response_docs(HostList))
async def park_many(context: ContextDep, caller: OperatorDep, which: models.ParkHostsRequest) -> Response:
    """All that match, in steps; if there are too many for one request, `next` continues."""
    return await _change_many(context, caller, which, host_actions.park_change(which.seconds, which.reason))


@router.post("/release", summary="Release many hosts", responses=response_docs(HostList))
async def release_many(context: ContextDep, caller: OperatorDep, which: models.HostSelection) -> Response:
    """All that are held back and match, in steps."""
    return await _change_many(context, caller, which, host_actions.release_change())


@router.post("/forget", summary="Forget what was learnt of many hosts", responses=response_docs(HostList))
async def forget_many(context: ContextDep, caller: OperatorDep, which: models.HostSelection) -> Response:
    """All of which something was learnt and that match, in steps."""
    return await _change_many(context, caller, which, host_actions.forget_change())


@router.post("/pace", summary="Set the rate limits of many hosts", responses=response_docs(HostList))
async def pace_many(context: ContextDep, caller: OperatorDep, which: models.PaceHostsRequest) -> Response:
    """All that match, in steps; `reset` changes those with limits set by a person."""
    return await _change_many(context, caller, which, host_actions.pace_change(*_pace_of(which)))


async def _change_many(
    context: ServerContext, caller: Caller, which: models.HostSelection, change: LaneChange
) -> Response:
    if bool(which.like or which.only or which.hosts) == which.all:
        raise Problem(
            422, "filter-required", "no filter: give like, only or hosts", hint='{"all": true} means every host'
        )
    names = tuple(dict.fromkeys(actions.parse_host(name) for name in which.hosts))
    chosen = host_actions.HostSelection(which.like, which.only, names)
    if which.dry_run:
        found = await host_actions.count_hosts(context.queue, chosen, change, after=which.after)
    else:
        found = await host_actions.change_hosts(context.queue, context.actor(caller), chosen, change, after=which.after)
        context.invalidate()
    return json_response(
        {
            "names": found.names,
            "count": found.count,
            "more": bool(found.next),
            "next": found.next or None,
            "dry_run": which.dry_run,
        }
    )
