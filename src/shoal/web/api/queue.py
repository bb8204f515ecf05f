"""The queue's own verbs over HTTP, for workers and producers that reach this server and not its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal.control.acting import AT_ONCE, matching, meant
from shoal.core.task import State
from shoal.errors import ShoalError
from shoal.queue.base import Queue, Where
from shoal.queue.http import HttpQueue
from shoal.queue.http.verbs import LONGEST_WAIT, MEDIA_TYPE, PROTOCOL, VERBS, Hello
from shoal.queue.promises import backend_of
from shoal.version import __version__
from shoal.web.access import Worker
from shoal.web.measured import NotMeasured, odd, within_measure
from shoal.web.problem import Problem, no_such, problem_of
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/queue", tags=["queue"])
LARGEST = 64_000_000  # bytes of one message: a settle with its records
ALL_LARGEST = 192_000_000  # of all messages that are being read
BODY_WITHIN = 60.0  # seconds for a whole message
SMALL = 1_000_000  # bytes up to which a message is not counted among those

LONGEST = 20.0  # seconds for one of these verbs: whoever asked is told to ask again before they give up

_encode = msgspec.msgpack.Encoder().encode
# What people do: whoever looks next must see it. The rest looks, or goes on all the time.
_ACTING = frozenset((
    "start_run", "set_run", "add", "trim", "drop", "revive", "purge", "carry_in", "keep_paper", "swap",
    "set_lane", "ask_worker", "forget_worker",
))  # fmt: skip
# Documents of the server itself: whoever works for it has no business with its keys.
_OWN_PAPERS = frozenset((
    "token", "session-key", "hook", "delivery", "idempotency", "actions", "addresses",
))  # fmt: skip
_LONG = ("drop", "revive", "purge")
_PAPERS = ("keep_paper", "paper", "swap", "papers")
_DESCRIBED: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


@router.get("", responses={200: _DESCRIBED}, response_class=Response, summary="What the queue promises")
async def hello(room: In, caller: Worker) -> Response:
    return _answer(Hello(__version__, PROTOCOL, room.queue.promises, _backend(room)))


def _backend(room: Room) -> str:
    """What the queue is kept in, also where a server speaks for it that is behind this one."""
    if isinstance(room.queue, HttpQueue):
        return room.queue.backend
    scheme = room.settings.queue.partition("://")[0] if room.settings.state_file is None else "sqlite"
    return backend_of(scheme)


@router.post("/{verb}", responses={200: _DESCRIBED}, response_class=Response, summary="One verb of the queue")
async def ask(
    verb: str,
    request: Request,
    room: In,
    caller: Worker,
) -> Response:
    """The message is MessagePack, as `shoal.queue.http` writes it; other programs use the other paths."""
    known = VERBS.get(verb)
    if known is None:
        raise no_such("verb", verb)
    try:
        args, named = known.unpack(await _body(request))
        within_measure(verb, args, named)
    except (msgspec.DecodeError, UnicodeDecodeError, NotMeasured) as error:
        raise Problem(422, "not-a-message", f"this is no message of {verb}: {error}") from None
    if verb in _PAPERS and str(args[0]).partition(".")[0] in _OWN_PAPERS:
        raise Problem(
            403,
            "not-yours",
            f"documents of the kind {args[0]} are the server's own",
            hint="give the command the queue itself, where that can be reached",
        )
    if verb == "wait":
        args = [max(0.0, min(float(args[0]), LONGEST_WAIT))]
    answer = await _asked(room, verb, args, named)
    if verb in _ACTING:
        room.touched()
    return _answer(answer)


async def _asked(room: Room, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    try:
        if verb in _LONG:
            return await _bounded(room.queue, verb, args, named)
        return await getattr(room.queue, verb)(*args, **named)
    except ShoalError as error:
        problem = problem_of(error)
        problem.more["error"] = type(error).__name__
        raise problem from None
    except (ValueError, ArithmeticError) as error:
        # Looked for only now: a store says no to such values by itself, and nearly nobody sends them.
        what = odd((args, named))
        if what is None:
            raise
        raise Problem(422, "not-a-message", f"this is no message of {verb}: {what}") from error


async def _bounded(queue: Queue, verb: str, args: list[Any], named: dict[str, Any]) -> Any:
    """A verb that may change very many tasks; each of its steps counts, also when time runs out."""
    try:
        async with asyncio.timeout(LONGEST):
            if verb == "purge":
                return await queue.purge(*args, **named)
            return await _in_steps(queue, verb, *args, **named)
    except TimeoutError:
        raise Problem(
            503,
            "takes-longer",
            f"{verb} takes longer than one request may",
            hint="ask again: it goes on where it was",
            headers={"Retry-After": "1"},
        ) from None


async def _in_steps(queue: Queue, verb: str, run: int, where: Where, *, limit: int, **named: Any) -> int:
    """Many tasks are changed some at a time, so that everybody else gets a turn; see also Acting."""
    act = getattr(queue, verb)
    await act(run, where, limit=0, **named)  # it says whether the run takes it at all
    count = 0
    async for some in _parts(queue, run, where, named.get("state", "dead")):
        while count < limit and (changed := await act(run, some, limit=min(AT_ONCE, limit - count), **named)):
            count += changed
            await asyncio.sleep(0)
        if count >= limit:
            break
    return count


async def _parts(queue: Queue, run: int, where: Where, state: State) -> AsyncIterator[Where]:
    """A filter as filters that each look at few tasks."""
    if where.ids:
        for at in range(0, len(where.ids), AT_ONCE):
            yield msgspec.structs.replace(where, ids=where.ids[at : at + AT_ONCE])
    elif where == Where():
        yield where
    else:
        found = await queue.runs(before=run + 1, limit=1)
        if not found or found[0].id != run:
            return  # it was removed meanwhile
        for each in meant(state):
            async for page in matching(queue, found[0], each, where, limit=AT_ONCE):
                yield Where(ids=tuple(view.id for view in page))


class _Pile:
    """The bytes of large messages that are being read, over all requests of this process."""

    size = 0


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = piled = 0
    try:
        async with asyncio.timeout(BODY_WITHIN):
            async for part in request.stream():
                size += len(part)
                if size > LARGEST:
                    raise Problem(413, "too-large", f"a message has at most {LARGEST:,} bytes")
                if size > SMALL:
                    _Pile.size += size - piled
                    piled = size
                    if _Pile.size > ALL_LARGEST:
                        raise _too_much()
                parts.append(part)
    except TimeoutError:
        raise Problem(
            408, "too-slow", "the message did not come in time", headers={"Connection": "close"}
        ) from None
    finally:
        _Pile.size -= piled
    return b"".join(parts)


def _too_much() -> Problem:
    return Problem(
        429,
        "too-much-at-once",
        "too many large messages come at once",
        hint="ask again in a second",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def _answer(value: object) -> Response:
    return Response(_encode(value), 200, {"Cache-Control": "no-store"}, MEDIA_TYPE)
