"""Requests with an Idempotency-Key: done once, answered as often as they are repeated."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from shoal.control.idempotency import (
    LOCK_TTL,
    IdempotencyEntry,
    KeyLock,
    KeyReused,
    RequestInProgress,
    acquire,
    document_name,
    keep_locked,
)
from shoal.web.auth.access import Caller
from shoal.web.context import ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

REPLAYED_HEADER = "Idempotency-Replayed"
# A proxy sends a request again whose server died: by then that server is taken for dead.
REPEAT_TIMEOUT = LOCK_TTL + 2.0  # seconds
REPEAT_INTERVAL = 0.25

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeating a request with the same key within a day has no effect and returns the same.",
    ),
]


class OperationResult(msgspec.Struct, frozen=True):
    """What was done. With a `note` only that is kept, and a repeated answer is made from it anew."""

    document: Any
    status: int = 200
    headers: dict[str, str] = {}
    note: Any = None


# Given a seed: the same for every repetition, else a new one.
OperationFn = Callable[[str], Awaitable[OperationResult]]
RebuildFn = Callable[[Any], Awaitable[OperationResult]]  # given the note


async def idempotent(
    context: ServerContext,
    request: Request,
    caller: Caller,
    key: str | None,
    operation: OperationFn,
    rebuild: RebuildFn | None = None,
) -> Response:
    """Do it, or answer as it was answered. Only what went well is kept.

    Repeating `operation` with the same seed must be harmless: a crash may come before its answer.
    """
    if key is None:
        return _response(await operation(""))
    opened = await open_key(context, caller, key, await fingerprint_of(request))
    if isinstance(opened, IdempotencyEntry):
        return await replay(opened, rebuild)
    async with keep_locked(opened) as hold:
        done = await operation(hold.seed)
        await store_result(hold, done)
        return _response(done)


async def open_key(
    context: ServerContext, caller: Caller, key: str, fingerprint: str = ""
) -> KeyLock | IdempotencyEntry:
    """The right to work on it, or its answer. A stream, which has no fingerprint yet, does not wait for another."""
    try:
        name = document_name(caller.name, key)
        if not fingerprint:
            return await acquire(context.queue, name)
        return await _acquire_or_wait(context, caller, name, fingerprint)
    except KeyReused:
        raise key_reused() from None
    except RequestInProgress as busy:
        raise Problem(
            409,
            "idempotency-key-in-use",
            "a request with this Idempotency-Key is in progress",
            hint="repeat it in a moment for its response; nothing is done twice",
            headers={"Retry-After": str(math.ceil(busy.after))},
        ) from None


async def _acquire_or_wait(
    context: ServerContext, caller: Caller, name: str, fingerprint: str
) -> KeyLock | IdempotencyEntry:
    """The same; a repeated request waits for the first one, unless too many do."""
    try:
        return await acquire(context.queue, name, fingerprint)
    except RequestInProgress:
        if not await context.repeat_slots.take(caller.name):
            raise
    try:
        end = asyncio.get_running_loop().time() + REPEAT_TIMEOUT
        while True:
            await asyncio.sleep(REPEAT_INTERVAL)
            try:
                return await acquire(context.queue, name, fingerprint)
            except RequestInProgress:
                if asyncio.get_running_loop().time() >= end:
                    raise
    finally:
        context.repeat_slots.release(caller.name)


async def store_result(hold: KeyLock, done: OperationResult, fingerprint: str = "") -> None:
    whole = {"document": done.document, "headers": done.headers} if done.note is None else {"note": done.note}
    await hold.finish(done.status, msgspec.to_builtins(whole), fingerprint)


async def replay(entry: IdempotencyEntry, rebuild: RebuildFn | None = None) -> Response:
    kept = entry.answer
    if "note" in kept and rebuild is not None:
        return _response(await rebuild(kept["note"]), replayed=True)
    return _response(OperationResult(kept["document"], entry.status, kept["headers"]), replayed=True)


def key_reused() -> Problem:
    return Problem(
        422,
        "idempotency-key-reused",
        "this Idempotency-Key was used with another request before",
        hint="use a new key for a new request",
    )


async def fingerprint_of(request: Request) -> str:
    """The fingerprint of a request whose body is at hand."""
    fingerprint = start_fingerprint(request)
    fingerprint.update(await request.body())
    return fingerprint.hexdigest()


def start_fingerprint(request: Request) -> hashlib._Hash:
    fingerprint = hashlib.sha256()
    content = request.headers.get("content-type", "")
    for part in (request.method, request.url.path, request.url.query, content):
        fingerprint.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return fingerprint


def _response(done: OperationResult, *, replayed: bool = False) -> Response:
    headers = done.headers | ({REPLAYED_HEADER: "true"} if replayed else {})
    return json_response(done.document, done.status, headers)
