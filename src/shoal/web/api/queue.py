"""The queue's own verbs over HTTP, for workers and producers that reach this server and not its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal.control.actions import BATCH_SIZE, included_states, matching_tasks
from shoal.core.run import Run
from shoal.core.task import State
from shoal.errors import ShoalError
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.document_kinds import is_server_only
from shoal.queue.registry import backend_of
from shoal.queue.wire import MAX_WAIT, MEDIA_TYPE, PROTOCOL, VERBS, ServerInfo
from shoal.version import __version__
from shoal.web.api.queue_actions import log_verb
from shoal.web.auth.access import WorkerDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.problem import Problem, not_found, problem_of
from shoal.web.http.request_cost import MAX_INT, RequestTooCostly, limit_cost, unstorable

router = APIRouter(prefix="/api/v1/queue", tags=["queue"])
MAX_MESSAGE = 64_000_000  # bytes of one message: a settle with its records
MAX_TOTAL = 192_000_000  # of all messages that are being read
BODY_TIMEOUT = 60.0  # seconds for a whole message
SMALL_MESSAGE = 1_000_000  # bytes up to which a message is not counted among those

MAX_SECONDS = 20.0  # seconds for one of these verbs: whoever asked is told to ask again before they give up

INCOMPLETE = "operation-incomplete"  # the kind of problem that says so
_encode = msgspec.msgpack.Encoder().encode
# What people do: whoever looks next must see it. The rest looks, or goes on all the time.
_MUTATING_VERBS = frozenset((
    "start_run", "set_run", "set_max_pages", "add", "push", "trim", "drop", "revive", "purge",
    "import_run", "save_document", "compare_and_swap", "set_lane", "command_worker", "forget_worker",
    "forget_seen", "clear_seen", "forget_failures", "cache_clear",
))  # fmt: skip
_LONG_VERBS = ("drop", "revive", "purge")
_DOCUMENT_VERBS = ("save_document", "document", "compare_and_swap", "documents")
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
    known = VERBS.get(verb)
    if known is None:
        raise not_found("verb", verb)
    try:
        args, named = known.unpack(await _body(request))
        limit_cost(verb, args, named)
    except (msgspec.DecodeError, UnicodeDecodeError, RequestTooCostly) as error:
        raise Problem(422, "invalid-message", f"this is not a message of {verb}: {error}") from None
    if verb in _DOCUMENT_VERBS and is_server_only(str(args[0])):
        raise Problem(
            403,
            "reserved-document",
            f"documents of the kind {args[0]} are internal to the server",
            hint="use the queue's own URL, from where it can be reached",
        )
    if verb == "wait":
        args = [max(0.0, min(float(args[0]), MAX_WAIT))]
    if verb == "cache_put":
        args[1] = min(args[1], context.settings.cache_size)  # what the queue's machine has room for
    about = await _removal_target(context.queue, verb, args, named)
    try:
        result = await _call(context, verb, args, named)
    except Problem as problem:
        if about and problem.kind == INCOMPLETE:
            await context.actor(caller).log_removal(verb, about, 0)  # some of it is gone
        raise
    if about and result:
        await context.actor(caller).log_removal(verb, about, result)
    if verb in _MUTATING_VERBS:
        await log_verb(context.queue, caller.name, verb, args, named, result)
        context.invalidate()
    return _msgpack_response(result if caller.has_scope("admin") else _without_hooks(result))


def _without_hooks(result: Any) -> Any:
    """Runs as whoever works on them needs them: the URL of a webhook may itself be a secret."""
    if isinstance(result, list):
        return [_without_hooks(one) for one in result] if result and isinstance(result[0], Run) else result
    if isinstance(result, Run) and "hooks" in result.spec:
        return msgspec.structs.replace(result, spec={key: it for key, it in result.spec.items() if key != "hooks"})
    return result


async def _removal_target(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> str:
    """What a verb removes for good, for the list of actions; empty if it removes nothing."""
    if verb not in ("purge", "trim"):
        return ""
    run = args[0] if verb == "trim" else named.get("run")
    if run is None:
        return "ended runs"
    found = await queue.runs(before=run + 1, limit=1) if 0 <= run < MAX_INT else []
    return found[0].name if found and found[0].id == run else ""


async def _call(context: ServerContext, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    try:
        if verb in _LONG_VERBS:
            return await _bounded(context.queue, verb, args, named)
        return await getattr(context.queue, verb)(*args, **named)
    except ShoalError as error:
        problem = problem_of(error)
        problem.more["error"] = type(error).__name__
        raise problem from None
    except (ValueError, ArithmeticError) as error:
        # Looked for only now: a store says no to such values by itself, and nearly nobody sends them.
        what = unstorable((args, named))
        if what is None:
            raise
        raise Problem(422, "invalid-message", f"this is not a message of {verb}: {what}") from error


async def _bounded(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    """A verb that may change very many tasks; each of its steps counts, also when time runs out."""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            if verb == "purge":
                return await queue.purge(*args, **named)
            return await _in_steps(queue, verb, *args, **named)
    except TimeoutError:
        raise Problem(
            503,
            INCOMPLETE,
            f"{verb} takes longer than one request may take",
            hint="repeat the request: it continues where it was",
            headers={"Retry-After": "1"},
        ) from None


async def _in_steps(queue: Queue, verb: str, run: int, where: TaskFilter, *, limit: int, **named: Any) -> int:
    """Many tasks are changed some at a time, so that everybody else gets a turn; see also Acting."""
    act = getattr(queue, verb)
    await act(run, where, limit=0, **named)  # it says whether the run takes it at all
    count = 0
    async for some in _split_filter(queue, run, where, named.get("state", "dead")):
        while count < limit and (changed := await act(run, some, limit=min(BATCH_SIZE, limit - count), **named)):
            count += changed
            await asyncio.sleep(0)
        if count >= limit:
            break
    return count


async def _split_filter(queue: Queue, run: int, where: TaskFilter, state: State) -> AsyncIterator[TaskFilter]:
    """A filter as filters that each look at few tasks."""
    if where.ids:
        for at in range(0, len(where.ids), BATCH_SIZE):
            yield msgspec.structs.replace(where, ids=where.ids[at : at + BATCH_SIZE])
    elif where == TaskFilter():
        yield where
    else:
        found = await queue.runs(before=run + 1, limit=1)
        if not found or found[0].id != run:
            return  # it was removed meanwhile
        for each in included_states(state):
            async for page in matching_tasks(queue, found[0], each, where, limit=BATCH_SIZE):
                yield TaskFilter(ids=tuple(view.id for view in page))


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
