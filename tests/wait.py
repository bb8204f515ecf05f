"""Waiting for a state instead of for some time; the bound only ends a test that hangs."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
HANG = 240.0  # seconds: ends a hang, also on a machine where everything takes long
FOREVER = 600.0  # for what must end before its own time is over


def wait_until(what: Callable[[], T], seconds: float = HANG, *, every: float = 0.01) -> T:
    """What the call returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "timed out"
        time.sleep(every)
    return found


async def until(what: Callable[[], T | Awaitable[T]], seconds: float = HANG, *, every: float = 0.01) -> T:
    """The same for a test with a loop, whose other tasks go on; the call may be a coroutine's."""
    end = time.monotonic() + seconds
    while True:
        found = what()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, "timed out"
        await asyncio.sleep(every)
