"""Batches: some addresses in one call, answered with what became of each; the rest goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response, StreamingResponse

from shoal.config import Settings
from shoal.control.acting import Acting
from shoal.control.idempotency import Entry, held
from shoal.core.run import Run
from shoal.errors import Act
from shoal.extract.template.content import Content, page_template, with_content
from shoal.view.standing import still_alive
from shoal.web.access import Caller, Operator, Reader
from shoal.web.addresses import addresses_of
from shoal.web.answer import answer
from shoal.web.api.models import Body, described
from shoal.web.brought import keep_template
from shoal.web.commission import Commission, above, kept_template
from shoal.web.idempotency import REPLAYED, Done, Key, keep, open_key, print_of
from shoal.web.problem import Problem, no_such
from shoal.web.results import Results, Tally
from shoal.web.room import In, Room
from shoal.web.words import Line, Url, refuse_render

router = APIRouter(tags=["batch"])
TIMEOUT, LONGEST = 300.0, 3600.0  # seconds
MOST = 10_000  # addresses
PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds between two looks at what is open
ANSWERS_WITHIN = 2.0  # seconds after which a queue is taken for not available
TEXT = 65_536  # bytes gathered before some of an answer is sent
_encode = msgspec.json.Encoder().encode


class BatchOptions(Body):
    template: Line | None = Field(default=None, description="The name of a template that the queue keeps.")
    fields: dict[Line, Annotated[str, StringConstraints(max_length=2_000)]] | None = Field(
        default=None, max_length=100, description='Fields of each record: {"price:number": ".price"}.'
    )
    content: Content | None = Field(
        default=None,
        description="What of a page is its `content`: its readable text (default, unless there is a template"
        " or fields), its HTML, or none.",
    )
    headers: dict[Line, Line] | None = Field(
        default=None, max_length=50, description="Headers of every request; secrets are refused."
    )
    timeout: float | None = Field(default=None, gt=0, le=3600, description="Seconds for one request.")
    retries: int | None = Field(default=None, ge=0, le=100)
    retry_delay: float | None = Field(
        default=None, ge=0, le=86_400, description="Seconds before the second try; doubled each time."
    )
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    rate: float | None = Field(default=None, gt=0, le=10_000, description="Requests per second and host.")
    delay: float | None = Field(
        default=None, ge=0, le=86_400, description="Seconds between two requests to a host."
    )
    user_agent: Line | None = None
    ignore_robots: bool | None = None
    render: Literal["none", "browser"] = "none"


class BatchRequest(Body):
    urls: list[Url] = Field(min_length=1, max_length=MOST)
    distributed: bool = Field(
        default=False, description="Done by workers of the fleet, not by this server itself."
    )
    options: BatchOptions = BatchOptions()
    timeout: float = Field(
        default=TIMEOUT, gt=0, le=LONGEST, description="Seconds to wait; what is not done by then is pending."
    )


class BatchResult(BaseModel):
    url: str
    status: Literal["success", "failed", "pending"]
    content: str | None
    worker_id: str | None
    http_status: int | None
    error: str | None
    record: dict[str, Any] | None = Field(description="What was taken from the page; the first, if several.")
    more: list[dict[str, Any]] | None = Field(default=None, description="Its other records, at most 99.")


class BatchStats(BaseModel):
    total: int
    success: int
    failed: int
    pending: int
    workers_used: int


class BatchAnswer(BaseModel):
    session_id: str
    distributed: bool
    notes: list[str]
    results: list[BatchResult]
    stats: BatchStats


class BatchEnd(BaseModel):
    session_id: str
    state: Literal["running", "paused", "cancelled", "finished"]


class Availability(BaseModel):
    distributed_available: bool
    message: str


Session = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]


@router.post(
    "/api/crawl/batch",
    summary="Fetch some addresses and wait for them",
    response_class=Response,
    responses=described(BatchAnswer, 404, 409),
)
async def batch(
    body: BatchRequest,
    request: Request,
    room: In,
    caller: Operator,
    key: Key = None,
) -> Response:
    """At the timeout it answers what is there. The rest goes on, and is found under its session id."""
    deadline = time.monotonic() + body.timeout
    run, replayed = await _once(room, request, caller, key, body)
    room.touched()
    if not body.distributed:
        room.crew.wake()
    await _settled(room, request, run, deadline)
    return await _answer(room, run, {REPLAYED: "true"} if replayed else {})


@router.get(
    "/api/crawl/batch/{session_id}",
    summary="What became of a batch so far",
    response_class=Response,
    responses=described(BatchAnswer, 404),
)
async def session(
    session_id: Session,
    room: In,
    caller: Reader,
) -> Response:
    return await _answer(room, await _batch_run(room, session_id), {})


@router.delete(
    "/api/crawl/batch/{session_id}",
    summary="Give up what is pending of a batch",
    response_class=Response,
    responses=described(BatchEnd, 404),
)
async def cancel(
    session_id: Session,
    room: In,
    caller: Operator,
) -> Response:
    run = await _batch_run(room, session_id)
    if run.state not in ("finished", "cancelled"):
        run = await Acting(room.queue, caller.name).steer(run, "cancel")
        room.touched()
    return answer({"session_id": run.name, "state": run.state})


@router.get(
    "/api/crawl/distributed/status",
    summary="Whether workers of the fleet can do batches",
    response_class=Response,
    responses=described(Availability),
)
async def status(room: In, caller: Reader) -> Response:
    kind = queue_kind(room.settings)
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            workers = await room.once(("template-workers",), lambda: _template_workers(room))
    except (Act, TimeoutError):
        return answer({"distributed_available": False, "message": f"{kind} not available"})
    if not workers:
        return answer({"distributed_available": False, "message": "no workers are connected: shoal worker"})
    return answer({"distributed_available": True, "message": f"{kind} connected"})


def queue_kind(settings: Settings) -> str:
    """What the queue is, for people."""
    if settings.state_file is not None:
        return "SQLite"
    scheme = settings.queue.partition("://")[0]
    if scheme.startswith("postgres"):
        return "PostgreSQL"
    return {"http": "shoal server", "https": "shoal server"}.get(scheme, "Redis")


async def _template_workers(room: Room) -> int:
    """Workers that would take a run with any template."""
    marks = still_alive(await room.queue.workers(), await room.queue.now(), room.settings.stale_after)
    return sum("templates" in mark.serves and mark.state != "draining" for mark in marks)


async def _once(
    room: Room, request: Request, caller: Caller, key: str | None, body: BatchRequest
) -> tuple[Run, bool]:
    """The run of this request; with a key that was given before, the one it began then."""
    if key is None:
        return await _begin(room, body, ""), False
    opened = await open_key(room, caller, key, await print_of(request))
    if isinstance(opened, Entry):
        return await _batch_run(room, opened.answer["note"]), True
    async with held(opened) as hold:
        run = await _begin(room, body, hold.seed)
        await keep(hold, Done(None, note=run.name))
        return run, False


async def _begin(room: Room, body: BatchRequest, seed: str) -> Run:
    options = body.options
    refuse_render(options.render)
    settings = above(room.settings, _asked(options), "options")
    if options.template and options.fields:
        raise Problem(422, "not-understood", "options: give a template or fields, not both")
    if options.template:
        template, paper = await kept_template(room.queue, options.template)
        whole, content = with_content(template, options.content or "none")
        if whole is not template and whole != template:
            paper = await keep_template(room.queue, whole)
        template = whole
    else:
        wanted: Content = options.content or ("none" if options.fields else "text")
        template, content = page_template("batch", options.fields or {}, wanted)
        paper = await keep_template(room.queue, template)
    return await Commission(
        template=template,
        paper=paper,
        urls=tuple(body.urls),
        settings=settings,
        priority=options.priority,
        here=not body.distributed,
        api={"as": "batch", "content": content, "distributed": body.distributed},
        seed=seed,
    ).begin(room.queue)


def _asked(options: BatchOptions) -> dict[str, Any]:
    """The settings among the options."""
    names = ("timeout", "retries", "retry_delay", "rate", "delay", "user_agent", "ignore_robots")
    asked = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.headers:
        asked["header"] = [f"{name}: {value}" for name, value in options.headers.items()]
    return asked


async def _batch_run(room: Room, session: str) -> Run:
    for run in await room.queue.runs(name=session, limit=1):
        if run.name == session and (run.spec.get("api") or {}).get("as") == "batch":
            return run
    raise no_such("batch", session, hint="POST /api/crawl/batch begins one")


async def _settled(room: Room, request: Request, run: Run, deadline: float) -> None:
    """Wait until nothing of the run is open, the time is up, or nobody waits for the answer any more."""
    pause = PAUSE
    stopping: asyncio.Event | None = getattr(getattr(request.app.state, "server", None), "stopping", None)
    while (left := deadline - time.monotonic()) > 0 and not (stopping and stopping.is_set()):
        if not (await room.queue.stats(run.id)).open or await request.is_disconnected():
            return
        try:
            await asyncio.sleep(min(pause, left))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stopping is None or not stopping.is_set() or task is None:
                raise
            task.uncancel()  # the server stops: what there is is the answer, with the session to go on with
            return
        pause = min(pause * 1.3, LONGEST_PAUSE)


async def _answer(room: Room, run: Run, headers: dict[str, str]) -> Response:
    """Streamed: however many pages there are, a few of them are in memory at a time."""
    known = await addresses_of(room.queue, room.settings, run)
    if known is None:
        raise no_such("batch", run.name, hint="its addresses were removed with it")
    run = next(iter(await room.queue.runs(name=run.name, limit=1)), run)
    results = Results(room.queue, room.store, run, known, str(run.spec["api"].get("content") or ""))
    await results.check()
    notes = await _notes(room, run)
    return StreamingResponse(
        _document(run, results, notes),
        headers={"Cache-Control": "no-store"} | headers,
        media_type="application/json",
    )


async def _notes(room: Room, run: Run) -> list[str]:
    if run.state != "running" or not run.spec["api"].get("distributed"):
        return []
    if (await room.queue.stats(run.id)).open and not await _template_workers(room):
        return ["No workers are connected: it waits for one.   shoal worker"]
    return []


async def _document(run: Run, results: Results, notes: list[str]) -> AsyncIterator[bytes]:
    tally, comma = Tally(), b""
    head = {"session_id": run.name, "distributed": bool(run.spec["api"].get("distributed")), "notes": notes}
    text = bytearray(_encode(head)[:-1] + b',"results":[')
    async for result in results.all():
        tally.add(result)
        text += comma + _encode(result)
        comma = b","
        if len(text) >= TEXT:
            yield bytes(text)
            text.clear()
    text += b'],"stats":' + _encode(tally.document()) + b"}"
    yield bytes(text)
