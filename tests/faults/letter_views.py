"""Both views of dead letters: those of the ledger, and their copies in RabbitMQ."""

from __future__ import annotations

from collections import Counter

import msgspec
import pika
from servers.rabbitmq import Server

from shoal.control.letter_copies import CURSOR, Position
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

PAGE = 1_000


async def deaths(queue: Queue) -> dict[str, int]:
    """By what each copy is called, when its task died."""
    found: dict[str, int] = {}
    for run in await queue.runs():
        after = 0
        while page := await queue.list_tasks(run.id, state="dead", after=after, limit=PAGE):
            found |= {f"{view.id}.{view.finished_at}": view.finished_at for view in page}
            after = page[-1].id
    return found


async def is_copied(queue: Queue, dead: dict[str, int]) -> bool:
    """Whether all of these are said to be copied."""
    document = await queue.document(kinds.LETTER_COPIES, CURSOR)
    until = msgspec.json.decode(document.text, type=Position).until if document else 0
    return until >= max(dead.values())


def copies(server: Server) -> Counter[str]:
    """All of them, taken out of the broker."""
    taken: Counter[str] = Counter()
    with pika.BlockingConnection(pika.URLParameters(server.url())) as connection:
        channel = connection.channel()
        while True:
            method, properties, _ = channel.basic_get("shoal.dead", auto_ack=True)
            if method is None:
                return taken
            taken[properties.message_id] += 1
