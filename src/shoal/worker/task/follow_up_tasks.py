"""Tasks that a handler asked for: each with a key that makes it the same when the handler runs again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from shoal.core.task import OutboxEntry
from shoal.core.typed_task import Task
from shoal.errors import GiveUp
from shoal.queue.base import MAX_OUTBOX_BYTES, MAX_OUTBOX_ENTRIES
from shoal.queue.follow_ups import follow_up_entry

_encode = msgspec.json.Encoder(order="deterministic").encode


def with_keys(parent: int, tasks: Iterable[Task]) -> list[tuple[Task, str]]:
    """What the task `parent` asked for, each with its own key or one that follows from what it is."""
    seen: Counter[bytes] = Counter()
    found = []
    for task in tasks:
        identity = _encode([parent, task.type, task.payload])
        seen[identity] += 1
        key = task.key or hashlib.sha256(identity + b"/%d" % seen[identity]).hexdigest()[:32]
        found.append((task, key))
    return found


def outbox_entries(tasks: Sequence[tuple[Task, str]], celery: Iterable[OutboxEntry] = ()) -> tuple[OutboxEntry, ...]:
    """Tasks of other runs and of Celery, added or sent when whoever asked for them is settled."""
    entries = (*(follow_up_entry(task.to_queue_task(key), task.pace()) for task, key in tasks), *celery)
    size = sum(len(entry.key) + len(entry.data) + len(entry.kind) for entry in entries)
    if len(entries) > MAX_OUTBOX_ENTRIES or size > MAX_OUTBOX_BYTES:
        raise GiveUp(
            "too_many_tasks",
            f"one handler asked for {len(entries):,} tasks of other types or of Celery ({size:,} bytes): at most"
            f" {MAX_OUTBOX_ENTRIES:,} of {MAX_OUTBOX_BYTES:,} bytes; put several into one payload",
        )
    return entries
