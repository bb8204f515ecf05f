"""What was learned of the blocks of a host is removed when nothing was added to it for long, evidence after a week."""

from __future__ import annotations

from shoal.control.document_gc import IsExpired, ShardSweeper
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.queue.host_blocks import EVIDENCE_KEPT_FOR, KEPT_FOR


def host_blocks_sweepers(queue: Queue) -> tuple[ShardSweeper, ShardSweeper]:
    return (
        ShardSweeper(queue, kinds.BLOCKS, _after(KEPT_FOR)),
        ShardSweeper(queue, kinds.BLOCK_EVIDENCE, _after(EVIDENCE_KEPT_FOR)),
    )


def _after(seconds: float) -> IsExpired:
    async def is_expired(document: Document, now: int) -> bool:
        return now - document.made_at > seconds * 1e6

    return is_expired
