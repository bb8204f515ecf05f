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

from shoal.errors import Act, ShoalError
from shoal.web.access import Caller, Reader, needs
from shoal.web.api import models
from shoal.web.api.models import problems
from shoal.web.live import FLEET, PING, TOPICS, Hub, Subscriber
from shoal.web.problem import Problem, problem_of
from shoal.web.room import In, Room

router = APIRouter(tags=["events"])

Topic = Annotated[str, models.StringConstraints(max_length=210, pattern=r"^(fleet|run:[^\x00-\x1f\x7f]+)$")]

_STREAM: dict[int | str, Any] = {
    200: {
        "description": "One event after the other; each is {event, at, data}.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/api/v1/events",
    summary="What happens, as it happens",
    responses=_STREAM | problems(404),
    response_class=Response,
)
async def events(
    room: In,
    caller: Reader,
    topic: Annotated[
        list[Topic] | None, Query(max_length=TOPICS, description="fleet, or run:NAME; several may be given.")
    ] = None,
) -> Response:
    """Server-sent events: `fleet` and `run` about once a second, `state` and `action` when there is one."""
    topics = await _meant(room, topic or [FLEET])
    return StreamingResponse(
        _stream(room.hub, topics, _allowed(room, caller)),
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        media_type="text/event-stream",
    )


async def _meant(room: Room, topics: Sequence[str]) -> list[str]:
    """The same, with the names that runs really have; 404 for one that is not there."""
    made = []
    for topic in dict.fromkeys(topics):
        kind, _, name = topic.partition(":")
        made.append(f"run:{(await room.run(name)).name}" if kind == "run" else FLEET)
    return made


Allowed = Callable[[], Awaitable[bool]]


def _allowed(room: Room, caller: Caller) -> Allowed:
    """Asked again and again: who watches for hours may have lost the right to meanwhile."""

    async def ask() -> bool:
        try:
            return await room.gate.still(caller)
        except Act:
            return True  # the queue is away: nobody can have changed that

    return ask


async def _stream(hub: Hub, topics: Sequence[str], allowed: Allowed) -> AsyncIterator[bytes]:
    async with hub.subscribe(topics) as subscriber:
        yield b": hello\n\n"
        while not subscriber.closed:
            event = await subscriber.next(PING)
            if not await allowed():
                return
            yield event.sse if event is not None else b": ping\n\n"


@router.websocket("/ws")
async def ws(socket: WebSocket) -> None:
    """The same events, one message each; ?topic=run:NAME as above, `fleet` unless given."""
    room: Room = socket.app.state.room
    try:
        caller = await needs("read")(socket)
        given = socket.query_params.getlist("topic")[:TOPICS] or [FLEET]
        topics = await _meant(room, msgspec.convert(given, type=list[_Topic]))
    except msgspec.ValidationError:
        await _refuse(socket, Problem(422, "unknown-topic", "a topic is fleet or run:NAME"))
        return
    except Problem as problem:
        await _refuse(socket, problem)
        return
    except ShoalError as error:
        await _refuse(socket, problem_of(error))
        return
    await socket.accept()
    async with room.hub.subscribe(topics) as subscriber:
        await _converse(socket, subscriber, _allowed(room, caller))


_Topic = Annotated[str, msgspec.Meta(max_length=210, pattern=r"^(fleet|run:[^\x00-\x1f\x7f]+)$")]


async def _refuse(socket: WebSocket, problem: Problem) -> None:
    await socket.send_denial_response(problem.response(socket.url.path))


async def _converse(socket: WebSocket, subscriber: Subscriber, allowed: Allowed) -> None:
    """Send what there is until either side ends it; what the other says is read and not needed."""

    async def hear() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.receive_text()

    async def send() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while not subscriber.closed:
                event = await subscriber.next(PING)
                if not await allowed():
                    return
                await socket.send_text(event.json.decode() if event is not None else '{"event":"ping"}')

    both = [asyncio.create_task(hear()), asyncio.create_task(send())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(1001)
