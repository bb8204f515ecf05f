"""Blocks in the queue: one document per host that every worker adds to, and the pages themselves as evidence."""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from shoal.core.host_blocks import BlockDocument, HostBlocks, read_document
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

KEPT_FOR = 30 * 86_400.0  # seconds after the last change
EVIDENCE_KEPT_FOR = 7 * 86_400.0
MAX_EVIDENCE = 100_000  # bytes of a page that is kept as evidence
MAX_PACKED = 150_000  # of it as it is stored
MAX_TRIES = 8  # to be the first to write, among all workers


class BlockEvidence(msgspec.Struct, frozen=True):
    """A block page as it came."""

    url: str
    final_url: str
    status: int
    content_type: str
    at: int
    fetcher: str
    exit: str
    body: bytes  # packed

    @property
    def text(self) -> str:
        unpacker = zlib.decompressobj()  # never further than the limit, whatever a stranger has stored
        try:
            return unpacker.decompress(self.body, MAX_EVIDENCE).decode("utf-8", "replace")
        except zlib.error:
            return ""


def packed(body: bytes) -> bytes:
    return zlib.compress(body[:MAX_EVIDENCE], 6)


_decode = msgspec.json.Decoder(BlockEvidence).decode


async def load_blocks(queue: Queue, host: str) -> BlockDocument:
    document = await queue.document(_kind(kinds.BLOCKS, host), host)
    return read_document(document.text) if document is not None else BlockDocument()


async def save_blocks(queue: Queue, host: str, own: HostBlocks) -> BlockDocument | None:
    """What all know together; None if others were first each time."""
    kind = _kind(kinds.BLOCKS, host)
    for _ in range(MAX_TRIES):
        document = await queue.document(kind, host)
        made = own.added_to(read_document(document.text) if document is not None else BlockDocument())
        text = msgspec.json.encode(made).decode()
        if await queue.compare_and_swap(kind, host, text, document.version if document else 0):
            return read_document(text)
    return None


async def mark_content(queue: Queue, host: str, page: int) -> bool:
    """A person says that this is no block; False if it is not known."""
    kind = _kind(kinds.BLOCKS, host)
    for _ in range(MAX_TRIES):
        document = await queue.document(kind, host)
        if document is None:
            return False
        made = read_document(document.text)
        found = next((one for one in made.pages if one.id == page), None)
        if found is None:
            return False
        found.is_content = True
        if await queue.compare_and_swap(kind, host, msgspec.json.encode(made).decode(), document.version):
            return True
    return False


async def save_evidence(queue: Queue, host: str, page: int, evidence: BlockEvidence) -> None:
    """Once for each block page: the first is as good as any."""
    if len(evidence.body) <= MAX_PACKED:
        name = _evidence_name(host, page)
        text = msgspec.json.encode(evidence).decode()
        await queue.compare_and_swap(_kind(kinds.BLOCK_EVIDENCE, name), name, text, 0)


async def find_evidence(queue: Queue, host: str, page: int) -> BlockEvidence | None:
    name = _evidence_name(host, page)
    document = await queue.document(_kind(kinds.BLOCK_EVIDENCE, name), name)
    if document is None:
        return None
    try:
        return _decode(document.text)
    except msgspec.MsgspecError:  # whoever can write to the queue is a stranger
        return None


def _evidence_name(host: str, page: int) -> str:
    return f"{page:08x} {host}"


def _kind(kind: str, name: str) -> str:
    return kind + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:2]
