"""Submit: a run in one request, or addresses for it as a stream of any length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shoal.control import hooks
from shoal.control.acting import Acting
from shoal.control.idempotency import Entry, held
from shoal.control.runs import seeding_began, sown
from shoal.core.run import Run
from shoal.core.task import Ask, Task
from shoal.logs import redact
from shoal.web import ordering
from shoal.web.access import Caller, Operator
from shoal.web.answer import answer
from shoal.web.api import models
from shoal.web.api.models import Added, RunName, Submitted, described
from shoal.web.door import Door, run_settings
from shoal.web.idempotency import Done, Key, begin_print, keep, once, open_key, other_request, replay
from shoal.web.ordering import REJECTS, Placed
from shoal.web.problem import Problem
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1", tags=["submit"])
BATCH = 1_000  # lines that are added together
TURN = 250  # lines that are read between two moments in which others get their turn
LONGEST = 64_000  # bytes of a line
PLAIN, LINES = ("text/plain", "application/octet-stream", ""), ("application/x-ndjson", "application/jsonl")
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string", "description": "One address a line."}},
            "application/x-ndjson": {
                "schema": {
                    "type": "string",
                    "description": "One object a line: url, priority, meta, delay, ttl, method, headers.",
                }
            },
        },
    }
}


@router.post(
    "/runs",
    summary="Submit a run",
    status_code=201,
    responses=described(Submitted, 409, status=201, words="It is in the queue")
    | {200: {"model": Submitted, "description": "There was one with this key, which goes on or has ended"}},
    response_class=Response,
)
async def submit(
    room: In, caller: Operator, request: Request, order: models.NewRun, key: Key = None
) -> Response:
    """Addresses with a scraper, a template or fields. Workers anywhere serve it as soon as it is there."""

    async def work(seed: str) -> Done:
        placed = await ordering.place(room, order, seed)
        told = await _told(room, placed)
        if placed.status == "submitted":
            await Acting(room.queue, caller.name).did("submit", placed.run.name, addresses=placed.added)
        room.touched()
        if order.here:
            room.crew.wake()
        headers = {"Location": f"/api/v1/runs/{placed.run.name}"}
        # Kept without the run itself, which changes, and without what may be shown only to who asked.
        note = {"run": placed.run.name, "told": told | {"hooks": []}, "status": _status(placed)}
        return Done(await _with_hooks(room, told, placed.run), _status(placed), headers, note)

    async def again(note: Any) -> Done:
        found = await room.queue.runs(name=note["run"], limit=1)  # none: it was removed meanwhile
        told = await _with_hooks(room, note["told"], found[0]) if found else note["told"]
        return Done(told, note["status"], {"Location": f"/api/v1/runs/{note['run']}"})

    return await once(room, request, caller, key, work, again)


def _status(placed: Placed) -> int:
    return 201 if placed.status == "submitted" else 200


async def _told(room: Room, placed: Placed) -> dict[str, Any]:
    return {
        "run": placed.run.name,
        "scraper": placed.run.scraper,
        "status": placed.status,
        "added": placed.added,
        "known": placed.known,
        "rejected": placed.rejected,
        "rejects": list(placed.rejects),
        "worker_command": ordering.command_for(room, placed.run),
        "notes": list(placed.notes),
    }


async def _with_hooks(room: Room, told: dict[str, Any], run: Run) -> dict[str, Any]:
    """With the keys that its hooks are signed with, where nobody chose a secret."""
    made = []
    for hook in hooks.hooks_of(run):
        key = "" if hook.secret else await hooks.key_of(room.queue, hook.id)
        made.append({"id": hook.id, "url": hook.url, "events": list(hook.events), "secret": key or None})
    return told | {"hooks": made}


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of NDJSON."""

    url: Annotated[str, msgspec.Meta(max_length=8_192)]
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] | None = None
    meta: dict[str, Any] | None = None
    delay: Annotated[float, msgspec.Meta(ge=0, le=365 * 86_400)] = 0.0
    ttl: Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    method: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z]{1,20}$")] = "GET"
    headers: dict[str, str] = {}
    body: Annotated[str, msgspec.Meta(max_length=32_000)] | None = None


_line = msgspec.json.Decoder(Line).decode


class Counts(msgspec.Struct):
    """What became of the lines so far."""

    read: int = 0
    added: int = 0
    known: int = 0
    rejected: int = 0
    rejects: list[dict[str, Any]] = []

    def reject(self, line: int, text: str, why: str) -> None:
        self.rejected += 1
        if len(self.rejects) < REJECTS:
            self.rejects.append({"line": line, "url": redact(text[:500]), "why": why})


@router.post(
    "/runs/{run}/tasks",
    summary="Add addresses as a stream",
    responses=described(Added, 404, 409, 415),
    response_class=Response,
    openapi_extra=_BODY,
)
async def add_tasks(
    room: In,
    caller: Operator,
    request: Request,
    run: RunName,
    last: Annotated[
        bool, Query(description="These are the last: the run may end when nothing is open.")
    ] = True,
    priority: Annotated[int, Query(ge=-1_000_000, le=1_000_000)] = 0,
    key: Key = None,
) -> Response:
    """As many lines as you like: they are added while they arrive, and never held all at once.

    An interrupted stream leaves what was added; sending it again adds only what is missing. Until a stream
    with `last` has come to its end, the run is not finished, also when nothing is open.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (*PLAIN, *LINES):
        raise Problem(
            415, "wrong-content", "send text/plain or application/x-ndjson", hint="one address a line"
        )
    found = await room.run(run)
    print = begin_print(request)
    lines = _lines(_body(request, print.update))
    if key is None:
        return answer(await _take(room, caller, found, lines, kind in LINES, last, priority))
    opened = await open_key(room, caller, key)
    if isinstance(opened, Entry):
        async for _ in lines:
            pass
        if print.hexdigest() != opened.print:
            raise other_request()
        return await replay(opened)
    async with held(opened) as hold:
        done = Done(await _take(room, caller, found, lines, kind in LINES, last, priority))
        await keep(hold, done, print.hexdigest())
        return answer(done.document, done.status)


async def _take(
    room: Room,
    caller: Caller,
    run: Run,
    lines: AsyncIterator[bytes],
    objects: bool,
    last: bool,
    priority: int,
) -> dict[str, Any]:
    if run.state not in ("running", "paused"):
        raise _ended(run)
    await seeding_began(room.queue, run.name)
    door = Door(room.settings, await run_settings(room.queue, room.settings, run))
    counts, batch = Counts(), list[Task]()
    async for line in lines:
        if not line.strip():
            continue
        counts.read += 1
        made = (
            _object(line, counts.read, door, priority)
            if objects
            else _plain(line, counts.read, door, priority)
        )
        if isinstance(made, str):
            counts.reject(counts.read, line[:500].decode("utf-8", "replace").strip(), made)
        else:
            batch.append(made)
        if len(batch) >= BATCH:
            await _add(room, run, door, batch, counts)
            batch = []
        elif counts.read % TURN == 0:
            await asyncio.sleep(0)
    await _add(room, run, door, batch, counts)
    if last:
        await sown(room.queue, run.name)
    await Acting(room.queue, caller.name).did("add", run.name, addresses=counts.added)
    room.touched()
    return {"run": run.name, **msgspec.to_builtins(counts), "last": last}


async def _add(room: Room, run: Run, door: Door, batch: list[Task], counts: Counts) -> None:
    if not batch:
        return
    said = await room.queue.add(run.id, batch, door.paces(batch))
    if "rejected" in said:
        raise _ended(run)
    counts.added += said.count("added")
    counts.known += said.count("known")
    await asyncio.sleep(0)


def _ended(run: Run) -> Problem:
    return Problem(
        409,
        "run-ended",
        f"run {run.name} takes no more work: it has ended",
        hint="POST /api/v1/runs starts one",
    )


def _plain(line: bytes, number: int, door: Door, priority: int) -> Task | str:
    if len(line) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    try:
        return door.task(number, line.decode("utf-8-sig" if number == 1 else "utf-8").strip(), priority)
    except UnicodeDecodeError:
        return "not UTF-8"


def _object(line: bytes, number: int, door: Door, priority: int) -> Task | str:
    if len(line) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    try:
        given = _line(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"not understood: {str(error)[:200]}"
    made = door.task(number, given.url, priority if given.priority is None else given.priority)
    if isinstance(made, str):
        return made
    if any(redact((name, value)) != [name, value] for name, value in given.headers.items()):
        return "a header holds a secret, and what is asked for is kept in the queue"
    if any(
        not (name + value).isprintable() or not name or ":" in name for name, value in given.headers.items()
    ):
        return "a header is not one line of text"
    made = msgspec.structs.replace(
        made, delay=given.delay, ttl=given.ttl, meta=(made.meta or {}) | (given.meta or {})
    )
    method = given.method.upper()
    if method == "GET" and not given.headers and given.body is None:
        return made
    body = None if given.body is None else given.body.encode()
    return door.asked(made, Ask(method, tuple(given.headers.items()), body))


async def _body(request: Request, note: Any) -> AsyncIterator[bytes]:
    try:
        async for part in request.stream():
            note(part)
            yield part
    except ClientDisconnect:
        raise Problem(
            400, "interrupted", "the stream ended before its end", hint="send it again: what is there stays"
        ) from None


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines cut from a stream; of one that is too long no more than its beginning is held."""
    rest = b""
    async for part in parts:
        first, *others = part.split(b"\n")
        if not others:
            rest = (rest + first)[: LONGEST + 1]
            continue
        yield rest + first[: max(0, LONGEST + 1 - len(rest))]
        for line in others[:-1]:
            yield line
        rest = others[-1][: LONGEST + 1]
    if rest:
        yield rest
