"""Submit: URLs and what to take from them, from a form; what is wrong is said beside its field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.control.join_command import join_command
from shoal.core import units
from shoal.core.routes import route_lines
from shoal.errors import UsageError
from shoal.web.api import models
from shoal.web.api.templates import named_templates, scrapers
from shoal.web.auth.access import Caller
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem
from shoal.web.pages.queries import ContextDep, OperatorDep, page_router
from shoal.web.pages.render import render_page, segment
from shoal.web.pages.text import printable
from shoal.web.submit import run_requests

router = page_router()
MAX_URLS = models.MAX_URLS
EMPTY_FORM = {
    "urls": "", "what": "fields", "fields": "title = title::text", "scraper": "", "template": "", "name": "",
    "rate": "", "max_pages": "", "routes": "", "priority": "0", "here": "", "sitemap": "",
}  # fmt: skip
TYPED_FIELDS = ("urls", "fields", "name", "rate", "max_pages", "routes", "priority")
MAX_FORM_BYTES = 4_000_000


@router.get("/submit")
async def submit(request: Request, context: ContextDep, caller: OperatorDep) -> Response:
    given = EMPTY_FORM | {
        name: request.query_params[name][:2_000] for name in EMPTY_FORM if name in request.query_params
    }
    return await _form(request, context, caller, given, {})


@router.post("/submit")
async def submit_form(request: Request, context: ContextDep, caller: OperatorDep) -> Response:
    form = await request.form(max_part_size=MAX_FORM_BYTES)
    given = EMPTY_FORM | {name: str(form.get(name, "")) for name in EMPTY_FORM}
    errors: dict[str, str] = {}
    submission = read_submission(given, errors)
    if submission is None:
        return await _form(request, context, caller, given, errors)
    try:
        submitted_run = await run_requests.submit_run(context, submission, "")
    except Problem as problem:
        field = "urls" if problem.kind == "no-urls" else given["what"] if "template" in problem.kind else ""
        hint = "" if problem.hint.startswith("give ") else problem.hint
        errors[field or error_field(problem, given)] = ". ".join(filter(None, (problem.detail, hint)))
        return await _form(request, context, caller, given, errors)
    await context.actor(caller, "page").log_action("submit", submitted_run.run.name, urls=submitted_run.added)
    context.invalidate()
    if submission.here:
        context.worker_pool.wake()
    if submitted_run.rejected:
        shown = {
            "submitted_run": submitted_run,
            "nav": "runs",
            "command": join_command(context.settings, submitted_run.run),
        }
        return render_page(request, caller, "submitted.html", shown)
    return RedirectResponse(f"/runs/{segment(submitted_run.run.name)}", 303)


def error_field(problem: Problem, given: Mapping[str, str]) -> str:
    """The field to show an error at that the submission as a whole has."""
    for name in ("rate", "max_pages"):
        if name in problem.detail and problem.kind != "invalid-fields":
            return name
    return given["what"] if given["what"] in ("scraper", "template") else "fields"


def read_submission(given: Mapping[str, str], errors: dict[str, str]) -> models.RunSubmission | None:
    """What the form asks for; None where something in it is wrong."""
    urls = [line.strip() for line in given["urls"].splitlines() if line.strip()]
    if not urls and given["what"] != "scraper":
        errors["urls"] = "Give at least one URL, one per line."
    elif len(urls) > MAX_URLS:
        errors["urls"] = f"A form takes {MAX_URLS:,} URLs and this has {len(urls):,}. shoal submit takes any number."
    values: dict[str, Any] = {"urls": urls[:MAX_URLS], "sitemap": bool(given["sitemap"])}
    if given["what"] in ("scraper", "template"):
        if not given[given["what"]].strip():
            errors[given["what"]] = "Choose one."
        values[given["what"]] = given[given["what"]].strip() or None
    else:
        values["fields"] = _fields(given["fields"], errors)
        values["here"] = bool(given["here"])
        if given["name"].strip():
            values["name"] = given["name"].strip()
    values["settings"] = _settings(given, errors)
    values["priority"] = _integer(given["priority"] or "0", "priority", errors)
    if errors:
        return None
    try:
        return models.RunSubmission(**values)
    except pydantic.ValidationError as error:
        for one in error.errors()[:10]:
            field = str(one["loc"][0]) if one["loc"] else "urls"
            where = f"line {int(one['loc'][1]) + 1}: " if field == "urls" and len(one["loc"]) > 1 else ""
            errors.setdefault(field if field in EMPTY_FORM else "urls", f"{where}{one['msg']}")
        return None


def _fields(text: str, errors: dict[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, selector = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip() or not selector.strip():
            errors["fields"] = f"Line {number} is not NAME = SELECTOR, as in: title = h1::text"
            break
        made[name.strip()] = selector.strip()
    return made


def _settings(given: Mapping[str, str], errors: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if rate := given["rate"].strip():
        try:
            units.rate(rate)
            made["rate"] = rate
        except (ValueError, TypeError):
            errors["rate"] = "Give a number above 0, or a rate such as 30/m."
    if given["max_pages"].strip():
        made["max_pages"] = _integer(given["max_pages"], "max_pages", errors)
    if given["routes"].strip():
        try:
            made["routes"] = list(route_lines(given["routes"]))
        except UsageError as error:
            errors["routes"] = ". ".join(words[:1].upper() + words[1:] for words in (str(error), error.hint)) + "."
    return made


def _integer(text: str, name: str, errors: dict[str, str]) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        errors[name] = "Give a whole number."
        return 0
    if abs(number) > 1_000_000_000 or (name == "max_pages" and number < 0):
        errors[name] = "This number is out of range."
    return number


async def _form(
    request: Request, context: ServerContext, caller: Caller, given: Mapping[str, str], errors: Mapping[str, str]
) -> Response:
    shown = {"given": printable_form(given), "wrong": errors, "nav": "runs"} | await form_choices(context)
    return render_page(request, caller, "submit.html", shown, 422 if errors else 200)


def printable_form(given: Mapping[str, str]) -> dict[str, str]:
    """What was typed, as it is shown again: with control characters made visible."""
    typed = {name: printable(given[name].replace("\r\n", "\n")) for name in TYPED_FIELDS if name in given}
    return {**given, **typed}


async def form_choices(context: ServerContext) -> dict[str, Any]:
    """What can be chosen from in a form that describes a run."""
    known = await context.cached(("scrapers",), lambda: scrapers(context))
    return {
        "scrapers": [one["name"] for one in known if one["name"] != "templates"],
        "templates": [document.name for document in (await named_templates(context))[:500]],
        "most": MAX_URLS,
    }
