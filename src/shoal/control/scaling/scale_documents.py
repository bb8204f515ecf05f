"""What a scaler keeps in the queue: its state, the history of its decisions, and what people asked of it."""

from __future__ import annotations

import msgspec

from shoal.control.scaling.base import Replicas
from shoal.core.autoscale import Decision, ScaleLimits, ScaleMemory
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

LOCK = "scaler"  # whoever has it acts
STATE, HISTORY, REQUEST = "state", "history", "request"
MAX_EVENTS = 200
MAX_TEXT = 500  # letters of a reason or a problem
MAX_ATTEMPTS = 10  # of adding an event, where others do so, too


class ScaleRequest(msgspec.Struct, frozen=True):
    """What a person asked for: a number of workers, or None for as many as it takes."""

    fixed: int | None = None
    by: str = ""
    at: int = 0


class ScaleState(msgspec.Struct, frozen=True):
    """The scaler that acts, as it was after its last evaluation."""

    at: int
    driver: str
    host: str
    limits: ScaleLimits
    memory: ScaleMemory
    target: str = ""
    decision: Decision | None = None  # None: there was none, see problem
    replicas: Replicas | None = None
    problem: str = ""
    hint: str = ""
    can_choose: bool = False
    stopped: bool = False  # in good order: nobody need wait for it


class ScaleEvent(msgspec.Struct, frozen=True):
    """A change that was asked for, or a problem that came or went."""

    at: int
    driver: str
    current: int
    wanted: int
    reason: str
    problem: str = ""
    open: int = 0
    claimable: int = 0
    in_flight: int = 0


async def read_state(queue: Queue) -> ScaleState | None:
    document = await queue.document(kinds.SCALE, STATE)
    try:
        return msgspec.json.decode(document.text, type=ScaleState) if document else None
    except msgspec.MsgspecError:
        return None  # of another version, or made up by whoever may write there


async def write_state(queue: Queue, state: ScaleState) -> None:
    """The last word counts; earlier ones are not kept."""
    known = await queue.document(kinds.SCALE, STATE)
    await queue.compare_and_swap(kinds.SCALE, STATE, _encode(state), known.version if known else 0)


async def read_request(queue: Queue) -> ScaleRequest:
    document = await queue.document(kinds.SCALE, REQUEST)
    try:
        return msgspec.json.decode(document.text, type=ScaleRequest) if document else ScaleRequest()
    except msgspec.MsgspecError:
        return ScaleRequest()


async def write_request(queue: Queue, request: ScaleRequest) -> None:
    for _ in range(MAX_ATTEMPTS):
        known = await queue.document(kinds.SCALE, REQUEST)
        version = known.version if known else 0
        if await queue.compare_and_swap(kinds.SCALE, REQUEST, _encode(request), version) is not None:
            return


async def read_history(queue: Queue) -> list[ScaleEvent]:
    """The last events, the newest first."""
    document = await queue.document(kinds.SCALE, HISTORY)
    try:
        return msgspec.json.decode(document.text, type=list[ScaleEvent])[:MAX_EVENTS] if document else []
    except msgspec.MsgspecError:
        return []


async def add_event(queue: Queue, event: ScaleEvent) -> None:
    event = msgspec.structs.replace(event, reason=event.reason[:MAX_TEXT], problem=event.problem[:MAX_TEXT])
    for _ in range(MAX_ATTEMPTS):
        known = await queue.document(kinds.SCALE, HISTORY)
        events = [event, *await read_history(queue)][:MAX_EVENTS]
        version = known.version if known else 0
        if await queue.compare_and_swap(kinds.SCALE, HISTORY, _encode(events), version) is not None:
            return


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
