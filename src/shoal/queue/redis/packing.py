"""Packing: tasks as the scripts keep them, see lua/items.lua for the layout."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import msgspec

from shoal.core.run import TASK_BITS
from shoal.core.task import Ask, Attempt, LaneChange, State, Task, band

DIGEST = 10  # bytes of a digest that the seen-set holds
FARTHEST = 2**31  # priorities beyond are as good as this
SECOND = 1_000_000

_LENGTH = Struct(">I")
_HEAD = Struct(">HBdd10s")
_ITEM = Struct(">BId")
_ODD = Struct(">BBIHBdddBI")
_ROW = Struct(">BdddIHBII")
_HELD = Struct(">dIB")
_CHANGE = Struct(">Bddddd")
_STATES: dict[int, State] = {1: "done", 2: "cancelled", 3: "dead"}

_pack = msgspec.msgpack.Encoder().encode
_pack_json = msgspec.json.Encoder().encode
_unpack_view = msgspec.msgpack.Decoder(tuple[str, str, int, int, int | None]).decode
_unpack_work = msgspec.json.Decoder(tuple[dict[str, Any] | None, Ask | None]).decode
_unpack_attempt = msgspec.msgpack.Decoder(tuple[int, str, str, str, int, float, int]).decode


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


def pack_task(task: Task, lane: int) -> bytes:
    """One argument: a head for the script, then the body that it keeps as it is."""
    ttl = -1 if task.ttl is None else micros(task.ttl)
    head = _HEAD.pack(lane, band(task.priority), micros(task.delay), ttl, task.digest[:DIGEST])
    return head + pack_body(task)


def pack_body(task: Task) -> bytes:
    """The view that people see, and what only the worker needs."""
    priority = max(-FARTHEST, min(task.priority, FARTHEST))
    view = _pack((task.url, task.kind, priority, task.depth, task.parent))
    work = b"" if task.meta is None and task.ask is None else _pack_json((task.meta, task.ask))
    return b"%b%b%b" % (_LENGTH.pack(len(view)), view, work)


def pack_history(history: tuple[Attempt, ...]) -> bytes:
    packed = [pack_attempt(attempt) for attempt in history]
    return b"".join(_LENGTH.pack(len(one)) + one for one in packed)


def pack_attempt(attempt: Attempt | None) -> bytes:
    return b"" if attempt is None else _pack(msgspec.structs.astuple(attempt))


def pack_change(change: LaneChange) -> bytes:
    given = (change.hold_for, change.park_for, change.spacing, change.rule, change.limit)
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

    @property
    def meta(self) -> dict[str, Any] | None:
        return _unpack_work(self.work)[0] if self.work else None

    @property
    def ask(self) -> Ask | None:
        return _unpack_work(self.work)[1] if self.work else None


class Held(NamedTuple):
    slot: int
    lane: int
    item: Item


class Row(NamedTuple):
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
    due, expires, spot, attempts, lost = added, 0.0, 0, 0, 0
    history: tuple[Attempt, ...] = ()
    if kind == 2:
        spot, _, _, attempts, lost, due, expires, _, _, size = _ODD.unpack_from(data, at)
        at += _ODD.size
        history = _unpack_history(data, at, at + size)
        at += size
    (size,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    view = _unpack_view(data[at : at + size])
    return Item(
        int(added), int(due), int(expires), spot == 1, attempts, lost, history, view, data[at + size :]
    )  # fmt: skip


def _unpack_history(data: bytes, at: int, end: int) -> tuple[Attempt, ...]:
    found = []
    while at < end:
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(Attempt(*_unpack_attempt(data[at : at + size])))
        at += size
    return tuple(found)


def unpack_held(data: bytes) -> Held:
    slot, lane, _ = _HELD.unpack_from(data)
    return Held(int(slot), lane, unpack_item(data, _HELD.size))


def row_state(data: bytes) -> State:
    return _STATES[data[0]]


def unpack_row(data: bytes) -> Row:
    state, ended, lease, _, _, attempts, lost, records, first = _ROW.unpack_from(data)
    at = _ROW.size
    texts = []
    for _ in range(3):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        texts.append(data[at : at + size])
        at += size
    item = unpack_item(data, at)
    history = (*item.history, Attempt(*_unpack_attempt(texts[2]))) if texts[2] else item.history
    evidence = msgspec.json.decode(texts[1]) if texts[1] else None
    return Row(
        _STATES[state], int(ended), int(lease), attempts, lost, records, first, texts[0].decode(), evidence,
        history, item,
    )  # fmt: skip


def split_record(data: bytes, run: int) -> tuple[int, bytes]:
    """The task a stored record belongs to, and the record."""
    (number,) = _LENGTH.unpack_from(data)
    return (run << TASK_BITS) | number, data[_LENGTH.size :]
