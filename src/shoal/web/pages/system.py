"""System: the queue behind it all, the settings in force, tokens and what was done lately."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.app import place_words
from shoal.checkup import examine
from shoal.config import SETTINGS, Settings
from shoal.control import acting
from shoal.control.acting import Acting
from shoal.logs import redact
from shoal.queue.base import Finding
from shoal.view.report import kept_words, report, skew, versions
from shoal.web import tokens
from shoal.web.access import Admin
from shoal.web.api.advice import advice_of
from shoal.web.pages.look import In, Reader, pages, snapshot
from shoal.web.pages.render import page, plain
from shoal.web.room import Room

router = pages()
CHECK_KEPT = 60.0  # seconds: a check-up reads the whole file of a queue
CHECK_WAITED = 5.0  # for it, then the page comes without


@router.get("/settings")
async def system(request: Request, room: In, caller: Reader, check: bool = False) -> Response:
    async def gather() -> dict[str, Any]:
        known = await tokens.known(room.queue) if caller.may("admin") else ()
        actions, _ = await room.once(("actions",), lambda: acting.actions(room.queue))
        return await _condition(room, check) | {
            "settings": effective(room.settings),
            "secrets": sorted(room.settings.secrets),
            "bound": room.settings.bound,
            "tokens": [it.document() | {"made": it.made_at} for it in known],
            "own_token": bool(room.settings.token),
            "actions": actions,
        }

    return await page(request, caller, "system.html", gather, nav="settings")


async def _condition(room: Room, check: bool) -> dict[str, Any]:
    """The queue, its workers and how many there should be; the same as a text to copy."""
    found, settings, promises = await snapshot(room), room.settings, room.queue.promises
    scale = (await advice_of(room))["autoscale"]
    findings = await _findings(room) if check else ()
    place, apart, answers = (
        place_words(settings),
        await room.queue.now() / 1e6 - time.time(),
        await _ping(room),
    )
    return {
        "as_of": found.at,
        "now": found.at,
        "place": place,
        "store": redact(settings.store) if settings.store else "",
        "promises": promises,
        "apart": apart,
        "answers": answers,
        "kept": kept_words(settings),
        "skew": skew(found.alive),
        "by_version": versions(found.alive),
        "scale": scale,
        "check": check,
        "findings": findings,
        "report": report(
            found, settings, promises, scale, place=place, apart=apart, answers=answers, findings=findings
        ),
    }


async def _ping(room: Room) -> float:
    """Seconds that a small question to the queue takes."""
    began = time.perf_counter()
    await room.queue.runs(limit=1)
    return time.perf_counter() - began


@router.post("/settings/tokens")
async def make_token(request: Request, room: In, caller: Admin) -> Response:
    """The one page that shows a token; only its digest is kept."""
    form = await request.form()
    name, scope = str(form.get("name", ""))[:100].strip(), str(form.get("scope", ""))[:20]
    made, text = await tokens.add(room.queue, name, (scope,), caller.name)
    room.gate.touched()
    await Acting(room.queue, caller.name).did("add token", name)
    room.touched()
    return plain(request, caller, "token.html", {"made": made, "text": text, "nav": "settings"})


async def _findings(room: Room) -> tuple[Finding, ...]:
    """What `shoal doctor` would say; found out beside, for it would hold up everybody else."""

    async def ask() -> tuple[Finding, ...]:
        report = await asyncio.to_thread(lambda: asyncio.run(examine(room.settings)))
        return report.findings

    try:
        async with asyncio.timeout(CHECK_WAITED):
            return await room.once(("doctor",), ask, fresh=CHECK_KEPT)
    except TimeoutError:
        return ()


def effective(settings: Settings) -> dict[str, list[tuple[str, str, str, str]]]:
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
