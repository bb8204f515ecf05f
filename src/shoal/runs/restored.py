"""RestoreRecord: that a queue was restored from a backup, so that files written since are not taken for its own."""

from __future__ import annotations

import secrets

import msgspec

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Documents, Queue

_NAME = "restored"
VOID_SLICE = 1000


class RestoreRecord(msgspec.Struct, frozen=True):
    id: str  # another one with every restore
    restored_at: int  # UTC microseconds
    taken_at: int  # when the backup was made


async def restore_record(queue: Documents) -> RestoreRecord | None:
    """The last restore; None if there was none, or nothing that can be read."""
    document = await queue.document(kinds.QUEUE, _NAME)
    try:
        return msgspec.json.decode(document.text, type=RestoreRecord) if document is not None else None
    except msgspec.DecodeError:
        return None


async def record_restore(queue: Queue, taken_at: int) -> RestoreRecord:
    record = RestoreRecord(secrets.token_hex(8), await queue.now(), taken_at)
    known = await queue.document(kinds.QUEUE, _NAME)
    text = msgspec.json.encode(record).decode()
    await queue.compare_and_swap(kinds.QUEUE, _NAME, text, known.version if known is not None else 0)
    return record


async def void_leases(queue: Queue) -> int:
    """Give back what was leased when the backup was made, charged to nobody; says how many tasks.

    Their workers are of another time: what they report is refused from now on.
    """
    returned = 0
    for status in await queue.workers():
        returned += await _void_worker(queue, status.id)
        await queue.forget_worker(status.id)
    for run in await queue.runs(states=("running", "paused"), limit=100_000):
        while leased := await queue.list_tasks(run.id, state="leased", limit=VOID_SLICE):
            for worker in {view.worker for view in leased}:
                returned += await _void_worker(queue, worker)
    return returned


async def _void_worker(queue: Queue, worker: str) -> int:
    result = await queue.reap({worker: ()})
    return result.returned + result.dead
