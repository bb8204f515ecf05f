"""WorkerCounters: what a worker had counted when it ended, left in the queue for the history.

Heartbeats tell what a worker has done so far; the rest comes with this. A few documents are shared by all:
however many workers end while nobody looks, what they leave takes up little room.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from shoal.core.counters import WorkerCounters, decode
from shoal.core.lane import WorkerStatus
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Documents

MAX_DOCUMENTS = 64
MAX_PER_DOCUMENT = 32  # workers; of more the oldest are forgotten
MAX_TRIES = 20  # against others who end at the same time


class FinalCountsDocument(msgspec.Struct, frozen=True):
    """One document of final counts, of several workers."""

    document: Document
    final_counts: tuple[WorkerCounters, ...] = ()


def counters_of(status: WorkerStatus) -> WorkerCounters:
    """From a worker's last status."""
    return WorkerCounters(status.id, status.started_at, status.done, status.failed, decode(status.counters))


async def save_final_counts(queue: Documents, one: WorkerCounters) -> None:
    """Save them; they replace those that the same worker has saved before."""
    place = str(zlib.crc32(one.id.encode()) % MAX_DOCUMENTS)
    for _ in range(MAX_TRIES):
        document = await queue.document(kinds.FINAL_COUNTS, place)
        others = [other for other in _read(document) if other.id != one.id]
        text = msgspec.json.encode([*others, one][-MAX_PER_DOCUMENT:]).decode()
        if await queue.compare_and_swap(kinds.FINAL_COUNTS, place, text, document.version if document else 0):
            return


async def list_final_counts(queue: Documents) -> list[FinalCountsDocument]:
    """All there are."""
    return [FinalCountsDocument(document, _read(document)) for document in await queue.documents(kinds.FINAL_COUNTS)]


async def delete_final_counts(queue: Documents, documents: Sequence[FinalCountsDocument]) -> None:
    """Remove what is counted; a document to which somebody has added meanwhile stays as it is."""
    for one in documents:
        await queue.compare_and_swap(kinds.FINAL_COUNTS, one.document.name, None, one.document.version)


def _read(document: Document | None) -> tuple[WorkerCounters, ...]:
    try:
        return msgspec.json.decode(document.text, type=tuple[WorkerCounters, ...]) if document else ()
    except msgspec.DecodeError:
        return ()  # of another version of ours
