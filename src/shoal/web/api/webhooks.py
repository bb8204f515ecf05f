"""Hooks of the whole fleet, and what became of their messages."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from shoal.control import webhooks
from shoal.control.actions import ActionOrigin
from shoal.control.signing_key import derived_key
from shoal.control.webhooks import Delivery, Webhook
from shoal.view.formatting import iso_time
from shoal.web.api import models
from shoal.web.api.models import HookDocument, Limit, ListPage, response_docs
from shoal.web.api.paging import page_response
from shoal.web.auth.access import AdminDep, Caller, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.idempotency import IdempotencyKey, OperationResult, idempotent
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found
from shoal.web.submit.run_requests import make_hook

router = APIRouter(prefix="/api/v1/hooks", tags=["hooks"])

HookId = Annotated[str, models.Path(min_length=1, max_length=64, pattern=r"^[a-z0-9]+$")]
MAX_HOOKS = 100


@router.get("", summary="List webhooks", responses=response_docs(ListPage))
async def list_hooks(context: ContextDep, caller: ReaderDep) -> Response:
    """Those of the whole fleet; a run may have its own."""
    return page_response([hook_document(hook) for hook in await webhooks.list_webhooks(context.queue)], None)


@router.post("", summary="Add a webhook", status_code=201, responses=response_docs(HookDocument, 409, status=201))
async def add_hook(
    context: ContextDep, caller: AdminDep, request: Request, wanted: models.NewFleetHook, key: IdempotencyKey = None
) -> Response:
    """It is notified when a run ends or stalls. The key that signs its messages is shown now and
    never again."""

    async def work(seed: str) -> OperationResult:
        made = await add_checked_hook(context, caller, wanted, seed[:16] or secrets.token_hex(8))
        return await _hook_result(context, made)

    async def rebuild(note: Any) -> OperationResult:
        for hook in await webhooks.list_webhooks(context.queue):
            if hook.id == note:
                return await _hook_result(context, hook)
        raise Problem(409, "hook-removed", "the webhook of this request was removed", hint="use another key")

    return await idempotent(context, request, caller, key, work, rebuild)


async def add_checked_hook(
    context: ServerContext, caller: Caller, wanted: models.NewFleetHook, id: str, via: ActionOrigin = "api"
) -> Webhook:
    """Keep a webhook of the fleet, if it may be asked and there is room for it. Only admins may ask for one."""
    hook = make_hook(context.settings, wanted, by_admin=True)
    if len(await webhooks.list_webhooks(context.queue)) >= MAX_HOOKS:
        raise Problem(409, "too-many-hooks", f"there are {MAX_HOOKS} webhooks already", hint="remove one")
    hook = msgspec.structs.replace(hook, id=id, made_by=caller.name, scraper=wanted.scraper)
    made = await webhooks.add(context.queue, hook)
    await context.actor(caller, via).log_action("add hook", id)
    return made


async def _hook_result(context: ServerContext, hook: Webhook) -> OperationResult:
    key = None if hook.secret else await derived_key(context.queue, hook.id)
    return OperationResult(hook_document(hook) | {"secret": key}, 201, note=hook.id)


@router.patch("/{id}", summary="Change a webhook", responses=response_docs(HookDocument, 404))
async def change_hook(context: ContextDep, caller: AdminDep, id: HookId, wanted: models.HookChange) -> Response:
    """Its URL and key stay: for another one, add another webhook."""
    given = {name: value for name, value in wanted.model_dump().items() if value is not None}
    if not given:
        raise Problem(422, "missing-fields", "nothing to change", hint="events, scraper or stalled_after")
    changed = await edit_hook(context, id, given)
    await context.actor(caller).log_action("change hook", id)
    return json_response(hook_document(changed))


async def edit_hook(context: ServerContext, id: str, given: Mapping[str, Any]) -> Webhook:
    """given: fields of a webhook that were checked."""
    values = dict(given) | ({"events": tuple(given["events"])} if "events" in given else {})
    changed = await webhooks.change(context.queue, id, lambda hook: msgspec.structs.replace(hook, **values))
    if changed is None:
        raise not_found("hook", id, hint="GET /api/v1/hooks lists them")
    return changed


@router.delete("/{id}", summary="Remove a webhook", responses=response_docs(models.NameList, 404))
async def remove_hook(context: ContextDep, caller: AdminDep, id: HookId) -> Response:
    if not await webhooks.remove(context.queue, id):
        raise not_found("hook", id, hint="GET /api/v1/hooks lists them")
    await context.actor(caller).log_action("remove hook", id)
    return json_response({"names": [id], "dry_run": False})


@router.get("/deliveries", summary="Webhook deliveries", responses=response_docs(ListPage))
async def list_deliveries(
    context: ContextDep,
    caller: ReaderDep,
    hook: Annotated[str, Query(max_length=64, pattern=r"^[a-z0-9]*$")] = "",
    limit: Limit = 50,
) -> Response:
    """Newest first: waiting ones, and the last fifty that were delivered or given up."""
    found = await webhooks.recent_deliveries(context.queue, hook)
    return page_response([delivery_document(one) for one in found[:limit]], None)


def hook_document(hook: Webhook) -> dict[str, Any]:
    """What people may see of it: its URL may itself be a secret, so only the host is shown."""
    return {
        "id": hook.id,
        "url": webhooks.redacted_url(hook.url),
        "events": list(hook.events),
        "stalled_after": hook.stalled_after if "stalled" in hook.events else None,
        "scraper": hook.scraper or None,
        "signed_with": hook.secret or None,
        "made_at": iso_time(hook.made_at),
        "made_by": hook.made_by or None,
    }


def delivery_document(one: Delivery) -> dict[str, Any]:
    return {
        "id": one.id,
        "hook": one.hook.id,
        "url": webhooks.redacted_url(one.hook.url),
        "event": one.event,
        "run": one.run,
        "state": one.state,
        "tries": one.tries,
        "status": one.status or None,
        "error": one.error or None,
        "made_at": iso_time(one.made_at),
        "next_at": iso_time(one.next_at) if one.state == "waiting" else None,
        "ended_at": iso_time(one.ended_at),
    }
