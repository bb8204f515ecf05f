"""Queue identity: which queue a run began in, by an id that does not depend on how the queue is reached."""

from __future__ import annotations

import secrets

import msgspec

from shoal.core.run import Run, RunState
from shoal.core.typed_task import TYPE_PREFIX
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Documents
from shoal.store.results.base import Origin

_IDENTITY_NAME = "identity"


class MoveRecord(msgspec.Struct, frozen=True):
    """Where a run goes, and what it was before that."""

    to: str  # the other queue's identity
    place: str  # for people
    was: RunState
    gone: bool = False


async def has_moved(queue: Documents, run: Run) -> bool:
    """Whether a run has moved to another queue: what is here is not its own any more."""
    return bool(await moved_to(queue, run))


async def moved_to(queue: Documents, run: Run) -> str:
    """The queue a run has moved to, for people; empty if it has not."""
    document = await queue.document(kinds.MOVING, run.name)
    record = read_move_record(document)
    return record.place if record is not None and record.gone else ""


def read_move_record(document: Document | None) -> MoveRecord | None:
    """How far a run has moved; None where nothing is written down, or nothing that can be read."""
    try:
        return msgspec.json.decode(document.text, type=MoveRecord) if document is not None else None
    except msgspec.DecodeError:
        return None


async def queue_id(queue: Documents) -> str:
    """What a queue is called among all queues; made when first asked for."""
    while (known := await queue.document(kinds.QUEUE, _IDENTITY_NAME)) is None:
        await queue.compare_and_swap(kinds.QUEUE, _IDENTITY_NAME, secrets.token_hex(8), 0)
    return known.text


async def home_queue_id(queue: Documents, run: Run) -> str:
    """A run that was moved here still belongs to where it began."""
    return str(run.spec.get("home") or "") or await queue_id(queue)


async def result_origin(queue: Documents, run: Run) -> Origin:
    """Under what a run's records are kept in a store of results."""
    return Origin(await home_queue_id(queue, run), run.name, run.scraper.removeprefix(TYPE_PREFIX), run.id)
