"""A worker for typed tasks that works in this process for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import shoal


@asynccontextmanager
async def at_work(worker: shoal.Worker) -> AsyncIterator[None]:
    working = asyncio.create_task(worker.work())
    try:
        yield
    finally:
        worker.stop()
        await working
