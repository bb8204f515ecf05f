"""Intake counts: how many messages other programs have published, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue

NAME = "counts"  # of the document
TRIES = 20  # where several relays count at once


class IntakeCounts(msgspec.Struct, frozen=True):
    """Over all relays; what a killed one counted last may be missing."""

    accepted: int = 0  # tasks that the ledger has, those that it had before included
    rejected: int = 0
    revived: int = 0  # dead letters


async def intake_counts(queue: Queue) -> IntakeCounts:
    return _read(await queue.document(kinds.INTAKE, NAME))


def _read(document: Document | None) -> IntakeCounts:
    try:
        return msgspec.json.decode(document.text, type=IntakeCounts) if document else IntakeCounts()
    except msgspec.MsgspecError:
        return IntakeCounts()  # whoever writes to the queue may write anything


async def add_intake_counts(queue: Queue, counted: Mapping[str, int]) -> bool:
    """Add to the sum of all relays; False: others were always quicker."""
    for _ in range(TRIES):
        document = await queue.document(kinds.INTAKE, NAME)
        known = msgspec.to_builtins(_read(document))
        total = {name: number + counted.get(name, 0) for name, number in known.items()}
        version = document.version if document else 0
        if await queue.compare_and_swap(kinds.INTAKE, NAME, msgspec.json.encode(total).decode(), version):
            return True
    return False
