"""Result location: where the records of a queue go, written in the queue so that any client finds them.

A password is never written there: a store that needs one is named by whoever knows it.
"""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from shoal.errors import ActionRequired, StoreRefused
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Documents
from shoal.store.results.base import ResultBackend, open_results

_NAME = "results"
_FILE_PREFIX = "sqlite:///"


class ResultLocation(msgspec.Struct, frozen=True):
    url: str  # without a password
    host: str = ""  # of a file: the machine that has it


async def announce_results(queue: Documents, store: ResultBackend) -> None:
    """Say in the queue where its records go; nothing is written where it says so already."""
    host = socket.gethostname() if store.location.startswith(_FILE_PREFIX) else ""
    text = msgspec.json.encode(ResultLocation(store.location, host)).decode()
    while (known := await queue.document(kinds.QUEUE, _NAME)) is None or known.text != text:
        await queue.compare_and_swap(kinds.QUEUE, _NAME, text, known.version if known else 0)


class ResultFinder:
    """Opens the result store of a queue: the one that was named, else the one that the queue tells of."""

    def __init__(self, queue: Documents, named: str = "") -> None:
        self._queue = queue
        self._named = named
        self._store: ResultBackend | None = None

    async def find(self) -> ResultBackend | None:
        """The store; None as long as no records have gone to one."""
        if self._store is None:
            self._store = await open_results(self._named) if self._named else await self._open_announced()
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _open_announced(self) -> ResultBackend | None:
        document = await self._queue.document(kinds.QUEUE, _NAME)
        if document is None:
            return None
        found = msgspec.json.decode(document.text, type=ResultLocation)
        file = found.url.removeprefix(_FILE_PREFIX) if found.url.startswith(_FILE_PREFIX) else ""
        if file and not Path(file).exists():  # noqa: ASYNC240 - opening it would create an empty one
            raise StoreRefused(
                f"the results are in the file {file} on {found.host}, which is not on this machine",
                hint="read them there, or give the workers a store that all machines reach: --store postgresql://…",
            )
        try:
            return await open_results(found.url)
        except ActionRequired as error:
            raise StoreRefused(
                f"the results are in {found.url}, which cannot be opened from here: {error}",
                hint='name it with its password: connect(store="postgresql://…"), or SHOAL_STORE',
            ) from error
