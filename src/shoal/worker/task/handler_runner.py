"""Runs the user's handler on a page, with the crash note saying whose code is executing.

A handler may be a function, a generator, a coroutine or an async generator. Whatever it is, the note is
written only while its own code runs, not while it waits: so that a worker that dies or hangs is
charged to the one task that did it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, GeneratorType, TracebackType
from typing import Any

from shoal.core.task import LeasedTask
from shoal.extract.page import Page
from shoal.worker.context import WorkerContext
from shoal.worker.task.handler_output import HandlerOutput

MAX_PAUSE_FACTOR = 10  # times the limit of a handler: its own requests included, it ends by then
STALL_AFTER = 1.0  # a step that held the event loop for longer may have spoilt other tasks' exchanges


class HandlerTimeout(Exception):
    """A handler took longer than its time limit."""


class UserCodeStep:
    """Entered around every stretch of user code or parsing of one task."""

    __slots__ = ("_context", "_crash_note", "_started", "_task", "seconds")

    def __init__(self, task: LeasedTask, context: WorkerContext) -> None:
        self._task = task
        self._context = context
        self._crash_note = context.crash_note
        self._started = 0.0
        self.seconds = 0.0  # that the last stretch took

    def __enter__(self) -> None:
        self._crash_note.enter(self._task.id, self._task.lease)
        self._started = self._context.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crash_note.leave()
        self.seconds = seconds = self._context.clock() - self._started
        if seconds > STALL_AFTER:
            self._context.fetcher.note_stall(seconds)


class HandlerDeadline:
    """The time a handler may take; waiting for requests of its own is not a part of it."""

    __slots__ = ("_active_pauses", "_clock", "_expires_at", "_limit", "_paused_at", "_started", "_timer")

    def __init__(self, clock: Callable[[], float], limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._started = clock()
        self._expires_at = self._started + limit
        self._active_pauses = 0
        self._paused_at = 0.0
        self._timer: asyncio.Timeout | None = None

    def check(self) -> None:
        if self._clock() > self._expires_at and not self._active_pauses:
            raise HandlerTimeout("it exceeded its time limit")

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._expires_at - self._clock()) as self._timer:
                yield
        except TimeoutError as error:
            if self._timer is not None and self._timer.expired():
                raise HandlerTimeout(f"it took longer than {self._limit:g} s") from error
            raise
        finally:
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        if self._clock() - self._started > MAX_PAUSE_FACTOR * self._limit:
            yield  # a handler that asks for ever is not waited for any longer
            return
        self._active_pauses += 1
        if self._active_pauses == 1:
            self._paused_at = self._clock()
            self._reschedule(None)
        try:
            yield
        finally:
            self._active_pauses -= 1
            if not self._active_pauses:
                self._expires_at += self._clock() - self._paused_at
                self._reschedule(self._expires_at - self._clock())

    def _reschedule(self, left: float | None) -> None:
        timer = self._timer
        if timer is not None and not timer.expired():
            timer.reschedule(None if left is None else asyncio.get_running_loop().time() + left)


_NOTHING = object()


class SteppedAwaitable:
    """Awaits something so that every stretch of it is a step."""

    __slots__ = ("_inner", "_step", "_waits_for")

    def __init__(self, inner: Any, step: UserCodeStep, waits_for: Any = _NOTHING) -> None:
        self._inner = inner if hasattr(inner, "send") else inner.__await__()
        self._step = step
        self._waits_for = waits_for  # what it waits for already, if it has begun

    def __await__(self) -> Generator[Any, Any, Any]:
        inner, step, waits_for = self._inner, self._step, self._waits_for
        value: Any = None
        try:
            if waits_for is _NOTHING:
                with step:
                    waits_for = inner.send(None)
            while True:
                error: BaseException | None = None
                try:
                    value = yield waits_for
                except BaseException as thrown:  # noqa: BLE001 - passed on to the handler, which must see it
                    error = thrown
                with step:
                    waits_for = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as stop:
            return stop.value


_current_step: ContextVar[UserCodeStep | None] = ContextVar("shoal_current_step", default=None)
set_current_step = _current_step.set


class outside_handler:
    """Within a handler, around what we do for it: tasks started by that may outlive it."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _current_step.set(None)

    def __exit__(self, *_: object) -> None:
        _current_step.reset(self._before)


@contextmanager
def inside_handler(step: UserCodeStep) -> Iterator[None]:
    """Around the code of a handler: what it starts as tasks is noted as its own."""
    before = _current_step.set(step)
    try:
        yield
    finally:
        _current_step.reset(before)


def handler_task_factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """A task factory: what a handler starts as tasks of its own is noted as its code, too."""
    step = _current_step.get()
    return asyncio.Task(coro if step is None else _run_stepped(coro, step), loop=loop, **options)


async def _run_stepped(coro: Any, step: UserCodeStep) -> Any:
    return await SteppedAwaitable(coro, step)


async def run_handler(
    func: Callable[[Page], Any], page: Page, step: UserCodeStep, output: HandlerOutput, deadline: HandlerDeadline
) -> None:
    """Run one handler to its end and collect what it yields."""
    with step:
        waiting = _collect(func(page), output, deadline)
    if waiting is None:
        return
    _current_step.set(step)
    try:
        async with deadline.enforced():
            await _collect_awaited(waiting, step, output, deadline)
    finally:
        _current_step.set(None)


def _collect(result: Any, output: HandlerOutput, deadline: HandlerDeadline) -> Any:
    """Take what is there; what must be awaited is returned."""
    if result is None:
        return None
    if type(result) is GeneratorType or isinstance(result, Iterator | list | tuple):
        for item in result:
            _add_item(item, output, getattr(result, "gi_frame", None))
            deadline.check()
        return None
    if isinstance(result, Awaitable | AsyncIterator):
        return result
    output.add_item(result)
    return None


def _add_item(item: Any, output: HandlerOutput, frame: FrameType | None) -> None:
    """frame: of the generator, which waits where it yielded this: the line that no traceback has."""
    try:
        output.add_item(item)
    except TypeError as error:
        if frame is None:
            raise
        raise TypeError(f"{error} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})") from error


async def _collect_awaited(waiting: Any, step: UserCodeStep, output: HandlerOutput, deadline: HandlerDeadline) -> None:
    if isinstance(waiting, AsyncIterator):
        await _collect_async(waiting, step, output, deadline)
        return
    result = await SteppedAwaitable(waiting, step)
    with step:
        more = _collect(result, output, deadline)
    if more is not None:
        raise TypeError("the handler returned an awaitable; await it inside the handler")


async def _collect_async(
    items: AsyncIterator[Any], step: UserCodeStep, output: HandlerOutput, deadline: HandlerDeadline
) -> None:
    try:
        while True:
            try:
                item = await SteppedAwaitable(items.__anext__(), step)
            except StopAsyncIteration:
                return
            with step:
                _add_item(item, output, getattr(items, "ag_frame", None))
            # It may yield for ever without once waiting for anything; then no timer would ever fire.
            deadline.check()
    finally:
        if isinstance(items, AsyncGenerator):
            await SteppedAwaitable(items.aclose(), step)
