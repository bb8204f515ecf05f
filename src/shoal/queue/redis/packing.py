"""Packing: tasks as the scripts keep them, see lua/items.lua for the layout."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple, get_args

import msgspec

from shoal.core.capability import Needs, capability_names
from shoal.core.run import TASK_BITS
from shoal.core.task import GARBLED, Ack, Attempt, LaneChange, RequestOptions, State, Task, band
from shoal.core.task_kind import is_aside
from shoal.queue.cells import UNREADABLE, garbled, read_object, unreadable_attempt

DIGEST = 10  # bytes of a digest that the seen-set holds
MAX_PRIORITY = 2**31  # priorities beyond are as good as this
SECOND = 1_000_000

_LENGTH = Struct(">I")
_AUTO, _NEEDS, _ASIDE = 1 << 24, 2 << 24, 4 << 24  # beside the length of the view
_LENGTH_MASK = _AUTO - 1
BANDS = 8
_REVISIT = 1 << 15  # beside the number of the lane
_HEADER = Struct(">HBdd10s")
_ITEM = Struct(">BId")
STORED = Struct(">BBIHBdddBI")
_ROW = Struct(">BdddIHBII")
_HELD = Struct(">dIB")
_CHANGE = Struct(">Bddddd")
_STATES: dict[int, State] = {1: "done", 2: "cancelled", 3: "dead"}

_pack = msgspec.msgpack.Encoder().encode
_pack_json = msgspec.json.Encoder().encode


def _decoder(codec: ModuleType, kind: Any) -> Callable[[bytes], Any]:
    """Decodes a tuple; what a newer edition has put behind its fields is left out."""
    strict, count = codec.Decoder(kind).decode, len(get_args(kind))

    def decode(data: bytes) -> Any:
        try:
            return strict(data)
        except msgspec.ValidationError:
            fields = codec.decode(data)
            if not isinstance(fields, list) or len(fields) <= count:
                raise
            return msgspec.convert(fields[:count], kind)

    return decode


_unpack_view = _decoder(msgspec.msgpack, tuple[str, str, int, int, int | None])
_unpack_work = _decoder(msgspec.json, tuple[dict[str, Any] | None, RequestOptions | None])
_unpack_work_with_needs = _decoder(msgspec.json, tuple[dict[str, Any] | None, RequestOptions | None, tuple[str, ...]])
_unpack_attempt = _decoder(msgspec.msgpack, tuple[int, str, str, str, int, float, int])

_UNREADABLE_VIEW: tuple[str, str, int, int, int | None] = ("", "page", 0, 0, None)


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


def pack_line(task: Task, needs: int) -> int:
    """Where it waits in its lane: tasks of different needs, given by number, and bands wait in lines of their own."""
    return needs * BANDS + band(task.priority)


def pack_task(task: Task, lane: int, needs: int = 0) -> bytes:
    """One argument: a header for the script, then the body that it keeps as it is."""
    ttl = -1 if task.ttl is None else micros(task.ttl)
    place = lane | _REVISIT if task.revisit else lane
    header = _HEADER.pack(place, pack_line(task, needs), micros(task.delay), ttl, task.digest[:DIGEST])
    return header + pack_body(task)


def pack_body(task: Task) -> bytes:
    """The view that people see, and what only the worker needs."""
    priority = max(-MAX_PRIORITY, min(task.priority, MAX_PRIORITY))
    view = _pack((task.url, task.kind, priority, task.depth, task.parent))
    work, flags = b"", _AUTO if task.ack == "auto" else 0
    flags |= _ASIDE if is_aside(task.kind) else 0
    if task.needs:
        work, flags = _pack_json((task.meta, task.request_options, capability_names(task.needs))), flags | _NEEDS
    elif task.meta is not None or task.request_options is not None:
        work = _pack_json((task.meta, task.request_options))
    return b"%b%b%b" % (_LENGTH.pack(len(view) | flags), view, work)


def pack_history(history: tuple[Attempt, ...]) -> bytes:
    packed = [pack_attempt(attempt) for attempt in history]
    return b"".join(_LENGTH.pack(len(one)) + one for one in packed)


def pack_attempt(attempt: Attempt | None) -> bytes:
    return b"" if attempt is None else _pack(msgspec.structs.astuple(attempt))


def pack_change(change: LaneChange) -> bytes:
    given = (change.hold_for, change.park_for, change.spacing, change.spacing_override, change.limit)
    flags = sum(1 << n for n, value in enumerate(given) if value is not None)
    *times, limit = given
    return _CHANGE.pack(flags, *(micros(value or 0.0) for value in times), limit or 0)


class Item(NamedTuple):
    """A task that waits or is held."""

    added_at: int
    due_at: int
    expires_at: int  # 0: never
    delayed: bool  # it waits for that time
    attempts: int
    lost: int
    history: tuple[Attempt, ...]
    view: tuple[str, str, int, int, int | None]  # url, kind, priority, depth, parent
    work: bytes
    ack: Ack = "manual"
    has_needs: bool = False
    garbled: str = ""  # what of the others cannot be read

    def unpack_work(self) -> Work:
        if not self.work:
            return Work(garbled=self.garbled)
        try:
            found = _unpack_work_with_needs(self.work) if self.has_needs else _unpack_work(self.work)
        except UNREADABLE:
            return Work(garbled=self.garbled or garbled("work", self.work, _unpack_work_with_needs))
        return Work(found[0], found[1], found[2] if self.has_needs else (), self.garbled)


class Work(NamedTuple):
    """What only the worker needs of a task."""

    meta: dict[str, Any] | None = None
    request_options: RequestOptions | None = None
    needs: Needs = ()
    garbled: str = ""


class PackedTask(NamedTuple):
    slot: int
    lane: int
    item: Item


class EndedTask(NamedTuple):
    """A task that ended."""

    state: State
    ended_at: int
    lease: int
    attempts: int
    lost: int
    records: int
    first_record: int
    cause: str
    evidence: dict[str, object] | None
    history: tuple[Attempt, ...]
    item: Item


def unpack_item(data: bytes, at: int = 0) -> Item:
    kind, _, added = _ITEM.unpack_from(data, at)
    at += _ITEM.size
    due, expires, wait_mode, attempts, lost = added, 0.0, 0, 0, 0
    history: tuple[Attempt, ...] = ()
    if kind == 2:
        wait_mode, _, _, attempts, lost, due, expires, _, _, size = STORED.unpack_from(data, at)
        at += STORED.size
        history = _unpack_history(data, at, at + size)
        at += size
    (size,) = _LENGTH.unpack_from(data, at)
    ack: Ack = "auto" if size & _AUTO else "manual"
    has_needs = bool(size & _NEEDS)
    size &= _LENGTH_MASK
    at += _LENGTH.size
    problem = "its history cannot be read" if any(it.cause == GARBLED for it in history) else ""
    try:
        view = _unpack_view(data[at : at + size])
    except UNREADABLE:
        view, problem = _UNREADABLE_VIEW, garbled("URL", data[at : at + size], _unpack_view)
    return Item(
        int(added), int(due), int(expires), wait_mode == 1, attempts, lost, history, view, data[at + size :], ack,
        has_needs, problem,
    )  # fmt: skip


def _unpack_history(data: bytes, at: int, end: int) -> tuple[Attempt, ...]:
    found = []
    while at < end:
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(_read_attempt(data[at : at + size]))
        at += size
    return tuple(found)


def _read_attempt(packed: bytes) -> Attempt:
    try:
        return Attempt(*_unpack_attempt(packed))
    except UNREADABLE:
        return unreadable_attempt()


def unpack_held(data: bytes) -> PackedTask:
    slot, lane, _ = _HELD.unpack_from(data)
    return PackedTask(int(slot), lane, unpack_item(data, _HELD.size))


def ended_state(data: bytes) -> State:
    return _STATES[data[0]]


def unpack_ended(data: bytes) -> EndedTask:
    state, ended, lease, _, _, attempts, lost, records, first = _ROW.unpack_from(data)
    at = _ROW.size
    texts = []
    for _ in range(3):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        texts.append(data[at : at + size])
        at += size
    item = unpack_item(data, at)
    history = (*item.history, _read_attempt(texts[2])) if texts[2] else item.history
    evidence = read_object(texts[1])
    return EndedTask(
        _STATES[state], int(ended), int(lease), attempts, lost, records, first,
        texts[0].decode("utf-8", "replace"), evidence, history, item,
    )  # fmt: skip


def split_record(data: bytes, run: int) -> tuple[int, bytes]:
    """The task a stored record belongs to, and the record."""
    (number,) = _LENGTH.unpack_from(data)
    return (run << TASK_BITS) | number, data[_LENGTH.size :]
