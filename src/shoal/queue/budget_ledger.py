"""The ledger of a run's budget, in the queue: one document, which all workers of the run change in turn."""

from __future__ import annotations

import msgspec

from shoal.core.budget import Ledger
from shoal.core.cost import Cost
from shoal.core.run import Run
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Ledger).decode


class StoredLedger(msgspec.Struct, frozen=True):
    ledger: Ledger
    version: int = 0  # 0: there is none yet


async def load_ledger(queue: Queue, run: Run) -> StoredLedger:
    document = await queue.document(kinds.BUDGET, _name(run))
    if document is None:
        return StoredLedger(Ledger())
    try:
        return StoredLedger(_decode(document.text), document.version)
    except msgspec.MsgspecError:  # whoever can write to the queue is a stranger
        return StoredLedger(Ledger(), document.version)


async def save_ledger(queue: Queue, run: Run, stored: StoredLedger, ledger: Ledger) -> bool:
    """False if another was first."""
    text = _encode(ledger).decode()
    return await queue.compare_and_swap(kinds.BUDGET, _name(run), text, stored.version) is not None


async def set_limits(queue: Queue, run: Run, limits: Cost) -> None:
    """Give a run this budget from now on, in place of the one it has; what it has used stays used."""
    while True:
        stored = await load_ledger(queue, run)
        if stored.version and stored.ledger.limits == limits and not stored.ledger.spent:
            return
        if await save_ledger(queue, run, stored, msgspec.structs.replace(stored.ledger, limits=limits, spent="")):
            return


async def remove_orphaned_ledgers(queue: Queue) -> None:
    """Of runs that are no more."""
    for document in await queue.documents(kinds.BUDGET):
        name, _, began = document.name.rpartition("@")
        if not any(run.name == name and str(run.began_at) == began for run in await queue.runs(name=name, limit=100)):
            await queue.compare_and_swap(kinds.BUDGET, document.name, None, document.version)


def _name(run: Run) -> str:
    """Not that of a run that had the same name before."""
    return f"{run.name}@{run.began_at}"
