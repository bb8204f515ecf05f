"""Captures are removed when they have been kept long enough."""

from __future__ import annotations

from shoal.control.document_gc import ShardSweeper
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.queue.captures import KEPT_FOR


def capture_sweeper(queue: Queue) -> ShardSweeper:
    async def is_expired(document: Document, now: int) -> bool:
        return now - document.made_at > KEPT_FOR * 1e6

    return ShardSweeper(queue, kinds.CAPTURE, is_expired)
