"""Batches: some URLs in one call, answered with what became of each; the rest goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from shoal.control.celery.engine import WORKER_COMMAND
from shoal.control.idempotency import IdempotencyEntry, keep_locked
from shoal.core.run import Run
from shoal.errors import ActionRequired
from shoal.queue.registry import backend_of
from shoal.view.run_state import live_workers
from shoal.web.api.models import RequestBody, response_docs
from shoal.web.auth.access import Caller, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.fields import Url
from shoal.web.http.idempotency import (
    REPLAYED_HEADER,
    IdempotencyKey,
    OperationResult,
    fingerprint_of,
    open_key,
    store_result,
)
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import not_found
from shoal.web.submit.batch_options import BatchOptions, batch_template
from shoal.web.submit.results import ResultCounts, UrlResults
from shoal.web.submit.template_run import TemplateRun
from shoal.web.submit.url_lists import urls_of_run

router = APIRouter(tags=["batch"])
DEFAULT_TIMEOUT, MAX_TIMEOUT = 300.0, 3600.0  # seconds
MAX_URLS = 10_000
PAUSE, MAX_PAUSE = 0.05, 0.5  # seconds between two looks at what is open
QUEUE_TIMEOUT = 2.0  # seconds after which a queue is taken for not available
CELERY_STATUS_SECONDS = 3.0  # for which what Celery's workers said is shared by all who ask
CHUNK_SIZE = 65_536  # bytes gathered before some of an answer is sent
_encode = msgspec.json.Encoder().encode


class BatchRequest(RequestBody):
    urls: list[Url] = Field(min_length=1, max_length=MAX_URLS)
    distributed: bool = Field(default=False, description="Done by the fleet's workers, not by this server.")
    options: BatchOptions = BatchOptions()
    timeout: float = Field(
        default=DEFAULT_TIMEOUT,
        gt=0,
        le=MAX_TIMEOUT,
        description="Seconds to wait; what is not done by then is pending.",
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


class BatchResponse(BaseModel):
    session_id: str
    distributed: bool
    notes: list[str]
    results: list[BatchResult]
    stats: BatchStats


class BatchState(BaseModel):
    session_id: str
    state: Literal["running", "paused", "cancelled", "finished"]


class Availability(BaseModel):
    distributed_available: bool
    message: str


SessionId = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]


@router.post(
    "/api/crawl/batch", summary="Fetch some URLs and wait for them", responses=response_docs(BatchResponse, 404, 409)
)
async def batch(
    body: BatchRequest, request: Request, context: ContextDep, caller: OperatorDep, key: IdempotencyKey = None
) -> Response:
    """At the timeout it returns what is there. The rest continues, under its session id."""
    deadline = time.monotonic() + body.timeout
    run, replayed = await _start_or_replay(context, request, caller, key, body)
    context.invalidate()
    if not body.distributed:
        context.worker_pool.wake()
    elif context.celery is not None and not replayed:
        await context.celery.announce(run)
    await _wait_until_settled(context, request, run, deadline)
    return await _batch_response(context, run, {REPLAYED_HEADER: "true"} if replayed else {})


@router.get(
    "/api/crawl/batch/{session_id}", summary="Results of a batch so far", responses=response_docs(BatchResponse, 404)
)
async def session(session_id: SessionId, context: ContextDep, caller: ReaderDep) -> Response:
    return await _batch_response(context, await _batch_run(context, session_id), {})


@router.delete(
    "/api/crawl/batch/{session_id}",
    summary="Cancel what is pending of a batch",
    responses=response_docs(BatchState, 404),
)
async def cancel(session_id: SessionId, context: ContextDep, caller: OperatorDep) -> Response:
    run = await _batch_run(context, session_id)
    if run.state not in ("finished", "cancelled"):
        run = await context.actor(caller).control_run(run, "cancel")
        context.invalidate()
    return json_response({"session_id": run.name, "state": run.state})


@router.get(
    "/api/crawl/distributed/status",
    summary="Whether workers of the fleet can do batches",
    responses=response_docs(Availability),
)
async def status(context: ContextDep, caller: ReaderDep) -> Response:
    kind = backend_of(context.settings.queue).label
    if context.queue_probe.is_down:
        return json_response({"distributed_available": False, "message": f"{kind} not available"})
    try:
        async with asyncio.timeout(QUEUE_TIMEOUT):
            workers = await context.cached(("template-workers",), lambda: _template_workers(context))
    except (ActionRequired, TimeoutError):
        return json_response({"distributed_available": False, "message": f"{kind} not available"})
    if (celery := context.celery) is not None:
        found = await context.cached(("celery",), lambda: celery.status(has_workers=workers > 0), CELERY_STATUS_SECONDS)
        return json_response(found)
    if not workers:
        return json_response({"distributed_available": False, "message": "no workers are connected: shoal worker"})
    return json_response({"distributed_available": True, "message": f"{kind} connected"})


async def _template_workers(context: ServerContext) -> int:
    """Workers that would take a run with any template."""
    statuses = await live_workers(context.queue, context.settings)
    return sum("templates" in status.serves and status.state != "draining" for status in statuses)


async def _start_or_replay(
    context: ServerContext, request: Request, caller: Caller, key: str | None, body: BatchRequest
) -> tuple[Run, bool]:
    """The run of this request; with a key that was given before, the one it began then."""
    if key is None:
        return await _start_run(context, body, ""), False
    opened = await open_key(context, caller, key, await fingerprint_of(request))
    if isinstance(opened, IdempotencyEntry):
        return await _batch_run(context, opened.answer["note"]), True
    async with keep_locked(opened) as hold:
        run = await _start_run(context, body, hold.seed)
        await store_result(hold, OperationResult(None, note=run.name))
        return run, False


async def _start_run(context: ServerContext, body: BatchRequest, seed: str) -> Run:
    options = body.options
    template, template_ref, content, settings = await batch_template(context.queue, context.settings, options)
    return await TemplateRun(
        template=template,
        template_ref=template_ref,
        urls=tuple(body.urls),
        settings=settings,
        priority=options.priority,
        here=not body.distributed,
        api={"as": "batch", "content": content, "distributed": body.distributed},
        seed=seed,
    ).start(context.queue)


async def _batch_run(context: ServerContext, session: str) -> Run:
    for run in await context.queue.runs(name=session, limit=1):
        if run.name == session and (run.spec.get("api") or {}).get("as") == "batch":
            return run
    raise not_found("batch", session, hint="POST /api/crawl/batch starts one")


async def _wait_until_settled(context: ServerContext, request: Request, run: Run, deadline: float) -> None:
    """Wait until nothing of the run is open, the time is up, or nobody waits for the answer any more."""
    pause = PAUSE
    stopping: asyncio.Event | None = getattr(getattr(request.app.state, "server", None), "stopping", None)
    while (left := deadline - time.monotonic()) > 0 and not (stopping and stopping.is_set()):
        if not (await context.queue.stats(run.id)).open or await request.is_disconnected():
            return
        try:
            await asyncio.sleep(min(pause, left))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stopping is None or not stopping.is_set() or task is None:
                raise
            task.uncancel()  # the server stops: what there is is the answer, with the session to go on with
            return
        pause = min(pause * 1.3, MAX_PAUSE)


async def _batch_response(context: ServerContext, run: Run, headers: dict[str, str]) -> Response:
    """Streamed: however many pages there are, a few of them are in memory at a time."""
    known = await urls_of_run(context.queue, context.settings, run)
    if known is None:
        raise not_found("batch", run.name, hint="its URLs were removed with it")
    run = next(iter(await context.queue.runs(name=run.name, limit=1)), run)
    results = UrlResults(context.queue, context.store, run, known, str(run.spec["api"].get("content") or ""))
    await results.check()
    notes = await _notes(context, run)
    return StreamingResponse(
        _document(run, results, notes), headers={"Cache-Control": "no-store"} | headers, media_type="application/json"
    )


async def _notes(context: ServerContext, run: Run) -> list[str]:
    if run.state != "running" or not run.spec["api"].get("distributed"):
        return []
    if (await context.queue.stats(run.id)).open and not await _template_workers(context):
        command = "shoal worker" if context.celery is None else WORKER_COMMAND
        return [f"No workers are connected; it waits for one.   {command}"]
    return []


async def _document(run: Run, results: UrlResults, notes: list[str]) -> AsyncIterator[bytes]:
    counts, comma = ResultCounts(), b""
    head = {"session_id": run.name, "distributed": bool(run.spec["api"].get("distributed")), "notes": notes}
    text = bytearray(_encode(head)[:-1] + b',"results":[')
    async for result in results.iterate():
        counts.add(result)
        text += comma + _encode(result)
        comma = b","
        if len(text) >= CHUNK_SIZE:
            yield bytes(text)
            text.clear()
    text += b'],"stats":' + _encode(counts.document()) + b"}"
    yield bytes(text)
