"""Captures: screenshots and PDFs that handlers took of a task's page, kept as documents to be looked at for a while."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

MAX_CAPTURE = 400_000  # bytes of one that is kept
MAX_CAPTURES = 4  # of one task
KEPT_FOR = 7 * 86_400.0  # seconds

MediaType = Literal["image/png", "application/pdf"]


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    media_type: MediaType
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_CAPTURE)]
    too_big: int = 0  # bytes that it had, if they were too many to be kept: then there is no data


_decode = msgspec.json.Decoder(Capture).decode


async def save_capture(queue: Queue, task: int, number: int, capture: Capture) -> bool:
    """Keep a capture in place of an earlier attempt's, or its size if it is too big; False: it is one too many."""
    if number >= MAX_CAPTURES:
        return False
    if len(capture.data) > MAX_CAPTURE:
        capture = Capture(capture.media_type, b"", too_big=len(capture.data))
    kind, name = _kind(task), f"{task}-{number}"
    before = await queue.document(kind, name)
    text = msgspec.json.encode(capture).decode()
    return await queue.compare_and_swap(kind, name, text, before.version if before else 0) is not None


async def find_capture(queue: Queue, task: int, number: int) -> Capture | None:
    """One capture of a task; None if there is none, or if it is not what it should be."""
    document = await queue.document(_kind(task), f"{task}-{number}")
    if document is None:
        return None
    try:
        return _decode(document.text)
    except msgspec.MsgspecError:  # whoever can write to the queue is a stranger
        return None


def _kind(task: int) -> str:
    return kinds.CAPTURE + hashlib.sha256(str(task).encode()).hexdigest()[:2]
