"""Typed tasks: one attempt at a task that is not a page, from its client to its outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from shoal.core.celery_task import celery_entries
from shoal.core.task import OutboxEntry, Outcome, Task
from shoal.core.typed_task import Task as TypedTask
from shoal.core.typed_task import is_wrapped
from shoal.errors import GiveUp
from shoal.extract.links import AdmittedLinks
from shoal.extract.scraper import TaskHandler
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.follow_up_tasks import outbox_entries
from shoal.worker.task.handler_output import HandlerOutput, encode_json
from shoal.worker.task.handler_runner import HandlerTimeout, SteppedAwaitable, inside_handler, set_current_step
from shoal.worker.task.task_context import TaskContext

log = logging.getLogger("shoal.worker")

_BRACE = ord("{")
_NO_LINKS = AdmittedLinks()
MAX_ABANDONED_THREADS = 32  # after so many the worker process is replaced


async def run_typed_task(attempt: TaskAttempt, run_context: RunContext) -> Outcome:
    """Let the handler of the task's type do its work."""
    task, context = attempt.task, attempt.context
    handler = run_context.scraper.tasks.get(task.kind)
    if handler is None:
        raise GiveUp("no_handler", f"this worker's code has no handler for tasks of the type {task.kind}")
    scraper = run_context.scraper
    client = None if scraper.open_client is None else await context.clients.client_for(scraper)
    task_context = TaskContext(task, run_context.name, client, context.clients.progress)
    output = HandlerOutput()
    attempt.is_in_handler = True
    try:
        await _handle(attempt, handler, task_context, output, _limit_for(run_context, handler))
    except BaseException:
        attempt.run_context = _with_retries(run_context, handler, task_context)
        raise
    finally:
        task_context.cancelled = True
        if context.clients.progress:
            context.clients.progress.pop(task.id, None)
    attempt.is_in_handler = False
    if run_context.unique:
        output.make_unique(run_context.unique)
    found, outbox = _split_enqueued(task_context) if task_context.has_enqueued else ([], ())
    if task.probe:  # its lane was parked, and this went well
        attempt.add_lane_change(
            context.health.record_response(task.lane, status=200, now=context.clock(), probe=task.probe)
        )
    return attempt.success_outcome(output, AdmittedLinks(tuple(found)) if found else _NO_LINKS, outbox)


def _with_retries(run_context: RunContext, handler: TaskHandler, task_context: TaskContext) -> RunContext:
    """The task's own word on retries counts most, then the handler's, then the run's."""
    retries = handler.retries if task_context.own_retries is None else task_context.own_retries
    backoff = handler.retry_backoff if task_context.own_backoff is None else task_context.own_backoff
    if retries is not None:
        run_context = dataclasses.replace(run_context, retries={"*": retries})
    return run_context if backoff is None else dataclasses.replace(run_context, retry_delay=backoff)


def _limit_for(run_context: RunContext, handler: TaskHandler) -> float | None:
    limit = run_context.handler_timeout if handler.timeout is None else handler.timeout
    return limit or None


async def _handle(
    attempt: TaskAttempt, handler: TaskHandler, task_context: TaskContext, output: HandlerOutput, limit: float | None
) -> None:
    func = handler.func
    if handler.form == "coroutine":
        add_result(await _run_coroutine(attempt, func(task_context), limit), output, handler.rows)
        return
    async with _time_limit(limit):
        if handler.form == "async_generator":
            await _collect_async(func(task_context), attempt, output)
        else:
            result = await _in_thread(attempt, lambda: _run_sync(func, task_context, output, handler.rows))
            if result is not None:  # it was async after all: a partial, an object with an async __call__
                await _await_result(result, attempt, output, handler.rows)


async def _run_coroutine(attempt: TaskAttempt, work: Any, limit: float | None) -> Any:
    """Many handlers wait for nothing: the clock that could end them is set when they first do."""
    step, coroutine = attempt.step, work if hasattr(work, "send") else work.__await__()
    set_current_step(step)
    try:
        try:
            with step:
                waits_for = coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        try:
            async with asyncio.timeout(None if limit is None else limit - step.seconds) as timer:
                return await SteppedAwaitable(coroutine, step, waits_for)
        except TimeoutError as error:
            raise _limit_error(timer, limit, error) from error
    finally:
        set_current_step(None)


async def _await_result(result: Any, attempt: TaskAttempt, output: HandlerOutput, rows: bool) -> None:
    if isinstance(result, AsyncIterator):
        await _collect_async(result, attempt, output)
    else:
        add_result(await _run_stepped(attempt, result), output, rows)


def _run_sync(func: Callable[..., Any], task_context: TaskContext, output: HandlerOutput, rows: bool) -> Any:
    """The whole of a handler that is not async; what turns out to be, is given back to be awaited."""
    result = func(task_context)
    if inspect.isawaitable(result) or isinstance(result, AsyncIterator):
        return result
    if not isinstance(result, Iterator):
        add_result(result, output, rows)
        return None
    for item in result:
        add_value(item, output)
        if task_context.cancelled:
            break
    return None


def add_result(value: Any, output: HandlerOutput, rows: bool = False) -> None:
    """What a handler returned: one record, or one for each row."""
    if value is None:
        return
    if rows and isinstance(value, list | tuple):
        for row in value:
            add_value(row, output)
        return
    add_value(value, output)


def add_value(value: Any, output: HandlerOutput) -> None:
    """One value as a record: an object as it is, anything else as {"value": …}."""
    data = encode_json(value)
    if data[0] != _BRACE or is_wrapped(data):
        data = b'{"value":' + data + b"}"
    output.add_record(data)


@asynccontextmanager
async def _time_limit(limit: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit) as timer:
            yield
    except TimeoutError as error:
        raise _limit_error(timer, limit, error) from error


def _limit_error(timer: asyncio.Timeout, limit: float | None, error: TimeoutError) -> Exception:
    """A TimeoutError of the handler's own is passed on as it is."""
    return HandlerTimeout(f"it took longer than {limit:g} s") if timer.expired() else error


async def _run_stepped(attempt: TaskAttempt, work: Any) -> Any:
    with inside_handler(attempt.step):
        return await SteppedAwaitable(work, attempt.step)


async def _collect_async(items: AsyncIterator[Any], attempt: TaskAttempt, output: HandlerOutput) -> None:
    with inside_handler(attempt.step):
        try:
            while True:
                try:
                    item = await SteppedAwaitable(items.__anext__(), attempt.step)
                except StopAsyncIteration:
                    return
                with attempt.step:
                    add_value(item, output)
                await asyncio.sleep(0)  # one that never waits for anything shall not keep the rest waiting
        finally:
            if isinstance(items, AsyncGenerator):
                await SteppedAwaitable(items.aclose(), attempt.step)


async def _in_thread(attempt: TaskAttempt, func: Callable[[], Any]) -> Any:
    context, task = attempt.context, attempt.task.id
    threads = context.clients.threads
    with context.crash_note.thread_task(task):
        try:
            return await threads.call(func)
        except asyncio.CancelledError:
            if threads.abandoned >= MAX_ABANDONED_THREADS:
                _end_stuck_worker(context)
            raise


def _end_stuck_worker(context: WorkerContext) -> None:
    """Code in threads cannot be ended but with its process, which is then replaced."""
    log.error("threads_stuck", extra={"worker": context.worker, "threads": MAX_ABANDONED_THREADS})
    if context.supervised:
        os.kill(os.getpid(), signal.SIGTERM)


def _split_enqueued(task_context: TaskContext) -> tuple[list[Task], tuple[OutboxEntry, ...]]:
    """What the handler wants done, all with the outcome: its own type in its run, other types through the outbox."""
    found: list[Task] = []
    others: list[tuple[TypedTask, str]] = []
    for task, key in task_context.enqueued_tasks():
        if task.type == task_context.type and not task.lane and task.rate is None:
            found.append(task.to_queue_task(key, parent=task_context.id))
        else:
            others.append((task, key))
    celery = celery_entries(task_context.run, task_context.id, task_context.celery_tasks)
    return found, outbox_entries(others, celery)
