"""System: the queue behind it all, the settings in force, tokens and what was done lately."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.app import queue_label
from shoal.config.load import SETTINGS, Settings
from shoal.config.queue_token import server_token
from shoal.control import webhooks
from shoal.control.actions import recent_actions
from shoal.control.webhooks import Delivery, Webhook
from shoal.errors import ActionRequired
from shoal.logs import redact
from shoal.queue.base import Finding
from shoal.view.doctor import run_checks
from shoal.view.rabbitmq import broker_status, has_broker
from shoal.view.report import count_versions, format_retention, system_report, version_skew
from shoal.web.api.advice import advice_of
from shoal.web.auth import tokens
from shoal.web.auth.access import AdminDep
from shoal.web.context import ServerContext
from shoal.web.pages.queries import ContextDep, ReaderDep, page_router
from shoal.web.pages.render import page, render_page

router = page_router()
CHECK_MAX_AGE = 60.0  # seconds: a check-up reads the whole file of a queue
BROKER_MAX_AGE = 5.0  # so often RabbitMQ makes new figures
CHECK_TIMEOUT = 5.0  # for it, then the page comes without


@router.get("/settings")
async def system(request: Request, context: ContextDep, caller: ReaderDep, check: bool = False) -> Response:
    async def gather() -> dict[str, Any]:
        known = await tokens.list_tokens(context.queue) if caller.has_scope("admin") else ()
        actions, _ = await context.cached(("actions",), lambda: recent_actions(context.queue))
        return await _system_state(context, check) | {
            "settings": effective_settings(context.settings),
            "secrets": sorted(context.settings.secrets),
            "bound": context.settings.secret_hosts,
            "tokens": [it.document() | {"made": it.made_at} for it in known],
            "own_token": bool(server_token(context.settings)),
            "actions": actions,
            "hooks": await _hooks(context),
            "broker": await _broker(context),
        }

    return await page(request, caller, "system.html", gather, nav="settings")


async def _broker(context: ServerContext) -> dict[str, Any] | None:
    """RabbitMQ's queues, or why they are not to be seen; None where there is no broker."""
    if not has_broker(context.settings):
        return None

    async def load() -> dict[str, Any]:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                return {"status": await broker_status(context.settings)}
        except TimeoutError:
            return {"problem": "RabbitMQ's management does not answer", "hint": "reload the page in a few seconds"}
        except ActionRequired as error:
            return {"problem": str(error), "hint": error.hint}

    return await context.cached(("broker",), load, max_age=BROKER_MAX_AGE)


async def _hooks(context: ServerContext) -> list[tuple[Webhook, Delivery | None]]:
    """Each with what became of its last message."""
    latest: dict[str, Delivery] = {}
    for one in await webhooks.recent_deliveries(context.queue):
        latest.setdefault(one.hook.id, one)
    return [(hook, latest.get(hook.id)) for hook in await webhooks.list_webhooks(context.queue)]


async def _system_state(context: ServerContext, check: bool) -> dict[str, Any]:
    """The queue, its workers and how many there should be; the same as a text to copy."""
    found, settings, promises = await context.snapshot(), context.settings, context.queue.promises
    scale = (await advice_of(context))["autoscale"]
    findings = await _findings(context) if check else ()
    apart = await context.queue.now() / 1e6 - time.time()
    place, answers = queue_label(settings), await _ping(context)
    return {
        "as_of": found.at,
        "now": found.at,
        "place": place,
        "store": redact(settings.store) if settings.store else "",
        "promises": promises,
        "apart": apart,
        "answers": answers,
        "kept": format_retention(settings),
        "skew": version_skew(found.alive),
        "by_version": count_versions(found.alive),
        "scale": scale,
        "check": check,
        "findings": findings,
        "report": system_report(
            found, settings, promises, scale, place=place, apart=apart, answers=answers, findings=findings
        ),
    }


async def _ping(context: ServerContext) -> float:
    """Seconds that a small question to the queue takes."""
    began = time.perf_counter()
    await context.queue.runs(limit=1)
    return time.perf_counter() - began


@router.post("/settings/tokens")
async def create_token(request: Request, context: ContextDep, caller: AdminDep) -> Response:
    """The one page that shows a token; only its digest is kept."""
    form = await request.form()
    name, scope = str(form.get("name", ""))[:100].strip(), str(form.get("scope", ""))[:20]
    made, text = await tokens.add(context.queue, name, (scope,), caller.name)
    context.authenticator.invalidate()
    await context.actor(caller, "page").log_action("add token", name)
    context.invalidate()
    return render_page(request, caller, "token.html", {"made": made, "text": text, "nav": "settings"})


async def _findings(context: ServerContext) -> tuple[Finding, ...]:
    """What `shoal doctor` would say; found out beside, for it would hold up everybody else."""

    async def load() -> tuple[Finding, ...]:
        report = await asyncio.to_thread(lambda: asyncio.run(run_checks(context.settings)))
        return report.findings

    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await context.cached(("doctor",), load, max_age=CHECK_MAX_AGE)
    except TimeoutError:
        return ()


def effective_settings(settings: Settings) -> dict[str, list[tuple[str, str, str, str]]]:
    """By section: name, value, where it was given, what it is for. Secrets are never shown."""
    made: dict[str, list[tuple[str, str, str, str]]] = {}
    for name, declared in SETTINGS.items():
        value = getattr(settings, name)
        text = "set, hidden" if declared.hidden and value else redact(_text(value))
        source = settings.sources.get(name, "default")
        made.setdefault(declared.section, []).append((name, text, source, declared.help))
    return made


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value) if value not in ("", None) else "–"
