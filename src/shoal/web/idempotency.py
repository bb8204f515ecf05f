"""Requests with an Idempotency-Key: done once, answered as often as they are repeated."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from shoal.control.idempotency import Busy, Entry, Hold, Reused, begin, held, name_of
from shoal.web.access import Caller
from shoal.web.answer import answer
from shoal.web.problem import Problem
from shoal.web.room import Room

REPLAYED = "Idempotency-Replayed"

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeating a request with the same key within a day does nothing and answers the same.",
    ),
]


class Done(msgspec.Struct, frozen=True):
    """What was done. With a `note` only that is kept, and a repeated answer is made from it anew."""

    document: Any
    status: int = 200
    headers: dict[str, str] = {}
    note: Any = None


Work = Callable[[str], Awaitable[Done]]  # given a seed: the same for every repetition, else a new one
Again = Callable[[Any], Awaitable[Done]]  # given the note


async def once(
    room: Room, request: Request, caller: Caller, key: str | None, work: Work, again: Again | None = None
) -> Response:
    """Do it, or answer as it was answered. Only what went well is kept.

    `work` must be such that repeating it with the same seed is harmless: a crash may come before its answer.
    """
    if key is None:
        return _response(await work(""))
    opened = await open_key(room, caller, key, await print_of(request))
    if isinstance(opened, Entry):
        return await replay(opened, again)
    async with held(opened) as hold:
        done = await work(hold.seed)
        await keep(hold, done)
        return _response(done)


async def open_key(room: Room, caller: Caller, key: str, print: str = "") -> Hold | Entry:
    try:
        return await begin(room.queue, name_of(caller.name, key), print)
    except Reused:
        raise other_request() from None
    except Busy as busy:
        raise Problem(
            409,
            "key-in-use",
            "a request with this Idempotency-Key is being worked on",
            hint="repeat it in a moment: it is then answered, and nothing is done twice",
            headers={"Retry-After": str(math.ceil(busy.after))},
        ) from None


async def keep(hold: Hold, done: Done, print: str = "") -> None:
    whole = {"document": done.document, "headers": done.headers} if done.note is None else {"note": done.note}
    await hold.finish(done.status, msgspec.to_builtins(whole), print)


async def replay(entry: Entry, again: Again | None = None) -> Response:
    kept = entry.answer
    if "note" in kept and again is not None:
        return _response(await again(kept["note"]), replayed=True)
    return _response(Done(kept["document"], entry.status, kept["headers"]), replayed=True)


def other_request() -> Problem:
    return Problem(
        422,
        "key-reused",
        "this Idempotency-Key came with another request before",
        hint="a new key for a new request",
    )


async def print_of(request: Request) -> str:
    """The fingerprint of a request whose body is at hand."""
    print = begin_print(request)
    print.update(await request.body())
    return print.hexdigest()


def begin_print(request: Request) -> hashlib._Hash:
    print = hashlib.sha256()
    content = request.headers.get("content-type", "")
    for part in (request.method, request.url.path, request.url.query, content):
        print.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return print


def _response(done: Done, *, replayed: bool = False) -> Response:
    headers = done.headers | ({REPLAYED: "true"} if replayed else {})
    return answer(done.document, done.status, headers)
