"""Documents of the queue, changed whatever others do to them meanwhile."""

from __future__ import annotations

from shoal.queue.base import Documents


async def remove_document(queue: Documents, kind: str, name: str) -> bool:
    """Whether there was one."""
    while (known := await queue.document(kind, name)) is not None:
        if await queue.compare_and_swap(kind, name, None, known.version) is not None:
            return True
    return False
