"""Typed: one attempt at a task that is not a page, from its client to its outcome."""

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

from shoal.core.lane import Pace
from shoal.core.task import Outcome, Task
from shoal.core.typed import is_wrapped
from shoal.errors import GiveUp
from shoal.worker.errand import Errand
from shoal.worker.handling import HandlerTimeout, Stepwise, noted
from shoal.worker.harvest import Harvest, encoded
from shoal.worker.tools import NoLinks, Served, TaskHandler, Tools
from shoal.worker.visit import Visit

log = logging.getLogger("shoal.worker")

STUCK = 32  # threads that never came back, after which a worker makes place for a fresh one


async def perform(visit: Visit, served: Served) -> Outcome:
    """Let the handler of the task's type do its work."""
    task, tools = visit.task, visit.tools
    handler = served.scraper.tasks.get(task.kind)
    if handler is None:
        raise GiveUp("no_handler", f"this worker's code has no handler for tasks of the type {task.kind}")
    client = await tools.clients.of(served.scraper)
    errand = Errand(task, served.name, client, tools.clients.progress)
    visit.served = _with_retries(served, handler, errand)
    harvest = Harvest()
    visit.handling = True
    try:
        await _handle(visit, handler, errand, harvest, _limit(served, handler))
    finally:
        errand.cancelled = True
        tools.clients.progress.pop(task.id, None)
    visit.handling = False
    found = await _more(visit, errand)
    if task.probe:  # its lane was parked, and this went well
        visit.learn(tools.health.answered(task.lane, status=200, now=tools.clock(), probe=task.probe))
    return visit.done(harvest, NoLinks(tasks=found))


def _with_retries(served: Served, handler: TaskHandler, errand: Errand) -> Served:
    """The task's own word on retries counts most, then the handler's, then the run's."""
    retries = handler.retries if errand.own_retries is None else errand.own_retries
    return served if retries is None else dataclasses.replace(served, retries={"*": retries})


def _limit(served: Served, handler: TaskHandler) -> float | None:
    limit = served.handler_timeout if handler.timeout is None else handler.timeout
    return limit or None


async def _handle(
    visit: Visit, handler: TaskHandler, errand: Errand, harvest: Harvest, limit: float | None
) -> None:
    func = handler.func
    async with _timed(limit):
        if inspect.isasyncgenfunction(func):
            await _drain(func(errand), visit, harvest)
        elif inspect.iscoroutinefunction(func):
            keep(await _noted(visit, func(errand)), harvest, handler.rows)
        else:
            made = await _in_thread(visit, lambda: _run(func, errand, harvest, handler.rows))
            if made is not None:  # it was async after all: a partial, an object with an async __call__
                await _await_made(made, visit, harvest, handler.rows)


async def _await_made(made: Any, visit: Visit, harvest: Harvest, rows: bool) -> None:
    if isinstance(made, AsyncIterator):
        await _drain(made, visit, harvest)
    else:
        keep(await _noted(visit, made), harvest, rows)


def _run(func: Callable[..., Any], errand: Errand, harvest: Harvest, rows: bool) -> Any:
    """The whole of a handler that is not async; what turns out to be, is given back to be awaited."""
    made = func(errand)
    if inspect.isawaitable(made) or isinstance(made, AsyncIterator):
        return made
    if not isinstance(made, Iterator):
        keep(made, harvest, rows)
        return None
    for item in made:
        take(item, harvest)
        if errand.cancelled:
            break
    return None


def keep(value: Any, harvest: Harvest, rows: bool = False) -> None:
    """What a handler returned: one record, or one for each row."""
    if value is None:
        return
    if rows and isinstance(value, list | tuple):
        for row in value:
            take(row, harvest)
        return
    take(value, harvest)


def take(value: Any, harvest: Harvest) -> None:
    """One value as a record: an object as it is, anything else as {"value": …}."""
    data = encoded(value)
    if data[:1] != b"{" or is_wrapped(data):
        data = b'{"value":' + data + b"}"
    harvest.add(data)


@asynccontextmanager
async def _timed(limit: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit) as timer:
            yield
    except TimeoutError as error:
        if timer.expired():
            raise HandlerTimeout(f"it took longer than {limit:g} s") from error
        raise


async def _noted(visit: Visit, work: Any) -> Any:
    with noted(visit.step):
        return await Stepwise(work, visit.step)


async def _drain(items: AsyncIterator[Any], visit: Visit, harvest: Harvest) -> None:
    with noted(visit.step):
        try:
            while True:
                try:
                    item = await Stepwise(items.__anext__(), visit.step)
                except StopAsyncIteration:
                    return
                with visit.step:
                    take(item, harvest)
                await asyncio.sleep(0)  # one that never waits for anything shall not keep the rest waiting
        finally:
            if isinstance(items, AsyncGenerator):
                await Stepwise(items.aclose(), visit.step)


async def _in_thread(visit: Visit, func: Callable[[], Any]) -> Any:
    tools, task = visit.tools, visit.task.id
    threads = tools.clients.threads
    with tools.note.beside(task):
        try:
            return await threads.call(func)
        except asyncio.CancelledError:
            if threads.left >= STUCK:
                _make_place(tools)
            raise


def _make_place(tools: Tools) -> None:
    """Code in threads cannot be ended but with its process, which is then replaced."""
    log.error("threads_stuck", extra={"worker": tools.worker, "threads": STUCK})
    if tools.supervised:
        os.kill(os.getpid(), signal.SIGTERM)


async def _more(visit: Visit, errand: Errand) -> list[Task]:
    """What the handler wants done: its own type with the outcome, other types before it, by fixed keys."""
    found: list[Task] = []
    elsewhere: dict[str, tuple[list[Task], dict[str, Pace]]] = {}
    for task, key in errand.more():
        if task.type == errand.type and not task.lane and task.rate is None:
            found.append(task.core(key, parent=errand.id))
            continue
        tasks, paces = elsewhere.setdefault(task.type, ([], {}))
        core, pace = task.core(key), task.pace()
        tasks.append(core)
        if pace is not None:
            paces[core.lane] = pace
    if elsewhere:
        standing = visit.tools.clients.standing(visit.tools.queue)
        for type, (tasks, paces) in elsewhere.items():
            # All have keys: what an attempt before midnight has added is not to be added again.
            await standing.add(type, tasks, paces, keyed=[True] * len(tasks))
    return found
