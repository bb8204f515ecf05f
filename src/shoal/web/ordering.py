"""Ordering: a run that somebody asks for over the API, as `shoal submit` would put it into the queue."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.app import TEMPLATE
from shoal.config import Settings, beneath
from shoal.control import hooks
from shoal.control.hooks import Hook
from shoal.control.joining import worker_command
from shoal.control.runs import HERE, find_or_start, sown
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.core.url import canonical
from shoal.errors import InvalidUrl
from shoal.extract import registry
from shoal.extract.template import Template, TemplateError, from_fields, summary
from shoal.queue.base import Queue
from shoal.travelling import OF_THE_RUN, spec_settings
from shoal.view.standing import alive
from shoal.web.api import models
from shoal.web.api.templates import code_of
from shoal.web.brought import in_use
from shoal.web.door import PRIVATE_WAY, Door, run_settings
from shoal.web.problem import Problem
from shoal.web.room import Room

AT_ONCE = 500  # addresses in one question to the queue, so that others get their turn
REJECTS = 100  # that are told one by one


def check_hook(own: Settings, wanted: models.NewHook) -> str:
    """The canonical address of a hook; 422 for one that must not be asked."""
    try:
        url = canonical(wanted.url)
    except InvalidUrl as error:
        raise Problem(422, "hook-address", f"the hook's address: {error}") from None
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Problem(422, "hook-address", "a hook's address has no login in it", hint="check the signature")
    why = Door(own).refusal(url)
    if why:
        raise Problem(422, "hook-address", f"the hook's address is {why}", hint=PRIVATE_WAY)
    if wanted.secret:
        _check_secret(own, wanted.secret.lower())
    return url


def _check_secret(own: Settings, name: str) -> None:
    # Logins and the like do not sign: whoever gets the message could try out what they are.
    if not name.startswith(hooks.SIGNS):
        raise Problem(
            422,
            "not-a-hook-secret",
            f"{name} is not a secret for hooks",
            hint="those are called hook…: a long random one in [secrets] of shoal.toml; or leave it away",
        )
    if name not in own.secrets:
        raise Problem(
            422,
            "no-such-secret",
            f"this server has no secret {name}",
            hint="name it in [secrets] of shoal.toml here, or leave it away: one is made",
        )


class Placed(msgspec.Struct, frozen=True):
    """What became of an order. What only now may be shown is not in the note that is kept of it."""

    run: Run
    status: str
    added: int = 0
    known: int = 0
    rejects: tuple[dict[str, Any], ...] = ()
    rejected: int = 0
    notes: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What an order asks for, made out before anything is changed."""

    scraper: str
    spec: dict[str, Any]
    start: tuple[str, ...] = ()  # of the scraper or template itself
    max_pages: int = 0
    notes: tuple[str, ...] = ()


async def place(room: Room, order: models.NewRun, seed: str) -> Placed:
    """Start the run and add its addresses. The same seed is the same run, for ever."""
    plan = await planned(room, order)
    addresses = order.urls or list(plan.start)
    if not addresses and not order.more:
        raise Problem(
            422,
            "no-address",
            "there is no address to start from",
            hint='give urls; or {"more": true}, and POST them to /api/v1/runs/{run}/tasks',
        )
    if addresses:
        await _check_some(Door(room.settings), addresses)
    key = _key(order, seed)
    made = [
        Hook(
            _hook_id(key, number),
            check_hook(room.settings, it),
            tuple(it.events),
            it.secret,
            stalled_after=it.stalled_after,
        )
        for number, it in enumerate(order.hooks)
    ]
    if made:
        await hooks.watch(room.queue)
    spec = plan.spec | ({"hooks": [msgspec.to_builtins(hook) for hook in made]} if made else {})
    new = NewRun(plan.scraper, key, spec=spec, weight=order.weight, max_pages=plan.max_pages, once=bool(seed))
    run, found = await find_or_start(room.queue, new, fresh=False)
    if found == "ended":
        return Placed(run, run.state, notes=plan.notes, hooks=tuple(hooks.hooks_of(run)))
    door = Door(room.settings, await run_settings(room.queue, room.settings, run))
    placed = await _sow(room.queue, run, door, addresses, order.priority)
    if not order.more:
        await sown(room.queue, run.name)
    return msgspec.structs.replace(
        placed,
        status="submitted" if found == "new" else "continued",
        notes=plan.notes,
        hooks=tuple(hooks.hooks_of(run)),
    )


async def _check_some(door: Door, addresses: Sequence[str]) -> None:
    """Refuse at once what could only end with nothing done."""
    why = ""
    for number, text in enumerate(addresses, 1):
        judged = door.task(1, text)
        if isinstance(judged, Task):
            return
        why = why or judged
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    raise Problem(
        422, "no-usable-address", f"none of the addresses can be fetched; the first: {why}", hint="https://…"
    )


def _key(order: models.NewRun, seed: str) -> str:
    if seed:
        return f"api/{seed}"
    if order.key:
        return "api/" + hashlib.sha256(f"key\0{order.key}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return "api/" + secrets.token_hex(12)


def _hook_id(key: str, number: int) -> str:
    return hashlib.sha256(f"{key}/{number}".encode()).hexdigest()[:16]


async def _sow(queue: Queue, run: Run, door: Door, addresses: Sequence[str], priority: int) -> Placed:
    added = known = rejected = 0
    rejects: list[dict[str, Any]] = []
    for first in range(0, len(addresses), AT_ONCE):
        some = addresses[first : first + AT_ONCE]
        judged = [door.task(line, text, priority) for line, text in enumerate(some, first + 1)]
        tasks = [task for task in judged if isinstance(task, Task)]
        said = await queue.add(run.id, tasks, door.paces(tasks)) if tasks else []
        added, known = added + said.count("added"), known + said.count("known")
        for line, (text, made) in enumerate(zip(some, judged, strict=True), first + 1):
            if isinstance(made, str):
                rejected += 1
                if len(rejects) < REJECTS:
                    rejects.append({"line": line, "url": text[:500], "why": made})
        await asyncio.sleep(0)
    return Placed(run, "submitted", added, known, tuple(rejects), rejected)


async def planned(room: Room, order: models.NewRun) -> Plan:
    """What is wrong with an order is found here; nothing is changed yet, but its template kept."""
    if sum((order.scraper is not None, order.template is not None, bool(order.fields))) > 1:
        raise Problem(422, "said-twice", "give one of scraper, template and fields")
    asked = _asked(order.settings)
    spec: dict[str, Any] = {
        "mode": HERE if order.here else "distributed",
        "settings": spec_settings(asked),
        "each": bool(order.urls or order.more),
        "output": "",
        "start": order.urls[:10],
    }
    if order.here:
        spec["api"] = {"as": "run"}  # by this the server's own processes find it
    if order.scraper is not None:
        return await _with_code(room, order, spec, asked)
    template, paper = await _template(room.queue, order)
    travelling = {name: value for name, value in template.settings.items() if name in OF_THE_RUN}
    whole = beneath(asked, travelling, f"template {template.name}")
    spec |= {"scraper": template.name, "template": paper[0], "template_version": paper[1]}
    notes = () if order.here else await _nobody(room, "templates", template.name)
    return Plan(template.name, spec, tuple(template.start), whole.max_pages, notes)


def _asked(given: Mapping[str, Any]) -> Settings:
    """Settings that may travel; whatever else is named is refused."""
    for name in given:
        if name.replace("-", "_") not in OF_THE_RUN:
            raise Problem(
                422,
                "not-a-setting-of-a-run",
                f"settings: {name} is not a setting of a run",
                hint="known are: " + ", ".join(sorted(OF_THE_RUN)),
            )
    return beneath(Settings(), given, "settings")


async def _template(queue: Queue, order: models.NewRun) -> tuple[Template, tuple[str, int]]:
    if order.template is not None:
        await in_use(queue, order.template)
        paper = await queue.paper(TEMPLATE, order.template, order.template_version or 0)
        if paper is None:
            raise Problem(
                422,
                "no-such-template",
                f"there is no template {order.template}",
                hint=f"PUT /api/v1/templates/{order.template} keeps one",
            )
        return msgspec.json.decode(paper.text, type=Template), (paper.name, paper.version)
    name = order.name or "pages"
    try:
        template = from_fields(name, order.fields) if order.fields else summary(name)
    except TemplateError as error:
        raise Problem(
            422,
            "fields-wrong",
            str(TemplateError("fields", error.problems)),
            problems=[msgspec.to_builtins(one) for one in error.problems],
        ) from None
    text = msgspec.json.encode(template).decode()
    paper = await queue.keep_paper(TEMPLATE, name, text)
    return template, (paper.name, paper.version)


async def _with_code(room: Room, order: models.NewRun, spec: dict[str, Any], asked: Settings) -> Plan:
    """A scraper's code is with the workers; where this server has it, too, its start addresses are known."""
    name = order.scraper or ""
    if order.here:
        raise Problem(422, "here-is-for-templates", "this server itself works on templates and fields only")
    listed = (await asyncio.to_thread(code_of, room.settings)).get(name)
    spec |= {"scraper": name}
    start: tuple[str, ...] = ()
    if listed is not None:
        scraper = listed.scraper
        if scraper.mode == "single":
            raise Problem(
                422, "single", f"scraper {name} is a single one: it runs in one place, not on a fleet"
            )
        asked = beneath(asked, scraper.settings, f"scraper {name}")
        spec["code"] = {"target": name, "version": registry.version_of(scraper)}
        start = tuple(scraper.start)
    return Plan(name, spec, start, asked.max_pages, await _nobody(room, name))


async def _nobody(room: Room, *titles: str) -> tuple[str, ...]:
    """A word of warning where no worker that is alive serves it."""
    if any(set(titles) & set(mark.serves) for mark in await alive(room.queue, room.settings)):
        return ()
    return (f"No worker serves {titles[0]} yet: it waits until one does (shoal worker).",)


def command_for(room: Room, run: Run) -> str:
    return worker_command(room.settings, run)
