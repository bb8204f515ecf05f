"""Carry: a run on its way to another queue, or from one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Literal

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.core.task import Attempt, Carried, Task, band
from shoal.errors import Usage
from shoal.queue.base import StoredRecord
from shoal.queue.redis.admit import Lanes
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import (
    DIGEST,
    SECOND,
    Item,
    micros,
    pack_body,
    pack_history,
    unpack_held,
    unpack_item,
    unpack_row,
)
from shoal.queue.redis.runs import unknown

OUT = 500  # tasks per call
IN = 100
RECORDS = 500  # per call …
RECORD_BYTES = 4 << 20  # … and what they may weigh together
ALTERED = 10  # times that a run may change while its digests are gathered
HISTORY = 20  # attempts that are kept of a task
_MASK = (1 << TASK_BITS) - 1
_HEAD = Struct(">IBHBHBdddBdIIB10s")
_SEQ = Struct(">dI")
_STATES = {"ready": 1, "done": 2, "dead": 3, "cancelled": 4, "seen": 5}
_NO_LANE = 0xFFFF
_COUNTERS = ("retries", "lost", "stale", "bytes", "trimmed")
_encode = msgspec.json.Encoder().encode


async def out(engine: Engine, run: int, after: int, limit: int) -> list[Carried]:
    found: list[Carried] = []
    first = after + 1
    while first and len(found) < limit:
        word, *told = await engine.run("carry_out", run, first, min(OUT, limit - len(found)))
        if word == b"index":
            await _index(engine, run)
            continue
        if word == b"unknown":
            raise unknown(run)
        if word == b"running":
            raise Usage(
                f"run {told[0].decode()} is running: it cannot be carried away", hint="pause it first"
            )
        first, now, *tasks = told
        found += [_carried(run, now, *task) for task in tasks]
    return found


async def _index(engine: Engine, run: int) -> None:
    for _ in range(ALTERED):
        bucket, marks = 0, 0
        while bucket >= 0:
            bucket, marks = await engine.run("index", run, bucket, marks)
        if bucket == -1:
            return
    raise Usage(f"run {run} is changing all the time", hint="stop its workers, or wait until they are done")


def _carried(
    run: int, now: int, number: int, where: bytes, text: bytes, lane: bytes, digest: bytes, also: bytes
) -> Carried:
    aliases = tuple(also[at : at + DIGEST] for at in range(0, len(also), DIGEST))
    if where == b"gone":
        return Carried(number, Task(url="", lane=lane.decode(), digest=digest), "seen", also=aliases)
    if where == b"row":
        row = unpack_row(text)
        state: Literal["done", "dead", "cancelled"] = row.state  # type: ignore[assignment]
        ttl = (row.item.expires_at - now) / SECOND if row.item.expires_at and state == "dead" else None
        return Carried(
            number, _task(row.item, lane, digest, ttl=ttl), state, row.attempts, row.lost, row.item.added_at,
            row.ended_at, row.cause, row.history, row.evidence, row.first_record, row.records, aliases,
        )  # fmt: skip
    item = unpack_held(text).item if where in (b"held", b"late") else unpack_item(text)
    if where in (b"late", b"left"):  # cancelled with its run
        return Carried(
            number, _task(item, lane, digest), "cancelled", item.attempts, item.lost, item.added_at,
            history=item.history, also=aliases,
        )  # fmt: skip
    waits = where == b"odd" and item.delayed and item.due_at > now
    delay = (item.due_at - now) / SECOND if waits else 0.0
    ttl = (item.expires_at - now) / SECOND if item.expires_at else None
    task = _task(item, lane, digest, delay=delay, ttl=ttl)
    return Carried(
        number, task, "ready", item.attempts, item.lost, item.added_at, history=item.history, also=aliases
    )


def _task(item: Item, lane: bytes, digest: bytes, *, delay: float = 0.0, ttl: float | None = None) -> Task:
    url, kind, priority, depth, parent = item.view
    return Task(
        url, lane.decode(), digest, kind, priority, depth, None if parent is None else parent & _MASK,
        item.meta, delay, ttl, item.ask,
    )  # fmt: skip


async def in_(
    engine: Engine,
    run: int,
    tasks: Sequence[Carried],
    records: Sequence[StoredRecord],
    paces: Mapping[str, Pace],
    counts: Stats | None,
) -> None:
    calls = [_words(run, part, (), paces, None) for part in _slices(tasks)]
    calls += [_words(run, (), part, paces, None) for part in _weighed(records)]
    if counts is not None or not calls:
        calls.append(_words(run, (), (), paces, counts))
    for words in calls:
        word, *about = await engine.run("carry_in", *words)
        if word == b"unknown":
            raise unknown(run)
        if word == b"busy":
            name, state = (text.decode() for text in about)
            raise Usage(f"run {name} is {state}: only a paused run takes over work", hint="pause it first")
        if word == b"missing":
            raise Usage(
                f"the records from {about[0]} on are missing: they are taken over in order",
                hint="go on where it was left, or begin again",
            )


def _slices(tasks: Sequence[Carried]) -> Iterator[Sequence[Carried]]:
    for at in range(0, len(tasks), IN):
        yield tasks[at : at + IN]


def _weighed(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    part: list[StoredRecord] = []
    size = 0
    for record in records:
        if part and (len(part) >= RECORDS or size + len(record.data) > RECORD_BYTES):
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record.data)
    if part:
        yield part


def _words(
    run: int,
    tasks: Sequence[Carried],
    records: Sequence[StoredRecord],
    paces: Mapping[str, Pace],
    counts: Stats | None,
) -> list[Any]:
    lanes = Lanes(paces)
    packed = [word for carried in tasks for word in _packed(run, carried, lanes)]
    rows = [_SEQ.pack(record.seq, record.task & _MASK) + record.data for record in records]
    counters = [] if counts is None else [(name, getattr(counts, name)) for name in _COUNTERS]
    skipped = [] if counts is None else list(counts.skipped.items())
    words: list[Any] = [run, *lanes.arguments(), len(rows), *rows]
    for pairs in (counters, skipped):
        words += (len(pairs), *(word for pair in pairs for word in pair))
    return words + packed


def _packed(run: int, carried: Carried, lanes: Lanes) -> tuple[bytes | str, ...]:
    task, history = carried.task, _shortened(carried.history)
    lane = _NO_LANE if carried.state == "seen" else lanes.number(task.lane)
    head = _HEAD.pack(
        carried.number,
        _STATES[carried.state],
        lane,
        band(task.priority),
        min(carried.attempts, 65535),
        min(carried.lost, 255),
        carried.added_at,
        micros(task.delay),
        micros(task.ttl or 0.0),
        task.ttl is not None,
        carried.finished_at,
        carried.records,
        carried.first_record,
        len(history),
        task.digest[:DIGEST],
    )
    parent = None if task.parent is None else (run << TASK_BITS) | task.parent
    ended = carried.state in ("done", "cancelled")
    kept = msgspec.structs.replace(task, parent=parent, **({"meta": None, "ask": None} if ended else {}))
    evidence = b"" if carried.evidence is None else _encode(carried.evidence)
    also = b"".join(digest[:DIGEST] for digest in carried.also)
    return head, pack_history(history), carried.cause, evidence, also, pack_body(kept)


def _shortened(history: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    return history if len(history) <= HISTORY else (history[0], *history[1 - HISTORY :])
