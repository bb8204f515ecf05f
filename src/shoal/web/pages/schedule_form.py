"""The forms of schedules: a new one, and other times for one that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.control import schedules as stored
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.web.api.models import NAME_PATTERN
from shoal.web.auth.access import Caller
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem, not_found
from shoal.web.pages.flash import FlashMessage, set_flash
from shoal.web.pages.queries import ContextDep, OperatorDep, page_router
from shoal.web.pages.render import render_page
from shoal.web.pages.submit import (
    EMPTY_FORM,
    MAX_FORM_BYTES,
    error_field,
    form_choices,
    printable_form,
    read_submission,
)
from shoal.web.submit import schedule_requests
from shoal.web.submit.schedule_requests import ScheduleTimes

router = page_router()
_is_name = re.compile(NAME_PATTERN).fullmatch
OVERLAPS = {"skip": "skip", "queue": "wait for it", "cancel-former": "cancel it", "allow": "start anyway"}
EMPTY_SCHEDULE = EMPTY_FORM | {"schedule": "", "cron": "0 3 * * *", "zone": "UTC", "overlap": "skip"}


@router.get("/schedules/new")
async def new_schedule(request: Request, context: ContextDep, caller: OperatorDep) -> Response:
    return await _form(request, context, caller, EMPTY_SCHEDULE, {})


@router.post("/schedules/new")
async def add_schedule(request: Request, context: ContextDep, caller: OperatorDep) -> Response:
    form = await request.form(max_part_size=MAX_FORM_BYTES)
    given = EMPTY_SCHEDULE | {name: str(form.get(name, "")) for name in EMPTY_SCHEDULE} | {"here": ""}
    errors: dict[str, str] = {}
    wanted = read_submission(given, errors)
    name, times = given["schedule"].strip(), read_times(given, errors)
    if not _is_name(name):
        errors["schedule"] = "Give a name of letters, digits, _ . and -, such as nightly."
    elif await context.queue.document(kinds.SCHEDULE, name) is not None:
        errors["schedule"] = f"There is a schedule {name} already. Choose another name."
    if wanted is None or times is None or errors:
        return await _form(request, context, caller, given, errors)
    try:
        await schedule_requests.add_schedule(context, name, times, wanted)
    except Problem as problem:
        field = "urls" if problem.kind in ("no-urls", "no-usable-url") else error_field(problem, given)
        errors[field] = ". ".join(filter(None, (problem.detail, problem.hint)))
        return await _form(request, context, caller, given, errors)
    await context.actor(caller, "page").log_action("add schedule", name)
    context.invalidate()
    response = RedirectResponse("/schedules", 303)
    set_flash(response, FlashMessage("schedule.add", name))
    return response


@router.get("/schedules/{name}/edit")
async def edit_schedule(request: Request, context: ContextDep, caller: OperatorDep, name: str) -> Response:
    if await context.queue.document(kinds.SCHEDULE, name) is None:
        raise not_found("schedule", name[:64])
    found = await stored.find(context.queue, name)
    shown = {"it": found, "OVERLAPS": OVERLAPS, "nav": "schedules"}
    return render_page(request, caller, "schedule_times.html", shown)


def read_times(given: Mapping[str, str], errors: dict[str, str]) -> ScheduleTimes | None:
    """When a form says that it fires; None where something is wrong."""
    overlap = given["overlap"]
    times = ScheduleTimes(given["cron"].strip(), given["zone"].strip() or "UTC", overlap)  # type: ignore[arg-type]
    if overlap not in OVERLAPS:
        errors["overlap"] = "Choose one of these."
    try:
        times.check()
    except UsageError as error:
        errors["zone" if "zone" in str(error) else "cron"] = f"{error}. {error.hint}"
    return None if errors else times


async def _form(
    request: Request, context: ServerContext, caller: Caller, given: Mapping[str, str], errors: Mapping[str, str]
) -> Response:
    shown: dict[str, Any] = {"given": printable_form(given), "wrong": errors, "OVERLAPS": OVERLAPS, "nav": "schedules"}
    shown |= await form_choices(context)
    return render_page(request, caller, "schedule_form.html", shown, 422 if errors else 200)
