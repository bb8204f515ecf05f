"""Export and import: a run is moved to another queue, or from one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Literal

import msgspec

from shoal.core.capability import capability_names
from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.core.task import Attempt, ExportedTask, Task
from shoal.errors import UsageError
from shoal.queue.base import StoredRecord
from shoal.queue.cells import unmovable
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.redis.admit import Lanes
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.needs import Numbers, numbers_for
from shoal.queue.redis.packing import (
    DIGEST,
    SECOND,
    Item,
    micros,
    pack_body,
    pack_history,
    pack_line,
    unpack_ended,
    unpack_held,
    unpack_item,
)
from shoal.queue.redis.runs import unknown

OUT = 500  # tasks per call
IN = 100
RECORDS = 500  # per call …
RECORD_BYTES = 4 << 20  # … and what they may weigh together
ALTERED = 10  # times that a run may change while its digests are gathered
HISTORY = 20  # attempts that are kept of a task
_MASK = (1 << TASK_BITS) - 1
_HEADER = Struct(">IBHBHBdddBdIIB10s")
_SEQ = Struct(">dI")
_STATES = {"ready": 1, "done": 2, "dead": 3, "cancelled": 4, "seen": 5, "discarded": 6}
_NO_LANE = 0xFFFF
_COUNTERS = ("retries", "lost", "stale", "bytes", "trimmed")
_encode = msgspec.json.Encoder().encode


async def export_run(engine: Engine, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
    found: list[ExportedTask] = []
    first = after + 1
    while first and len(found) < limit:
        word, *told = await engine.run("export_run", run, first, min(OUT, limit - len(found)))
        if word == b"index":
            await _index(engine, run)
            continue
        if word == b"unknown":
            raise unknown(run)
        if word == b"running":
            raise UsageError(f"run {told[0].decode()} is running: it cannot be moved", hint="pause it first")
        if word == b"outbox":
            raise outbox_pending(told[0].decode(), told[1], "it cannot be moved")
        first, now, *tasks = told
        found += [_exported_task(now, *task) for task in tasks]
    return found


async def _index(engine: Engine, run: int) -> None:
    for _ in range(ALTERED):
        bucket, marks = 0, 0
        while bucket >= 0:
            bucket, marks = await engine.run("index_digests", run, bucket, marks)
        if bucket == -1:
            return
    raise UsageError(f"run {run} is changing all the time", hint="stop its workers, or wait until they are done")


def _exported_task(
    now: int, number: int, where: bytes, text: bytes, lane: bytes, digest: bytes, packed_aliases: bytes
) -> ExportedTask:
    aliases = tuple(packed_aliases[at : at + DIGEST] for at in range(0, len(packed_aliases), DIGEST))
    if where in (b"gone", b"discarded"):
        left: Literal["seen", "discarded"] = "seen" if where == b"gone" else "discarded"
        return ExportedTask(number, Task(url="", lane=lane.decode(), digest=digest), left, aliases=aliases)
    if where == b"row":
        row = unpack_ended(text)
        state: Literal["done", "dead", "cancelled"] = row.state  # type: ignore[assignment]
        ttl = (row.item.expires_at - now) / SECOND if row.item.expires_at and state == "dead" else None
        return ExportedTask(
            number, _task(row.item, lane, digest, ttl=ttl), state, row.attempts, row.lost, row.item.added_at,
            row.ended_at, row.cause, row.history, row.evidence, row.first_record, row.records, aliases,
        )  # fmt: skip
    item = unpack_held(text).item if where in (b"held", b"late") else unpack_item(text)
    if where in (b"late", b"left"):  # cancelled with its run
        return ExportedTask(
            number, msgspec.structs.replace(_task(item, lane, digest), needs=()), "cancelled",
            item.attempts, item.lost, item.added_at, history=item.history, aliases=aliases,
        )  # fmt: skip
    waits = where == b"stored" and item.delayed and item.due_at > now
    delay = (item.due_at - now) / SECOND if waits else 0.0
    ttl = (item.expires_at - now) / SECOND if item.expires_at else None
    task = _task(item, lane, digest, delay=delay, ttl=ttl)
    return ExportedTask(
        number, task, "ready", item.attempts, item.lost, item.added_at, history=item.history, aliases=aliases
    )


def _task(item: Item, lane: bytes, digest: bytes, *, delay: float = 0.0, ttl: float | None = None) -> Task:
    url, kind, priority, depth, parent = item.view
    work = item.unpack_work()
    if work.garbled:
        raise unmovable(url, work.garbled)
    return Task(
        url, lane.decode(), digest, kind, priority, depth, None if parent is None else parent & _MASK,
        work.meta, delay, ttl, work.request_options, item.ack, work.needs,
    )  # fmt: skip


async def import_run(
    engine: Engine,
    run: int,
    tasks: Sequence[ExportedTask],
    records: Sequence[StoredRecord] = (),
    *,
    paces: Mapping[str, Pace] | None = None,
    counts: Stats | None = None,
    counters: Mapping[str, int] | None = None,
) -> None:
    paces = paces or {}
    needs = await numbers_for(engine, run, (exported.task for exported in tasks))
    calls = [_arguments(run, part, (), paces, None, needs) for part in _slices(tasks)]
    calls += [_arguments(run, (), part, paces, None) for part in _record_batches(records)]
    if counts is not None or counters is not None or not calls:
        calls.append(_arguments(run, (), (), paces, counts, run_counters=counters))
    for words in calls:
        word, *about = await engine.run("import_run", *words)
        if word == b"unknown":
            raise unknown(run)
        if word == b"busy":
            name, state = (text.decode() for text in about)
            raise UsageError(f"run {name} is {state}: only a paused run can receive an export", hint="pause it first")
        if word == b"missing":
            raise UsageError(
                f"the records from {about[0]} on are missing: they are taken over in order",
                hint="continue where it stopped, or start over",
            )


def _slices(tasks: Sequence[ExportedTask]) -> Iterator[Sequence[ExportedTask]]:
    for at in range(0, len(tasks), IN):
        yield tasks[at : at + IN]


def _record_batches(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
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


def _arguments(
    run: int,
    tasks: Sequence[ExportedTask],
    records: Sequence[StoredRecord],
    paces: Mapping[str, Pace],
    counts: Stats | None,
    needs: Numbers | None = None,
    run_counters: Mapping[str, int] | None = None,
) -> list[Any]:
    lanes = Lanes(paces)
    packed = [word for exported in tasks for word in _packed(run, exported, lanes, needs or {})]
    rows = [_SEQ.pack(record.seq, record.task & _MASK) + record.data for record in records]
    counters = [] if counts is None else [(name, getattr(counts, name)) for name in _COUNTERS]
    skipped = [] if counts is None else list(counts.skipped.items())
    words: list[Any] = [run, *lanes.arguments(), len(rows), *rows]
    for pairs in (counters, skipped):
        words += (len(pairs), *(word for pair in pairs for word in pair))
    if run_counters is None:
        words.append("-")
    else:
        words += (len(run_counters), *(word for pair in run_counters.items() for word in pair))
    return words + packed


def _packed(run: int, exported: ExportedTask, lanes: Lanes, needs: Numbers) -> tuple[bytes | str, ...]:
    task, history = exported.task, _trim_history(exported.history)
    lane = _NO_LANE if exported.state in ("seen", "discarded") else lanes.number(task.lane)
    header = _HEADER.pack(
        exported.number,
        _STATES[exported.state],
        lane,
        pack_line(task, needs[capability_names(task.needs)] if task.needs else 0),
        min(exported.attempts, 65535),
        min(exported.lost, 255),
        exported.added_at,
        micros(task.delay),
        micros(task.ttl or 0.0),
        task.ttl is not None,
        exported.finished_at,
        exported.records,
        exported.first_record,
        len(history),
        task.digest[:DIGEST],
    )
    parent = None if task.parent is None else (run << TASK_BITS) | task.parent
    ended = exported.state in ("done", "cancelled")
    dropped = {"meta": None, "request_options": None, "needs": ()} if ended else {}
    kept = msgspec.structs.replace(task, parent=parent, **dropped)
    evidence = b"" if exported.evidence is None else _encode(exported.evidence)
    aliases = b"".join(digest[:DIGEST] for digest in exported.aliases)
    return header, pack_history(history), exported.cause, evidence, aliases, pack_body(kept)


def _trim_history(history: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    return history if len(history) <= HISTORY else (history[0], *history[1 - HISTORY :])
