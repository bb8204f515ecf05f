"""Jobs: a template at work on a target, begun and followed in two calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import UsageError
from shoal.logs import redact
from shoal.queue.base import Queue
from shoal.runs.identity import is_seeding, is_server_run
from shoal.runs.time_limit import first_attempt_at, time_limit, was_ended_by_time_limit
from shoal.view.formatting import count, iso_time
from shoal.view.run_state import live_workers, workers_for_run
from shoal.web.api.models import RequestBody, response_docs
from shoal.web.auth.access import OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.fields import NonEmptyLine, Url, refuse_render
from shoal.web.http.idempotency import IdempotencyKey, OperationResult, idempotent
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import not_found
from shoal.web.submit.template_run import TemplateRun, override_settings, settings_in, stored_template

router = APIRouter(prefix="/api/scraping", tags=["jobs"])
MAX_URLS = 10_000
MAX_ERRORS = 20  # kinds of them that are told
DAY = 86_400.0
JOB_TIMEOUT = 3600.0  # seconds

JobStatus = Literal["pending", "assigned", "running", "completed", "failed", "retrying"]


class JobConfig(RequestBody):
    delay_range: tuple[Annotated[float, Field(ge=0, le=DAY)], Annotated[float, Field(ge=0, le=DAY)]] | None = Field(
        default=None,
        description="Seconds between two requests to a host, from … to: different each time, between these."
        " The whole fleet keeps them, as one.",
    )
    delay: float | None = Field(default=None, ge=0, le=DAY)
    rate: float | None = Field(default=None, gt=0, le=10_000, description="Requests per second and host.")
    timeout: float = Field(
        default=JOB_TIMEOUT,
        ge=0,
        le=30 * DAY,
        description="Seconds for the whole job, from its first request on: a job that takes longer has failed,"
        " and what is left of it is dropped. 0: no limit.",
    )
    request_timeout: float | None = Field(default=None, gt=0, le=3600, description="Seconds for one request.")
    retry_delay: float | None = Field(default=None, ge=0, le=DAY)
    max_pages: int | None = Field(default=None, ge=0, le=1_000_000_000)
    max_depth: int | None = Field(default=None, ge=0, le=1_000_000)
    headers: dict[NonEmptyLine, NonEmptyLine] | None = Field(default=None, max_length=50)
    user_agent: NonEmptyLine | None = None
    ignore_robots: bool | None = None
    scope: Literal["host", "site", "any"] | None = None
    render: Literal["none", "browser"] = "none"

    @model_validator(mode="after")
    def _one_pace(self) -> JobConfig:
        if sum(value is not None for value in (self.delay_range, self.delay, self.rate)) > 1:
            raise ValueError("delay_range, delay and rate say the same: give one of them")
        if self.delay_range and self.delay_range[0] > self.delay_range[1]:
            raise ValueError("delay_range goes from the shorter to the longer one")
        return self

    def settings(self) -> dict[str, Any]:
        asked = settings_in(self) | {"timeout": self.request_timeout}
        if self.delay_range:
            shortest, longest = self.delay_range
            asked |= {"delay": (shortest + longest) / 2, "jitter": (longest - shortest) / 2}
        return {name: value for name, value in asked.items() if value is not None}


class JobRequest(RequestBody):
    name: NonEmptyLine | None = Field(default=None, description="A display name.")
    template_id: NonEmptyLine = Field(description="The name of a template stored in the queue.")
    target_url: Url | None = None
    target_urls: list[Url] | None = Field(default=None, min_length=1, max_length=MAX_URLS)
    config: JobConfig = JobConfig()
    priority: int = Field(
        default=0, ge=-1_000_000, le=1_000_000, description="Runs of higher priority come first on hosts they share."
    )
    retries: int | None = Field(default=None, ge=0, le=100)
    max_retries: int | None = Field(default=None, ge=0, le=100, description="The same as retries.")
    here: bool = Field(default=False, description="Done by this server, not by the fleet's workers.")

    @model_validator(mode="after")
    def _one_target(self) -> JobRequest:
        if self.target_url is not None and self.target_urls is not None:
            raise ValueError("give target_url or target_urls, not both")
        if self.retries is not None and self.max_retries is not None:
            raise ValueError("retries and max_retries say the same: give one of them")
        return self


class JobProgress(BaseModel):
    total: int
    done: int
    failed: int
    cancelled: int
    open: int
    in_progress: int
    percent: float


class JobError(BaseModel):
    cause: str
    host: str
    count: int
    message: str
    url: str = Field(description="One of them.")


class Job(BaseModel):
    job_id: str
    id: str = Field(description="The same as job_id.")
    name: str
    template_id: str
    status: JobStatus
    state: Literal["running", "paused", "cancelled", "finished"] = Field(description="Of the run.")
    priority: int
    here: bool
    progress: JobProgress
    records: int
    items_scraped: int = Field(description="The same as records.")
    retries: int = Field(description="Attempts that were repeated so far.")
    max_retries: int | None = Field(description="As the job asked; null: as the server's settings say.")
    timeout: float | None = Field(description="Seconds for the whole job; null: no limit.")
    error: str | None = Field(description="Why the whole job failed, where it is not its pages that did.")
    assigned_worker: str | None = Field(description="Who works on its first page, or did last.")
    errors: list[JobError]
    created_at: str
    started_at: str | None = Field(description="When its first page was first tried; null: not yet.")
    finished_at: str | None
    notes: list[str]


@router.post(
    "/start",
    summary="Start a job: a template and its targets",
    status_code=201,
    responses=response_docs(Job, 409, status=201, words="It is in the queue"),
)
async def start(
    body: JobRequest, request: Request, context: ContextDep, caller: OperatorDep, key: IdempotencyKey = None
) -> Response:
    """Without a target it starts from the template's own URLs."""

    async def work(seed: str) -> OperationResult:
        run = await _start_run(context, body, seed)
        await context.actor(caller).log_action("submit", run.name)
        context.invalidate()
        if body.here:
            context.worker_pool.wake()
        return OperationResult(await _job_document(context, run), 201)

    return await idempotent(context, request, caller, key, work)


@router.get("/status/{job_id}", summary="Status of a job", responses=response_docs(Job, 404))
async def status(
    job_id: Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")],
    context: ContextDep,
    caller: ReaderDep,
) -> Response:
    """Works for any run: its name is its job id."""
    return json_response(await context.cached(("job", job_id), lambda: _job_named(context, job_id)))


async def _job_named(context: ServerContext, job: str) -> dict[str, Any]:
    for run in await context.queue.runs(name=job, limit=1):
        if run.name == job:
            return await _job_document(context, run)
    raise not_found("job", job, hint="POST /api/scraping/start starts one")


async def _start_run(context: ServerContext, body: JobRequest, seed: str) -> Run:
    refuse_render(body.config.render)
    template, template_ref = await stored_template(context.queue, body.template_id)
    urls = tuple(body.target_urls or ([body.target_url] if body.target_url is not None else template.start))
    if not urls:
        raise UsageError(f"template {template.name} has no start URL", hint="give the job a target_url or target_urls")
    retries = body.max_retries if body.retries is None else body.retries
    asked = body.config.settings() | ({} if retries is None else {"retries": retries})
    return await TemplateRun(
        template=template,
        template_ref=template_ref,
        urls=urls,
        settings=override_settings(context.settings, asked, "config"),
        priority=body.priority,
        here=body.here,
        max_pages=body.config.max_pages or 0,
        api={"as": "job", "name": body.name or template.name, "retries": retries},
        seed=seed,
        strict=True,
        time_limit=body.config.timeout,
    ).start(context.queue)


async def _job_document(context: ServerContext, run: Run) -> dict[str, Any]:
    first = await context.queue.list_tasks(run.id, limit=1)
    stats = await context.queue.stats(run.id)
    errors = await context.queue.dead_groups(run.id, limit=MAX_ERRORS) if stats.dead else []
    is_over = run.state == "finished" or (
        run.state == "running" and stats.is_over and not await is_seeding(context.queue, run)
    )
    api = run.spec.get("api") or {}
    attempts = first[0].history if first else ()
    # Maintenance ends the run in a moment: until then this is its end.
    finished_at = run.finished_at or (await context.queue.now() if is_over else 0)
    ended = stats.done + stats.failed + stats.cancelled
    return {
        "job_id": run.name,
        "id": run.name,
        "name": api.get("name") or run.scraper,
        "template_id": run.spec.get("template") or run.scraper,
        "status": status_of(run, stats, is_over=is_over),
        "state": "finished" if is_over else run.state,
        "priority": run.priority,
        "here": is_server_run(run),
        "progress": {
            "total": stats.seen,
            "done": stats.done,
            "failed": stats.failed,
            "cancelled": stats.cancelled,
            "open": stats.open,
            "in_progress": stats.leased,
            "percent": round(100 * ended / stats.seen, 1) if stats.seen else 0.0,
        },
        "records": stats.records,
        "items_scraped": stats.records,
        "retries": stats.retries,
        "max_retries": api.get("retries"),
        "timeout": time_limit(run) or None,
        "error": await _error(context.queue, run, stats),
        "assigned_worker": (first[0].worker if first else "") or (attempts[-1].worker if attempts else "") or None,
        "errors": [
            {
                "cause": group.cause,
                "host": group.lane,
                "count": group.count,
                "message": redact(group.message),
                "url": redact(group.sample),
            }
            for group in errors
        ],
        "created_at": iso_time(run.created_at),
        "started_at": iso_time(await first_attempt_at(context.queue, run)),
        "finished_at": iso_time(finished_at) if finished_at else None,
        "notes": await _notes(context, run, stats),
    }


async def _error(queue: Queue, run: Run, stats: Stats) -> str | None:
    if run.state != "cancelled":
        return None
    if await was_ended_by_time_limit(queue, run):
        left = f"{count(stats.cancelled)} of {count(stats.seen, 'page')} dropped"
        return f"timeout: it took longer than {time_limit(run):g} s; {left}"
    return "it was cancelled"


def status_of(run: Run, stats: Stats, *, is_over: bool) -> JobStatus:
    """A run in the words of jobs; `is_over`: nothing is left to be done in it.

    failed     it was cancelled, or is over and none of it succeeded
    completed  it is over
    assigned   workers have taken the first of it
    running    some of it is done or in progress
    retrying   all that is left waits for another try
    pending    nobody has begun, or nobody goes on: it is paused
    """
    if run.state == "cancelled":
        return "failed"
    if is_over:
        return "failed" if not stats.done and (stats.failed or not stats.seen) else "completed"
    begun = stats.done + stats.failed + stats.retries > 0
    if stats.leased:
        return "running" if begun else "assigned"
    if run.state == "paused":
        return "pending"
    if stats.retries and stats.delayed and stats.delayed == stats.open:
        return "retrying"
    return "running" if begun else "pending"


async def _notes(context: ServerContext, run: Run, stats: Stats) -> list[str]:
    refused = (run.spec.get("api") or {}).get("refused")
    return [f"Not all targets can be fetched: {refused}"] * bool(refused) + await _waiting_note(context, run, stats)


async def _waiting_note(context: ServerContext, run: Run, stats: Stats) -> list[str]:
    if run.state == "paused":
        return ["It is paused."]
    if run.state != "running" or not stats.open or stats.leased or is_server_run(run):
        return []
    if workers_for_run(await live_workers(context.queue, context.settings), run):
        return []
    return ["No worker that serves it is connected; it waits for one.   shoal worker"]
