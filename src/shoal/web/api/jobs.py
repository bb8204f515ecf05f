"""Jobs: a template at work on a target, begun and followed in two calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from shoal.control.acting import Acting
from shoal.control.runs import being_seeded, here
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import Usage
from shoal.logs import redact
from shoal.view.standing import serving, still_alive
from shoal.view.words import stamp
from shoal.web.access import Operator, Reader
from shoal.web.answer import answer
from shoal.web.api.models import Body, described
from shoal.web.commission import Commission, above, kept_template
from shoal.web.idempotency import Done, Key, once
from shoal.web.problem import no_such
from shoal.web.room import In, Room
from shoal.web.words import Line, Url, refuse_render

router = APIRouter(prefix="/api/scraping", tags=["jobs"])
MOST = 10_000  # addresses
ERRORS = 20  # kinds of them that are told
DAY = 86_400.0

JobStatus = Literal["pending", "assigned", "running", "completed", "failed", "retrying"]


class JobConfig(Body):
    delay_range: (
        tuple[Annotated[float, Field(ge=0, le=DAY)], Annotated[float, Field(ge=0, le=DAY)]] | None
    ) = Field(
        default=None,
        description="Seconds between two requests to a host, from … to. The whole fleet keeps the slower end"
        " at least, as one.",
    )
    delay: float | None = Field(default=None, ge=0, le=DAY)
    rate: float | None = Field(default=None, gt=0, le=10_000, description="Requests per second and host.")
    timeout: float | None = Field(default=None, gt=0, le=3600, description="Seconds for one request.")
    retry_delay: float | None = Field(default=None, ge=0, le=DAY)
    max_pages: int | None = Field(default=None, ge=0, le=1_000_000_000)
    max_depth: int | None = Field(default=None, ge=0, le=1_000_000)
    headers: dict[Line, Line] | None = Field(default=None, max_length=50)
    user_agent: Line | None = None
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
        names = ["delay", "rate", "timeout", "retry_delay", "max_pages", "max_depth", "user_agent"]
        names += ["ignore_robots", "scope"]
        asked = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.delay_range:
            asked["delay"] = self.delay_range[1]
        if self.headers:
            asked["header"] = [f"{name}: {value}" for name, value in self.headers.items()]
        return asked


class JobRequest(Body):
    name: Line | None = Field(default=None, description="What people call it.")
    template_id: Line = Field(description="The name of a template that the queue keeps.")
    target_url: Url | None = None
    target_urls: list[Url] | None = Field(default=None, min_length=1, max_length=MOST)
    config: JobConfig = JobConfig()
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    retries: int | None = Field(default=None, ge=0, le=100)
    here: bool = Field(default=False, description="Done by the server itself, not by workers of the fleet.")

    @model_validator(mode="after")
    def _one_target(self) -> JobRequest:
        if self.target_url is not None and self.target_urls is not None:
            raise ValueError("give target_url or target_urls, not both")
        return self


class Progress(BaseModel):
    total: int
    done: int
    failed: int
    cancelled: int
    open: int
    under_way: int
    percent: float


class JobError(BaseModel):
    cause: str
    host: str
    count: int
    message: str
    url: str = Field(description="One of them.")


class Job(BaseModel):
    job_id: str
    name: str
    template_id: str
    status: JobStatus
    state: Literal["running", "paused", "cancelled", "finished"] = Field(description="Of the run.")
    priority: int
    here: bool
    progress: Progress
    records: int
    retries: int
    errors: list[JobError]
    created_at: str
    finished_at: str | None
    notes: list[str]


@router.post(
    "/start",
    summary="Begin a job: a template and what to use it on",
    status_code=201,
    response_class=Response,
    responses=described(Job, 409, status=201, words="It is in the queue"),
)
async def start(
    body: JobRequest,
    request: Request,
    room: In,
    caller: Operator,
    key: Key = None,
) -> Response:
    """Without a target it begins where the template says."""

    async def work(seed: str) -> Done:
        run = await _begin(room, body, seed)
        await Acting(room.queue, caller.name).did("submit", run.name)
        room.touched()
        if body.here:
            room.crew.wake()
        return Done(await _document(room, run), 201)

    return await once(room, request, caller, key, work)


@router.get(
    "/status/{job_id}", summary="How far a job is", response_class=Response, responses=described(Job, 404)
)
async def status(
    job_id: Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")],
    room: In,
    caller: Reader,
) -> Response:
    """Of any run: its name is its job id."""
    return answer(await room.once(("job", job_id), lambda: _named(room, job_id)))


async def _named(room: Room, job: str) -> dict[str, Any]:
    for run in await room.queue.runs(name=job, limit=1):
        if run.name == job:
            return await _document(room, run)
    raise no_such("job", job, hint="POST /api/scraping/start begins one")


async def _begin(room: Room, body: JobRequest, seed: str) -> Run:
    refuse_render(body.config.render)
    template, paper = await kept_template(room.queue, body.template_id)
    urls = tuple(body.target_urls or ([body.target_url] if body.target_url is not None else template.start))
    if not urls:
        raise Usage(
            f"template {template.name} has no start address", hint="give the job a target_url or target_urls"
        )
    asked = body.config.settings() | ({} if body.retries is None else {"retries": body.retries})
    return await Commission(
        template=template,
        paper=paper,
        urls=urls,
        settings=above(room.settings, asked, "config"),
        priority=body.priority,
        here=body.here,
        max_pages=body.config.max_pages or 0,
        api={"as": "job", "name": body.name or template.name, "priority": body.priority},
        seed=seed,
        strict=True,
    ).begin(room.queue)


async def _document(room: Room, run: Run) -> dict[str, Any]:
    stats = await room.queue.stats(run.id)
    errors = await room.queue.dead_groups(run.id, limit=ERRORS) if stats.dead else []
    over = run.state == "finished" or (
        run.state == "running" and not stats.open and not await being_seeded(room.queue, run)
    )
    api = run.spec.get("api") or {}
    ended = stats.done + stats.dead + stats.cancelled
    return {
        "job_id": run.name,
        "name": api.get("name") or run.scraper,
        "template_id": run.spec.get("template") or run.scraper,
        "status": status_of(run, stats, over=over),
        "state": run.state,
        "priority": api.get("priority") or 0,
        "here": here(run),
        "progress": {
            "total": stats.seen,
            "done": stats.done,
            "failed": stats.dead,
            "cancelled": stats.cancelled,
            "open": stats.open,
            "under_way": stats.leased,
            "percent": round(100 * ended / stats.seen, 1) if stats.seen else 0.0,
        },
        "records": stats.records,
        "retries": stats.retries,
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
        "created_at": stamp(run.created_at),
        "finished_at": stamp(run.finished_at) if run.finished_at else None,
        "notes": await _notes(room, run, stats),
    }


def status_of(run: Run, stats: Stats, *, over: bool) -> JobStatus:
    """A run in the words of jobs; `over`: nothing is left to be done in it.

    failed     it was cancelled, or is over and nothing of it went well
    completed  it is over
    assigned   workers have taken the first of it
    running    some of it is done or under way
    retrying   all that is left waits for another try
    pending    nobody has begun, or nobody goes on: it is paused
    """
    if run.state == "cancelled":
        return "failed"
    if over:
        return "failed" if not stats.done and (stats.dead or not stats.seen) else "completed"
    begun = stats.done + stats.dead + stats.retries > 0
    if stats.leased:
        return "running" if begun else "assigned"
    if run.state == "paused":
        return "pending"
    if stats.retries and stats.delayed and stats.delayed == stats.open:
        return "retrying"
    return "running" if begun else "pending"


async def _notes(room: Room, run: Run, stats: Stats) -> list[str]:
    refused = (run.spec.get("api") or {}).get("refused")
    return [f"Not all targets can be fetched: {refused}"] * bool(refused) + await _waits(room, run, stats)


async def _waits(room: Room, run: Run, stats: Stats) -> list[str]:
    if run.state == "paused":
        return ["It is paused."]
    if run.state != "running" or not stats.open or stats.leased or here(run):
        return []
    marks = still_alive(await room.queue.workers(), await room.queue.now(), room.settings.stale_after)
    if serving(marks, run):
        return []
    return ["No worker that serves it is connected: it waits for one.   shoal worker"]
