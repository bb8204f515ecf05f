"""A harness on a private Redis server, for tests of what only Redis does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from servers.redis import RedisServer

from conformance.harness import QueueHarness
from shoal.queue.base import Queue
from shoal.queue.redis import RedisQueue

LOGGED = ("--appendonly", "yes", "--appendfsync", "always")  # every change is on its disk at once


@asynccontextmanager
async def harness_on(server: RedisServer, folder: Path) -> AsyncIterator[QueueHarness]:
    namespace = uuid4().hex

    async def opener(folder: Path, clock: object) -> Queue:
        return await RedisQueue.open(server.url(namespace), clock=clock)  # type: ignore[arg-type]

    harness = QueueHarness(opener, folder)
    harness.queue = await harness.open()
    yield harness
    await harness.close()


async def command(queue: Queue, *words: object) -> object:
    assert isinstance(queue, RedisQueue)
    return await queue._engine.plain(*words)
