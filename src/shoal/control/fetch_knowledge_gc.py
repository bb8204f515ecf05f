"""What was learned of the pages of a host is removed when nothing was added to it for long."""

from __future__ import annotations

from shoal.control.document_gc import ShardSweeper
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.queue.fetch_knowledge import KEPT_FOR


def fetch_knowledge_sweeper(queue: Queue) -> ShardSweeper:
    async def is_expired(document: Document, now: int) -> bool:
        return now - document.made_at > KEPT_FOR * 1e6

    return ShardSweeper(queue, kinds.FETCHING, is_expired)
