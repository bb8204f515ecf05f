"""The forms of the fleet's webhooks: a new one, whose key is shown once, and what one is told of."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import pydantic
from fastapi import Request
from starlette.responses import Response

from shoal.control import webhooks
from shoal.control.signing_key import SIGNING_NAME_PREFIX, derived_key
from shoal.control.webhooks import Webhook
from shoal.web.api import models
from shoal.web.api.webhooks import add_checked_hook, hook_document
from shoal.web.auth.access import AdminDep, Caller
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem, not_found
from shoal.web.pages.queries import ContextDep, page_router
from shoal.web.pages.render import render_page

router = page_router()
EVENTS = {
    "finished": "a run ends",
    "failed": "it ends with dead letters",
    "cancelled": "it is cancelled",
    "stalled": "it makes no progress",
}
EMPTY_HOOK = {"url": "", "events": "finished failed cancelled", "scraper": "", "stalled_after": "600", "secret": ""}


@router.get("/settings/hooks/new")
async def new_hook(request: Request, context: ContextDep, caller: AdminDep) -> Response:
    return _form(request, context, caller, EMPTY_HOOK, "")


@router.post("/settings/hooks/new")
async def add_hook(request: Request, context: ContextDep, caller: AdminDep) -> Response:
    form = await request.form()
    given = {name: str(form.get(name, ""))[:8_192] for name in EMPTY_HOOK}
    given["events"] = " ".join(event for event in EVENTS if form.get(f"on_{event}"))
    try:
        wanted = models.NewFleetHook(url=given["url"].strip(), secret=given["secret"].strip(), **read_hook(given))
        made = await add_checked_hook(context, caller, wanted, secrets.token_hex(8), "page")
    except Problem as problem:
        return _form(request, context, caller, given, ". ".join(filter(None, (problem.detail, problem.hint))))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        return _form(request, context, caller, given, f"{first['loc'][0]}: {first['msg']}")
    context.invalidate()
    key = "" if made.secret else await derived_key(context.queue, made.id)
    shown = {"hook": hook_document(made), "key": key, "nav": "settings"}
    return render_page(request, caller, "hook.html", shown)


@router.get("/settings/hooks/{id}")
async def edit_hook(request: Request, context: ContextDep, caller: AdminDep, id: str) -> Response:
    known = {hook.id: hook for hook in await webhooks.list_webhooks(context.queue)}
    if id not in known:
        raise not_found("hook", id[:40])
    return _form(request, context, caller, _given(known[id]), "", known[id])


def read_hook(fields: Mapping[str, str]) -> dict[str, Any]:
    """What a form says of a webhook besides its URL, checked as the API checks it; events are words, or ticked."""
    ticked = [event for event in EVENTS if fields.get(f"on_{event}")]
    events = ticked or fields.get("events", "").split()
    try:
        wanted = models.HookChange.model_validate(
            {
                "events": events,
                "scraper": fields.get("scraper", "").strip(),
                "stalled_after": fields.get("stalled_after", "").strip() or 600,
            }
        )
    except pydantic.ValidationError as error:
        name, message = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        said = "choose at least one event" if name == "events" else f"{str(name).replace('_', ' ')}: {message}"
        raise Problem(422, "invalid-hook", said, hint="go back and correct it") from None
    return wanted.model_dump()


def _given(hook: Webhook) -> dict[str, str]:
    return {
        "url": webhooks.redacted_url(hook.url),
        "events": " ".join(hook.events),
        "scraper": hook.scraper,
        "stalled_after": f"{hook.stalled_after:g}",
        "secret": hook.secret,
    }


def _form(
    request: Request,
    context: ServerContext,
    caller: Caller,
    given: Mapping[str, str],
    wrong: str,
    hook: Webhook | None = None,
) -> Response:
    names = [name for name in context.settings.secrets if name.lower().startswith(SIGNING_NAME_PREFIX)]
    shown = {"given": given, "wrong": wrong, "hook": hook, "EVENTS": EVENTS, "secret_names": names, "nav": "settings"}
    return render_page(request, caller, "hook_form.html", shown, 422 if wrong else 200)
