"""Submit: a run in one request, or URLs for it as a stream of any length."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shoal.control import webhooks
from shoal.control.idempotency import IdempotencyEntry, keep_locked
from shoal.control.join_command import join_command
from shoal.control.signing_key import derived_key
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.runs import start
from shoal.runs.identity import begin_seeding, finish_seeding
from shoal.runs.start import TaskBatches
from shoal.runs.task_line import decode_task_line, task_from_line
from shoal.runs.url_policy import RejectedUrls, UrlPolicy, run_settings
from shoal.web.api import models
from shoal.web.api.models import AddResult, RunName, SubmitResult, response_docs
from shoal.web.auth.access import Caller, OperatorDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.idempotency import (
    IdempotencyKey,
    OperationResult,
    idempotent,
    key_reused,
    open_key,
    replay,
    start_fingerprint,
    store_result,
)
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem
from shoal.web.submit import run_requests
from shoal.web.submit.run_requests import SubmittedRun
from shoal.web.submit.turns import Turns

router = APIRouter(prefix="/api/v1", tags=["submit"])
BATCH_SIZE = 1_000  # lines that are added together
MAX_LINE = 64_000  # bytes of a line
TEXT_TYPES, NDJSON_TYPES = (
    ("text/plain", "application/octet-stream", ""),
    ("application/x-ndjson", "application/jsonl"),
)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string", "description": "One URL per line."}},
            "application/x-ndjson": {
                "schema": {
                    "type": "string",
                    "description": "One object per line: url, priority, meta, delay, ttl, ack, needs, method, headers, "
                    "body, fetch, steps, exit.",
                }
            },
        },
    }
}


@router.post(
    "/runs",
    summary="Submit a run",
    status_code=201,
    responses=response_docs(SubmitResult, 409, status=201, words="It is in the queue")
    | {200: {"model": SubmitResult, "description": "A run with this key exists, unfinished or ended"}},
)
async def submit(
    context: ContextDep,
    caller: OperatorDep,
    request: Request,
    submission: models.RunSubmission,
    key: IdempotencyKey = None,
) -> Response:
    """URLs with a scraper, a template or fields. Workers anywhere start on it at once."""

    async def work(seed: str) -> OperationResult:
        submitted = await run_requests.submit_run(context, submission, seed, by_admin=caller.has_scope("admin"))
        name, status = submitted.run.name, 200
        document = _result_document(context, submitted)
        if submitted.status == "submitted":
            status = 201
            actor = context.actor(caller)
            await actor.log_action("submit", name, urls=submitted.added)
        context.invalidate()
        if submission.here:
            context.worker_pool.wake()
        headers = {"Location": f"/api/v1/runs/{name}"}
        # Kept without the run itself, which changes, and without what may be shown only to who asked.
        told = submitted.run if submitted.has_own_hooks else None
        note = {"run": name, "document": document | {"hooks": []}, "status": status, "told": told and told.id}
        shown = await _with_hooks(context, document, told)
        return OperationResult(shown, status, headers, note)

    async def rebuild(note: Any) -> OperationResult:
        found = await context.queue.runs(name=note["run"], limit=1)  # none: it was removed meanwhile
        told = found[0] if found and found[0].id == note.get("told") else None
        document = await _with_hooks(context, note["document"], told)
        return OperationResult(document, note["status"], {"Location": f"/api/v1/runs/{note['run']}"})

    return await idempotent(context, request, caller, key, work, rebuild)


def _result_document(context: ServerContext, submitted_run: SubmittedRun) -> dict[str, Any]:
    return {
        "run": submitted_run.run.name,
        "scraper": submitted_run.run.scraper,
        "status": submitted_run.status,
        "added": submitted_run.added,
        "known": submitted_run.known,
        "seen": submitted_run.seen,
        "failing": submitted_run.failing,
        "rejected": submitted_run.rejected,
        "rejects": list(submitted_run.rejects),
        "worker_command": join_command(context.settings, submitted_run.run),
        "notes": list(submitted_run.notes),
    }


async def _with_hooks(context: ServerContext, document: dict[str, Any], run: Run | None) -> dict[str, Any]:
    """With its hooks and their keys, which only the request that began the run is told; None: it was another."""
    made = []
    for hook in webhooks.webhooks_of(run) if run else ():
        key = "" if hook.secret else await derived_key(context.queue, hook.id)
        made.append({"id": hook.id, "url": hook.url, "events": list(hook.events), "secret": key or None})
    return document | {"hooks": made}


@router.post(
    "/runs/{run}/tasks",
    summary="Add URLs as a stream",
    responses=response_docs(AddResult, 404, 409, 415),
    openapi_extra=_BODY,
)
async def add_tasks(
    context: ContextDep,
    caller: OperatorDep,
    request: Request,
    run: RunName,
    last: Annotated[bool, Query(description="These are the last: the run may end when nothing is open.")] = True,
    priority: Annotated[int, Query(ge=-1_000_000, le=1_000_000)] = 0,
    key: IdempotencyKey = None,
) -> Response:
    """Any number of lines: they are added while they arrive, and never held all at once.

    An interrupted stream leaves what was added; sending it again adds only what is missing. Until a stream
    with `last` has come to its end, the run is not finished, also when nothing is open.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (*TEXT_TYPES, *NDJSON_TYPES):
        raise Problem(415, "unsupported-media-type", "send text/plain or application/x-ndjson", hint="one URL per line")
    found = await context.find_run(run)
    fingerprint = start_fingerprint(request)
    lines = _lines(_body(request, fingerprint.update))
    if key is None:
        return json_response(await _read_and_add(context, caller, found, lines, kind in NDJSON_TYPES, last, priority))
    opened = await open_key(context, caller, key)
    if isinstance(opened, IdempotencyEntry):
        async for _ in lines:
            pass
        if fingerprint.hexdigest() != opened.fingerprint:
            raise key_reused()
        return await replay(opened)
    async with keep_locked(opened) as hold:
        done = OperationResult(await _read_and_add(context, caller, found, lines, kind in NDJSON_TYPES, last, priority))
        await store_result(hold, done, fingerprint.hexdigest())
        return json_response(done.document, done.status)


async def _read_and_add(
    context: ServerContext,
    caller: Caller,
    run: Run,
    lines: AsyncIterator[bytes],
    objects: bool,
    last: bool,
    priority: int,
) -> dict[str, Any]:
    if run.state not in ("running", "paused"):
        raise _run_ended(run)
    await begin_seeding(context.queue, run.name)
    policy = UrlPolicy(context.settings, await run_settings(context.queue, context.settings, run))
    rejects, read, turns = RejectedUrls(), 0, Turns()

    async def batches() -> TaskBatches:
        nonlocal read
        batch = list[Task]()
        make = _task_from_json if objects else _task_from_text
        async for line in lines:
            if not line.strip():
                continue
            read += 1
            made = make(line, read, policy, priority)
            if isinstance(made, str):
                rejects.add(read, line[:500].decode("utf-8", "replace").strip(), made)
            else:
                batch.append(made)
            if len(batch) >= BATCH_SIZE:
                yield batch, policy.paces(batch)
                batch = []
            await turns.pause()
        yield batch, policy.paces(batch)

    found = await start.add_tasks(context.queue, run, batches())
    if found.is_refused:
        raise _run_ended(run)
    if last:
        await finish_seeding(context.queue, run.name)
    await context.actor(caller).log_action("add", run.name, urls=found.added)
    context.invalidate()
    return {
        "run": run.name,
        "read": read,
        "added": found.added,
        "known": found.known,
        "seen": found.seen,
        "failing": found.failing,
        "rejected": rejects.count,
        "rejects": rejects.first,
        "last": last,
    }


def _run_ended(run: Run) -> Problem:
    return Problem(
        409, "run-ended", f"run {run.name} takes no more work: it has ended", hint="POST /api/v1/runs starts one"
    )


def _task_from_text(line: bytes, number: int, policy: UrlPolicy, priority: int) -> Task | str:
    if len(line) > MAX_LINE:
        return f"longer than {MAX_LINE:,} bytes"
    try:
        return policy.make_task(number, line.decode("utf-8-sig" if number == 1 else "utf-8").strip(), priority)
    except UnicodeDecodeError:
        return "not UTF-8"


def _task_from_json(line: bytes, number: int, policy: UrlPolicy, priority: int) -> Task | str:
    if len(line) > MAX_LINE:
        return f"longer than {MAX_LINE:,} bytes"
    try:
        given = decode_task_line(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"not understood: {str(error)[:200]}"
    return task_from_line(given, number, policy, priority)


async def _body(request: Request, note: Any) -> AsyncIterator[bytes]:
    try:
        async for part in request.stream():
            note(part)
            yield part
    except ClientDisconnect:
        raise Problem(
            400, "body-interrupted", "the stream was cut off", hint="send it again: what was added stays"
        ) from None


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines cut from a stream; of one that is too long no more than its beginning is held."""
    rest = b""
    async for part in parts:
        first, *others = part.split(b"\n")
        if not others:
            rest = (rest + first)[: MAX_LINE + 1]
            continue
        yield rest + first[: max(0, MAX_LINE + 1 - len(rest))]
        for line in others[:-1]:
            yield line
        rest = others[-1][: MAX_LINE + 1]
    if rest:
        yield rest
