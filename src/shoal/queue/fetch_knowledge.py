"""Fetch knowledge in the queue: one document per host, to which every worker adds what it has learned."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shoal.core.fetch_choice import Lesson
from shoal.core.fetch_knowledge import Knowledge, ShapeKey, learned, read_knowledge, written
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

KEPT_FOR = 30 * 86_400.0  # seconds after the last lesson
MAX_TRIES = 8  # to be the first to write, among all workers


async def load_knowledge(queue: Queue, host: str) -> Knowledge:
    document = await queue.document(_kind(host), host)
    return read_knowledge(document.text) if document is not None else {}


async def save_lessons(queue: Queue, host: str, lessons: Sequence[tuple[ShapeKey, Lesson]]) -> Knowledge | None:
    """What all know together, with these lessons; None if others were first each time."""
    for _ in range(MAX_TRIES):
        document = await queue.document(_kind(host), host)
        knowledge = learned(read_knowledge(document.text) if document is not None else {}, lessons)
        text = written(knowledge)
        if await queue.compare_and_swap(_kind(host), host, text, document.version if document else 0):
            return read_knowledge(text)
    return None


def _kind(host: str) -> str:
    return kinds.FETCHING + hashlib.sha256(host.encode("utf-8", "replace")).hexdigest()[:2]
