"""Hooks of the whole fleet, and what became of their messages."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from shoal.control import hooks
from shoal.control.acting import Acting
from shoal.control.hooks import Delivery, Hook
from shoal.view.words import stamp
from shoal.web.access import Admin, Reader
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import HookDocument, Limit, Page, described
from shoal.web.api.paging import page
from shoal.web.idempotency import Done, Key, once
from shoal.web.ordering import check_hook
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/hooks", tags=["hooks"])

Id = Annotated[str, models.Path(min_length=1, max_length=64, pattern=r"^[a-z0-9]+$")]
MOST = 100


@router.get("", summary="List hooks", responses=described(Page), response_class=Response)
async def list_hooks(room: In, caller: Reader) -> Response:
    """Those of the whole fleet; a run may bring its own."""
    return page([hook_document(hook) for hook in await hooks.hooks(room.queue)], None)


@router.post(
    "",
    summary="Add a hook",
    status_code=201,
    responses=described(HookDocument, 409, status=201),
    response_class=Response,
)
async def add_hook(
    room: In, caller: Admin, request: Request, wanted: models.NewFleetHook, key: Key = None
) -> Response:
    """Told of the end of every run, or when one stalls. The key that signs its messages is shown now and
    never again."""

    async def work(seed: str) -> Done:
        url = check_hook(room.settings, wanted)
        if len(await hooks.hooks(room.queue)) >= MOST:
            raise Problem(409, "too-many-hooks", f"there are {MOST} hooks already", hint="remove one")
        id = seed[:16] or secrets.token_hex(8)
        hook = Hook(
            id,
            url,
            tuple(wanted.events),
            wanted.secret,
            made_by=caller.name,
            scraper=wanted.scraper,
            stalled_after=wanted.stalled_after,
        )
        made = await hooks.add(room.queue, hook)
        await Acting(room.queue, caller.name).did("add hook", id)
        return await _shown(room, made)

    async def again(note: Any) -> Done:
        for hook in await hooks.hooks(room.queue):
            if hook.id == note:
                return await _shown(room, hook)
        raise Problem(409, "removed", "the hook that this request made was removed", hint="another key")

    return await once(room, request, caller, key, work, again)


async def _shown(room: Room, hook: Hook) -> Done:
    key = None if hook.secret else await hooks.key_of(room.queue, hook.id)
    return Done(hook_document(hook) | {"secret": key}, 201, note=hook.id)


@router.delete(
    "/{id}", summary="Remove a hook", responses=described(models.Names, 404), response_class=Response
)
async def remove_hook(room: In, caller: Admin, id: Id) -> Response:
    if not await hooks.remove(room.queue, id):
        raise no_such("hook", id, hint="GET /api/v1/hooks lists them")
    await Acting(room.queue, caller.name).did("remove hook", id)
    return answer({"names": [id], "dry_run": False})


@router.get(
    "/deliveries", summary="What became of messages", responses=described(Page), response_class=Response
)
async def list_deliveries(
    room: In,
    caller: Reader,
    hook: Annotated[str, Query(max_length=64, pattern=r"^[a-z0-9]*$")] = "",
    limit: Limit = 50,
) -> Response:
    """Newest first: those that wait, and the last fifty that were delivered or given up."""
    found = await hooks.deliveries(room.queue, hook)
    return page([delivery_document(one) for one in found[:limit]], None)


def hook_document(hook: Hook) -> dict[str, Any]:
    """What people may see of it: its address may itself be a secret, so only the host is shown."""
    return {
        "id": hook.id,
        "url": hooks.shown(hook.url),
        "events": list(hook.events),
        "stalled_after": hook.stalled_after if "stalled" in hook.events else None,
        "scraper": hook.scraper or None,
        "signed_with": hook.secret or None,
        "made_at": stamp(hook.made_at),
        "made_by": hook.made_by or None,
    }


def delivery_document(one: Delivery) -> dict[str, Any]:
    return {
        "id": one.id,
        "hook": one.hook.id,
        "url": hooks.shown(one.hook.url),
        "event": one.event,
        "run": one.run,
        "state": one.state,
        "tries": one.tries,
        "status": one.status or None,
        "error": one.error or None,
        "made_at": stamp(one.made_at),
        "next_at": stamp(one.next_at) if one.state == "waiting" else None,
        "ended_at": stamp(one.ended_at),
    }
