"""Worker ports: where tasks can be pushed to workers, as the workers announce it in the queue.

Whoever can write to the queue could announce an address of their own, and would be sent tasks and the token. So an
announcement is signed with the token, and one that is not counts for nothing.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue

MAX_URL = 300  # characters of a URL
STARTING_SECONDS = 600.0  # in which the processes of a worker that has just announced its port may be starting


class AnnouncedPort(msgspec.Struct, frozen=True):
    name: str  # of the supervisor
    url: str
    signature: str = ""


def _sign(name: str, url: str, token: str) -> str:
    return hmac.new(token.encode(), f"shoal worker port\n{name}\n{url}".encode(), hashlib.sha256).hexdigest()


async def announce(queue: Queue, name: str, url: str, token: str) -> None:
    """Say where a worker accepts tasks, and remove what workers that are gone have said."""
    port = AnnouncedPort(name, url, _sign(name, url, token))
    await queue.save_document(kinds.WORKER_PORT, name, msgspec.json.encode(port).decode())
    living, now = await _living(queue), await queue.now()
    for document in await queue.documents(kinds.WORKER_PORT):
        if document.name not in living and now - document.made_at > STARTING_SECONDS * 1e6:
            await queue.compare_and_swap(kinds.WORKER_PORT, document.name, None, document.version)


async def withdraw(queue: Queue, name: str) -> None:
    document = await queue.document(kinds.WORKER_PORT, name)
    if document is not None:
        await queue.compare_and_swap(kinds.WORKER_PORT, name, None, document.version)


async def find_ports(queue: Queue, token: str) -> dict[str, str]:
    """The ports of workers that are in the registry, by name; only what was signed with this token."""
    living = await _living(queue)
    found: dict[str, str] = {}
    for document in await queue.documents(kinds.WORKER_PORT):
        port = _parse(document)
        if port is None or port.name not in living:
            continue
        if hmac.compare_digest(port.signature.encode(), _sign(port.name, port.url, token).encode()):
            found[port.name] = port.url
    return found


def _parse(document: Document) -> AnnouncedPort | None:
    try:
        port = msgspec.json.decode(document.text, type=AnnouncedPort)
    except (msgspec.DecodeError, RecursionError):
        return None
    return port if port.name == document.name and len(port.url) <= MAX_URL else None


async def _living(queue: Queue) -> frozenset[str]:
    """Names of supervisors with a worker in the registry; their children add a number."""
    ids = [status.id for status in await queue.workers()]
    return frozenset(ids) | {id.rpartition("-")[0] for id in ids}
