"""Futures that are waited for, or ended, together."""

from __future__ import annotations

import asyncio
from typing import Any


async def wait_first(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first of them to end and pass on its failure."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """End what still goes on. A handler that will not be cancelled cannot keep the worker from ending."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=1.0)
    for task in done:
        if not task.cancelled():
            task.exception()  # looked at: a failure that did not come first is not the one to report
