"""What workers keep to be looked at, and learn of hosts, is removed in time, whether there is a server or not."""

from __future__ import annotations

from shoal.control.capture_gc import capture_sweeper
from shoal.control.document_gc import SHARDS, DocumentGc
from shoal.control.fetch_knowledge_gc import fetch_knowledge_sweeper
from shoal.control.host_blocks_gc import host_blocks_sweepers
from shoal.queue.base import Queue

# Shards that one command looks at, which has no time to lose: in a file they cost nothing, elsewhere a round trip each.
IN_FILE, ELSEWHERE = SHARDS // 4, 2


def kept_documents_gc(queue: Queue) -> DocumentGc:
    return DocumentGc(capture_sweeper(queue), *host_blocks_sweepers(queue), fetch_knowledge_sweeper(queue))


async def remove_some_kept_documents(queue: Queue, shards: int) -> None:
    """For a command that does no maintenance: a part of all there is, another one each time."""
    documents = kept_documents_gc(queue)
    for _ in range(shards):
        await documents.sweep()
