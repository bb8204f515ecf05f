"""Handling: runs the user's code on a page, with the note saying whose code is executing.

A handler may be a function, a generator, a coroutine or an async generator. Whatever it is, the note is
written only while its own code runs, not while it waits: so that a worker that dies or hangs is
charged to the one task that did it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import GeneratorType, TracebackType
from typing import Any

from shoal.core.task import Leased
from shoal.extract.page import Page
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Tools

LONGEST_PAUSED = 10  # times the limit of a handler: its own requests included, it ends by then
STALL = 1.0  # a step that held the event loop for longer may have spoilt other tasks' exchanges


class HandlerTimeout(Exception):
    """A handler took longer than its time limit."""


class Step:
    """Entered around every stretch of user code or parsing of one task."""

    __slots__ = ("_began", "_lease", "_note", "_stalled", "_task", "clock")

    def __init__(self, task: Leased, tools: Tools) -> None:
        self._task = task.id
        self._lease = task.lease
        self._note = tools.note
        self.clock = tools.clock
        self._stalled = tools.fetcher.note_stall
        self._began = 0.0

    def __enter__(self) -> None:
        self._note.enter(self._task, self._lease)
        self._began = self.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note.leave()
        took = self.clock() - self._began
        if took > STALL:
            self._stalled(took)


class Allowance:
    """The time a handler may take; waiting for requests of its own is not a part of it."""

    __slots__ = ("_began", "_clock", "_left_at", "_limit", "_pauses", "_timer", "_until")

    def __init__(self, clock: Callable[[], float], limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._began = clock()
        self._until = self._began + limit
        self._pauses = 0
        self._left_at = 0.0
        self._timer: asyncio.Timeout | None = None

    def check(self) -> None:
        if self._clock() > self._until and not self._pauses:
            raise HandlerTimeout("it went on for longer than its time limit")

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._until - self._clock()) as self._timer:
                yield
        except TimeoutError as error:
            if self._timer is not None and self._timer.expired():
                raise HandlerTimeout(f"it took longer than {self._limit:g} s") from error
            raise
        finally:
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        if self._clock() - self._began > LONGEST_PAUSED * self._limit:
            yield  # a handler that asks for ever is not waited for any longer
            return
        self._pauses += 1
        if self._pauses == 1:
            self._left_at = self._clock()
            self._set(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._until += self._clock() - self._left_at
                self._set(self._until - self._clock())

    def _set(self, left: float | None) -> None:
        timer = self._timer
        if timer is not None and not timer.expired():
            timer.reschedule(None if left is None else asyncio.get_running_loop().time() + left)


class Stepwise:
    """Awaits something so that every stretch of it is a Step."""

    __slots__ = ("_inner", "_step")

    def __init__(self, inner: Any, step: Step) -> None:
        self._inner = inner if hasattr(inner, "send") else inner.__await__()
        self._step = step

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._inner
        error: BaseException | None = None
        value: Any = None
        while True:
            try:
                with self._step:
                    waits_for = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                value = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - passed on to the handler, which must see it
                error = thrown


_executing: ContextVar[Step | None] = ContextVar("shoal_executing", default=None)


@contextmanager
def not_theirs() -> Iterator[None]:
    """Within a handler, around what we do for it: tasks started by that may outlive it."""
    before = _executing.set(None)
    try:
        yield
    finally:
        _executing.reset(before)


@contextmanager
def noted(step: Step) -> Iterator[None]:
    """Around the code of a handler: what it starts as tasks is noted as its own."""
    before = _executing.set(step)
    try:
        yield
    finally:
        _executing.reset(before)


def noting_tasks(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """A task factory: what a handler starts as tasks of its own is noted as its code, too."""
    step = _executing.get()
    return asyncio.Task(coro if step is None else _noted(coro, step), loop=loop, **options)


async def _noted(coro: Any, step: Step) -> Any:
    return await Stepwise(coro, step)


async def handle(
    func: Callable[[Page], Any], page: Page, step: Step, harvest: Harvest, allowance: Allowance
) -> None:
    """Run one handler to its end and collect what it yields."""
    with step:
        waiting = _collect(func(page), harvest, allowance)
    if waiting is None:
        return
    _executing.set(step)
    try:
        async with allowance.timed():
            await _collect_awaited(waiting, step, harvest, allowance)
    finally:
        _executing.set(None)


def _collect(result: Any, harvest: Harvest, allowance: Allowance) -> Any:
    """Take what is there; what must be awaited is returned."""
    if result is None:
        return None
    if type(result) is GeneratorType or isinstance(result, Iterator | list | tuple):
        for item in result:
            harvest.take(item)
            allowance.check()
        return None
    if isinstance(result, Awaitable | AsyncIterator):
        return result
    harvest.take(result)
    return None


async def _collect_awaited(waiting: Any, step: Step, harvest: Harvest, allowance: Allowance) -> None:
    if isinstance(waiting, AsyncIterator):
        await _drain(waiting, step, harvest, allowance)
        return
    result = await Stepwise(waiting, step)
    with step:
        more = _collect(result, harvest, allowance)
    if more is not None:
        raise TypeError("the handler returned something to await; await it inside the handler")


async def _drain(items: AsyncIterator[Any], step: Step, harvest: Harvest, allowance: Allowance) -> None:
    try:
        while True:
            try:
                item = await Stepwise(items.__anext__(), step)
            except StopAsyncIteration:
                return
            with step:
                harvest.take(item)
            # It may yield for ever without once waiting for anything; then no timer would ever fire.
            allowance.check()
    finally:
        if isinstance(items, AsyncGenerator):
            await Stepwise(items.aclose(), step)
