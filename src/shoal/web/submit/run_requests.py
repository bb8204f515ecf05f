"""Run requests: starts a run that was asked for over the API or a form, as `shoal submit` does."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import RUN_SETTINGS, settings_to_spec
from shoal.control import webhooks
from shoal.control.signing_key import SigningRefused
from shoal.control.webhooks import Webhook
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.core.url import canonical
from shoal.errors import InvalidUrl, UsageError
from shoal.extract import registry
from shoal.extract.scraper import sitemap_start
from shoal.extract.template import Template, TemplateError, TemplateScraper, from_fields, summary
from shoal.launch.request_options import check_steps
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.identity import SERVER_MODE
from shoal.runs.spec import new_spec
from shoal.runs.start import StartRequest, TaskBatch, TaskBatches, start
from shoal.runs.url_policy import ALLOW_PRIVATE_HINT, RejectedUrls, UrlPolicy, run_settings
from shoal.sources.url_text import with_scheme
from shoal.view.run_state import live_workers
from shoal.web.api import models
from shoal.web.api.templates import scraper_code
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem
from shoal.web.submit.template_run import stored_template
from shoal.web.submit.turns import Turns
from shoal.web.webhooks import shared_secrets

HOOKS_KEPT_NOTE = "The run was there already: its webhooks stay as they are, and those of this request are not added."
BATCH_SIZE = 500  # URLs in one question to the queue


def make_hook(own: Settings, wanted: models.NewHook, *, by_admin: bool) -> Webhook:
    """A hook without an id; 422 for one that must not be called or signed like this."""
    try:
        url = canonical(wanted.url)
    except InvalidUrl as error:
        raise Problem(422, "invalid-hook-url", f"the webhook's URL: {error}") from None
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Problem(422, "invalid-hook-url", "a webhook's URL must not contain a login", hint="check the signature")
    why = UrlPolicy(own).refusal(url)
    if why:
        raise Problem(422, "invalid-hook-url", f"the webhook's URL is {why}", hint=ALLOW_PRIVATE_HINT)
    name = wanted.secret.lower()
    try:
        seal = shared_secrets(own).seal(name, url, by_admin=by_admin) if name else ""
    except SigningRefused as error:
        raise Problem(422, "invalid-hook-secret", str(error), hint=error.hint) from None
    return Webhook("", url, tuple(wanted.events), name, seal, stalled_after=wanted.stalled_after)


class SubmittedRun(msgspec.Struct, frozen=True):
    """What became of a submission."""

    run: Run
    status: str
    added: int = 0
    known: int = 0
    seen: int = 0
    rejects: tuple[dict[str, Any], ...] = ()
    rejected: int = 0
    notes: tuple[str, ...] = ()
    failing: int = 0
    has_own_hooks: bool = False  # its webhooks are those that were asked for


class RunPlan(msgspec.Struct, frozen=True):
    """What a submission asks for, worked out before anything is changed."""

    scraper: str
    spec: dict[str, Any]
    start: tuple[str, ...] = ()  # of the scraper or template itself
    max_pages: int = 0
    seen_set: str = ""
    seen_for: float = 0.0
    dead_retention: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, scraper: str, spec: dict[str, Any], start: Sequence[str], settings: Settings, notes: tuple[str, ...]
    ) -> RunPlan:
        how = (settings.max_pages, settings.seen, settings.seen_for, settings.dead_retention)
        return cls(scraper, spec, tuple(start), *how, notes)


async def submit_run(
    context: ServerContext, submission: models.RunSubmission, seed: str, *, by_admin: bool = False
) -> SubmittedRun:
    """Start the run and add its URLs. The same seed is the same run, for ever."""
    plan = await plan_run(context, submission)
    urls = start_urls(submission, plan)
    if not urls and not submission.more:
        raise Problem(
            422,
            "no-urls",
            "there is no URL to start from",
            hint='give urls; or {"more": true}, and POST them to /api/v1/runs/{run}/tasks',
        )
    if urls:
        await _require_usable(UrlPolicy(context.settings), urls)
    key = _key(submission, seed)
    wanted = [make_hook(context.settings, it, by_admin=by_admin) for it in submission.hooks]
    hooks = msgspec.json.decode(msgspec.json.encode(wanted))  # as they come back from the queue
    if hooks:
        await webhooks.start_watching(context.queue)
    spec = plan.spec | ({"hooks": hooks} if hooks else {})
    new = NewRun(
        plan.scraper,
        key,
        spec=spec,
        weight=submission.weight,
        priority=submission.priority,
        max_pages=plan.max_pages,
        seen_set=plan.seen_set,
        seen_for=plan.seen_for,
        dead_retention=plan.dead_retention,
        once=bool(seed),
    )
    rejects = RejectedUrls()

    async def tasks(run: Run) -> TaskBatches:
        policy = UrlPolicy(context.settings, await run_settings(context.queue, context.settings, run))
        for first in range(0, len(urls), BATCH_SIZE):
            made, paces = await _make_tasks(policy, urls, first, rejects)
            # Start URLs of the scraper itself are fetched whatever a seen-set has.
            yield made if submission.urls else [msgspec.structs.replace(it, revisit=True) for it in made], paces

    started = await start(
        context.queue, StartRequest(new, tasks=tasks, more=submission.more, name_format=context.settings.run_id_format)
    )
    run, added = started.run, started.tasks
    status = {"new": "submitted", "continued": "continued", "ended": run.state}[started.outcome]
    # A seed is the caller's own: a run that has it was begun by this very request, if by nobody who made it up.
    is_own = (started.outcome == "new" or bool(seed)) and run.spec.get("hooks", []) == hooks
    notes = plan.notes if is_own or not hooks else (*plan.notes, HOOKS_KEPT_NOTE)
    return SubmittedRun(
        run,
        status,
        added.added,
        added.known,
        added.seen,
        tuple(rejects.first),
        rejects.count,
        notes,
        failing=added.failing,
        has_own_hooks=is_own,
    )


def start_urls(submission: models.RunSubmission, plan: RunPlan) -> list[str]:
    """What it begins with: URLs as they were given, or those of the scraper, and sitemaps, which are marked."""
    urls = submission.urls or list(plan.start)
    given = submission.sitemap
    try:
        sites = tuple(map(with_scheme, urls))
        marked = sitemap_start(given if isinstance(given, bool) else _texts(given), sites)
    except UsageError:
        raise Problem(
            422,
            "no-urls",
            "there is no URL whose site's sitemaps could be read",
            hint='give urls, or "sitemap": "https://…"',
        ) from None
    return urls + [mark for mark in marked if mark not in urls]


def _texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


async def _require_usable(policy: UrlPolicy, urls: Sequence[str]) -> None:
    """Refuse at once what could only end with nothing done."""
    why, turns = "", Turns()
    for text in urls:
        judged = policy.make_task(1, text)
        if isinstance(judged, Task):
            return
        why = why or judged
        await turns.pause()
    raise Problem(422, "no-usable-url", f"none of the URLs can be fetched; the first: {why}", hint="https://…")


def _key(submission: models.RunSubmission, seed: str) -> str:
    if seed:
        return f"api/{seed}"
    if submission.key:
        return "api/" + hashlib.sha256(f"key\0{submission.key}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return "api/" + secrets.token_hex(12)


async def _make_tasks(policy: UrlPolicy, urls: Sequence[str], first: int, rejects: RejectedUrls) -> TaskBatch:
    """Some of the URLs as tasks; those that cannot be fetched are rejected with the reason."""
    tasks, turns = list[Task](), Turns()
    for line, text in enumerate(urls[first : first + BATCH_SIZE], first + 1):
        made = policy.make_task(line, text)
        if isinstance(made, Task):
            tasks.append(made)
        else:
            rejects.add(line, text, made)
        await turns.pause()
    return tasks, policy.paces(tasks)


async def plan_run(context: ServerContext, submission: models.RunSubmission) -> RunPlan:
    """Check a submission; nothing is changed yet, except that its template is stored."""
    if sum((submission.scraper is not None, submission.template is not None, bool(submission.fields))) > 1:
        raise Problem(422, "conflicting-fields", "give one of scraper, template and fields")
    if submission.routes and "routes" in submission.settings:
        raise Problem(422, "conflicting-fields", "give routes once", hint="leave them out of settings")
    rules = [it if isinstance(it, str) else it.model_dump(exclude_none=True) for it in submission.routes]
    asked = _run_settings(submission.settings | ({"routes": rules} if rules else {}))
    if submission.scraper is not None:
        return await _plan_scraper(context, submission, asked)
    template, template_ref = await _template(context.queue, submission)
    travelling = {name: value for name, value in template.settings.items() if name in RUN_SETTINGS}
    whole = with_defaults(asked, travelling, f"template {template.name}")
    await _check_steps(context, submission, whole, template)
    spec = _spec(submission, template.name, asked, template=template_ref)
    notes = () if submission.here else await _no_worker_note(context, "templates", template.name)
    return RunPlan.of(template.name, spec, template.start, whole, notes)


async def _check_steps(
    context: ServerContext, submission: models.RunSubmission, whole: Settings, template: Template
) -> None:
    """Where URLs follow, each can say for itself with what it is fetched."""
    if whole.steps and not submission.more:
        check_steps(_with_own_fetch(context, whole), await asyncio.to_thread(TemplateScraper, template))


def _with_own_fetch(context: ServerContext, asked: Settings) -> Settings:
    """With what pages are fetched where the call does not say so: as this server does."""
    own = context.settings
    return with_defaults(asked, {"fetch": own.fetch} if own.is_set("fetch") else {}, "this server")


def _spec(
    submission: models.RunSubmission,
    scraper: str,
    asked: Settings,
    *,
    code: tuple[str, str] | None = None,
    template: tuple[str, int] | None = None,
) -> dict[str, Any]:
    spec = new_spec(
        scraper,
        mode=SERVER_MODE if submission.here else "distributed",
        settings=settings_to_spec(asked),
        start=submission.urls[:10],
        each=bool(submission.urls or submission.more),
        code=code,
        template=template,
    )
    return spec | ({"api": {"as": "run"}} if submission.here else {})  # by this the server's pool finds it


def _run_settings(given: Mapping[str, Any]) -> Settings:
    """Settings that may travel; whatever else is named is refused."""
    for name in given:
        if name.replace("-", "_") not in RUN_SETTINGS:
            raise Problem(
                422,
                "unknown-setting",
                f"settings: {name} is not a setting of a run",
                hint="known are: " + ", ".join(sorted(RUN_SETTINGS)),
            )
    return with_defaults(Settings(), given, "settings")


async def _template(queue: Queue, submission: models.RunSubmission) -> tuple[Template, tuple[str, int]]:
    if submission.template is not None:
        return await stored_template(queue, submission.template, submission.template_version or 0)
    name = submission.name or "pages"
    try:
        # In a thread: a hundred long selectors take seconds to compile, and others are not kept waiting.
        template = await asyncio.to_thread(from_fields, name, submission.fields) if submission.fields else summary(name)
    except TemplateError as error:
        raise Problem(
            422,
            "invalid-fields",
            str(TemplateError("fields", error.problems)),
            problems=[msgspec.to_builtins(one) for one in error.problems],
        ) from None
    text = msgspec.json.encode(template).decode()
    document = await queue.save_document(kinds.TEMPLATE, name, text)
    return template, (document.name, document.version)


async def _plan_scraper(context: ServerContext, submission: models.RunSubmission, asked: Settings) -> RunPlan:
    """A scraper's code is with the workers; where this server has it, too, its start URLs are known."""
    name = submission.scraper or ""
    if submission.here:
        raise Problem(422, "template-required", "this server itself runs only templates and fields")
    listed = (await asyncio.to_thread(scraper_code, context.settings)).get(name)
    start: tuple[str, ...] = ()
    whole, code = asked, None
    if listed is not None:
        scraper = listed.scraper
        if scraper.mode == "single":
            raise Problem(
                422, "single-mode-scraper", f"scraper {name} has the mode single: it runs in one place, not on a fleet"
            )
        whole = with_defaults(asked, scraper.settings, f"scraper {name}")
        check_steps(_with_own_fetch(context, whole), scraper)
        code = (name, registry.version_of(scraper))
        start = tuple(scraper.start)
    spec = _spec(submission, name, asked, code=code)
    notes = await _no_worker_note(context, name)
    return RunPlan.of(name, spec, start, whole, notes)


async def _no_worker_note(context: ServerContext, *titles: str) -> tuple[str, ...]:
    """A word of warning where no worker that is alive serves it."""
    if any(set(titles) & set(it.serves) for it in await live_workers(context.queue, context.settings)):
        return ()
    return (f"No worker serves {titles[0]} yet; it waits until one does (shoal worker).",)
