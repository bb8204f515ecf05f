"""HandlerThreads: where code runs that is not async, so that it does not hold up the event loop.

Threads are made as they are needed: there are as many as tasks of that kind are in progress. A call that is
waited for no longer cannot be ended; its thread is left to itself and does not hold back the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any


class HandlerThreads:
    """Used from one event loop; `abandoned` counts calls that go on though nobody waits for them."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        self.abandoned = 0

    async def call(self, func: Callable[[], Any]) -> Any:
        """What func returns, or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = copy_context()
        inbox = self._idle.pop() if self._idle else _start_thread()

        def work() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(func)
            except StopIteration as stop:  # which a future cannot carry
                error = RuntimeError("the handler raised StopIteration")
                error.__cause__ = stop
            except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._finish_call, inbox, future, value, error)

        inbox.put(work)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self.abandoned += 1
            raise

    def _finish_call(
        self,
        inbox: SimpleQueue[Callable[[], None] | None],
        future: asyncio.Future[Any],
        value: Any,
        error: BaseException | None,
    ) -> None:
        self._idle.append(inbox)
        if future.cancelled():
            self.abandoned -= 1
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def close(self) -> None:
        """Let idle threads end; those at work end with the process."""
        while self._idle:
            self._idle.pop().put(None)


def _start_thread() -> SimpleQueue[Callable[[], None] | None]:
    inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run_calls() -> None:
        while (work := inbox.get()) is not None:
            work()
            del work  # it holds the task and all that its handler made

    threading.Thread(target=run_calls, name="shoal-task", daemon=True).start()
    return inbox
