"""Events: what happens, as it happens, over SSE or a WebSocket; both carry the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from shoal.errors import ActionRequired, ShoalError
from shoal.web.api import models
from shoal.web.api.models import problem_docs
from shoal.web.auth.access import Caller, ReaderDep, requires_scope
from shoal.web.context import ContextDep, ServerContext
from shoal.web.event_hub import FLEET, MAX_TOPICS, PING_INTERVAL, EventHub, Subscriber
from shoal.web.http.problem import Problem, problem_of

router = APIRouter(tags=["events"])

Topic = Annotated[str, models.StringConstraints(max_length=210, pattern=r"^(fleet|run:[^\x00-\x1f\x7f]+)$")]

_STREAM: dict[int | str, Any] = {
    200: {
        "description": "One event after the other; each is {event, at, data}.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/api/v1/events", summary="Live events", responses=_STREAM | problem_docs(404))
async def events(
    context: ContextDep,
    caller: ReaderDep,
    topic: Annotated[
        list[Topic] | None, Query(max_length=MAX_TOPICS, description="fleet, or run:NAME; several may be given.")
    ] = None,
) -> Response:
    """Server-sent events: `fleet` and `run` about once a second, `state` and `action` when there is one."""
    topics = await _resolve_topics(context, topic or [FLEET])
    return StreamingResponse(
        _stream(context.hub, topics, _access_check(context, caller)),
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        media_type="text/event-stream",
    )


async def _resolve_topics(context: ServerContext, topics: Sequence[str]) -> list[str]:
    """The same, with the names that runs really have; 404 for one that is not there."""
    made = []
    for topic in dict.fromkeys(topics):
        kind, _, name = topic.partition(":")
        made.append(f"run:{(await context.find_run(name)).name}" if kind == "run" else FLEET)
    return made


AccessCheck = Callable[[], Awaitable[bool]]


def _access_check(context: ServerContext, caller: Caller) -> AccessCheck:
    """Asked again and again: who watches for hours may have lost the right to meanwhile."""

    async def ask() -> bool:
        try:
            return await context.authenticator.is_still_valid(caller)
        except ActionRequired:
            return True  # the queue is away: nobody can have changed that

    return ask


async def _stream(hub: EventHub, topics: Sequence[str], still_allowed: AccessCheck) -> AsyncIterator[bytes]:
    async with hub.subscribe(topics) as subscriber:
        yield b": hello\n\n"
        while not subscriber.closed:
            event = await subscriber.next(PING_INTERVAL)
            if not await still_allowed():
                return
            yield event.sse if event is not None else b": ping\n\n"


@router.websocket("/ws")
async def ws(socket: WebSocket) -> None:
    """The same events, one message each; ?topic=run:NAME as above, `fleet` unless given."""
    context: ServerContext = socket.app.state.context
    try:
        caller = await requires_scope("read")(socket)
        given = socket.query_params.getlist("topic")[:MAX_TOPICS] or [FLEET]
        topics = await _resolve_topics(context, msgspec.convert(given, type=list[_Topic]))
    except msgspec.ValidationError:
        await _refuse(socket, Problem(422, "invalid-topic", "a topic is fleet or run:NAME"))
        return
    except Problem as problem:
        await _refuse(socket, problem)
        return
    except ShoalError as error:
        await _refuse(socket, problem_of(error))
        return
    await socket.accept()
    async with context.hub.subscribe(topics) as subscriber:
        await _serve_websocket(socket, subscriber, _access_check(context, caller))


_Topic = Annotated[str, msgspec.Meta(max_length=210, pattern=r"^(fleet|run:[^\x00-\x1f\x7f]+)$")]


async def _refuse(socket: WebSocket, problem: Problem) -> None:
    await socket.send_denial_response(problem.response(socket.url.path))


async def _serve_websocket(socket: WebSocket, subscriber: Subscriber, still_allowed: AccessCheck) -> None:
    """Send what there is until either side ends it; what the other says is read and not needed."""

    async def receive() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.receive_text()

    async def send() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while not subscriber.closed:
                event = await subscriber.next(PING_INTERVAL)
                if not await still_allowed():
                    return
                await socket.send_text(event.json.decode() if event is not None else '{"event":"ping"}')

    both = [asyncio.create_task(receive()), asyncio.create_task(send())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(1001)
