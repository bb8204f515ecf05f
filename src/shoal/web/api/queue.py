"""The queue's own verbs over HTTP, for workers and producers that reach this server and not its database."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal.control.queue_verbs import (
    MAX_MESSAGE,
    MAX_TOTAL,
    SMALL_MESSAGE,
    InvalidMessage,
    OperationIncomplete,
    ReservedDocument,
    do_verb,
    read_verb,
    without_hooks,
)
from shoal.errors import ShoalError
from shoal.queue.base import Queue
from shoal.queue.registry import backend_of
from shoal.queue.request_cost import MAX_INT
from shoal.queue.wire import MEDIA_TYPE, PROTOCOL, VERBS, ServerInfo
from shoal.version import __version__
from shoal.web.api.queue_actions import log_verb
from shoal.web.auth.access import WorkerDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.problem import Problem, not_found, problem_of

router = APIRouter(prefix="/api/v1/queue", tags=["queue"])
BODY_TIMEOUT = 60.0  # seconds for a whole message

INCOMPLETE = "operation-incomplete"  # the kind of problem that says so
_encode = msgspec.msgpack.Encoder().encode
# What people do: whoever looks next must see it. The rest looks, or goes on all the time.
_MUTATING_VERBS = frozenset((
    "start_run", "set_run", "set_max_pages", "add", "push", "trim", "drop", "revive", "purge",
    "import_run", "save_document", "compare_and_swap", "set_lane", "command_worker", "forget_worker",
    "forget_seen", "clear_seen", "forget_failures", "cache_clear",
))  # fmt: skip
_MSGPACK: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


@router.get("", responses={200: _MSGPACK}, summary="What the queue promises")
async def hello(context: ContextDep, caller: WorkerDep) -> Response:
    return _msgpack_response(ServerInfo(__version__, PROTOCOL, context.queue.promises, _backend(context)))


def _backend(context: ServerContext) -> str:
    """What the queue is kept in, also where a server speaks for it that is behind this one."""
    own = backend_of(context.settings.queue)
    return own.name if own.promises is not None else str(getattr(context.queue, "backend", ""))


@router.post("/{verb}", responses={200: _MSGPACK}, summary="One verb of the queue")
async def call_verb(verb: str, request: Request, context: ContextDep, caller: WorkerDep) -> Response:
    """The message is MessagePack, as `shoal.queue.http` writes it; other programs use the other paths."""
    if verb not in VERBS:
        raise not_found("verb", verb)
    try:
        args, named = read_verb(verb, await _body(request), cache_size=context.settings.cache_size)
    except InvalidMessage as error:
        raise Problem(422, "invalid-message", str(error)) from None
    except ReservedDocument as error:
        raise Problem(403, "reserved-document", str(error), hint=error.hint) from None
    about = await _removal_target(context.queue, verb, args, named)
    try:
        result = await _call(context.queue, verb, args, named)
    except Problem as problem:
        if about and problem.kind == INCOMPLETE:
            await context.actor(caller).log_removal(verb, about, 0)  # some of it is gone
        raise
    if about and result:
        await context.actor(caller).log_removal(verb, about, result)
    if verb in _MUTATING_VERBS:
        await log_verb(context.queue, caller.name, verb, args, named, result)
        context.invalidate()
    return _msgpack_response(result if caller.has_scope("admin") else without_hooks(result))


async def _removal_target(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> str:
    """What a verb removes for good, for the list of actions; empty if it removes nothing."""
    if verb not in ("purge", "trim"):
        return ""
    run = args[0] if verb == "trim" else named.get("run")
    if run is None:
        return "ended runs"
    found = await queue.runs(before=run + 1, limit=1) if 0 <= run < MAX_INT else []
    return found[0].name if found and found[0].id == run else ""


async def _call(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    try:
        return await do_verb(queue, verb, args, named)
    except OperationIncomplete as error:
        raise Problem(503, INCOMPLETE, str(error), hint=error.hint, headers={"Retry-After": "1"}) from None
    except InvalidMessage as error:
        raise Problem(422, "invalid-message", str(error)) from error.__cause__
    except ShoalError as error:
        problem = problem_of(error)
        problem.more["error"] = type(error).__name__
        raise problem from None


class _LargeBodies:
    """The bytes of large messages that are being read, over all requests of this process."""

    size = 0


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = counted = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                size += len(part)
                if size > MAX_MESSAGE:
                    raise Problem(413, "request-too-large", f"a message has at most {MAX_MESSAGE:,} bytes")
                if size > SMALL_MESSAGE:
                    _LargeBodies.size += size - counted
                    counted = size
                    if _LargeBodies.size > MAX_TOTAL:
                        raise _server_busy()
                parts.append(part)
    except TimeoutError:
        raise Problem(
            408, "request-timeout", "the message did not arrive in time", headers={"Connection": "close"}
        ) from None
    finally:
        _LargeBodies.size -= counted
    return b"".join(parts)


def _server_busy() -> Problem:
    return Problem(
        429,
        "server-busy",
        "too many large messages at once",
        hint="retry in a second",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def _msgpack_response(value: object) -> Response:
    return Response(_encode(value), 200, {"Cache-Control": "no-store"}, MEDIA_TYPE)
