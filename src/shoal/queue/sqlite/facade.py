"""Verbs of the queue from the steps that do them, each in a transaction of its kind; see shoal.queue.facade."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from shoal.errors import ActionRequired
from shoal.queue.facade import OnEngine
from shoal.queue.sqlite import dead_letter
from shoal.queue.sqlite.engine import Engine

STEPS_PER_LOOK = 5  # of a thousand tasks each

P = ParamSpec("P")
T = TypeVar("T")
Step = Callable[Concatenate[sqlite3.Connection, int, P], T]
Verb = Callable[Concatenate[OnEngine[Engine], P], Coroutine[Any, Any, T]]


def write(step: Step[P, T]) -> Verb[P, T]:
    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        return await self._engine.write(step, *args, **named)

    return method


def hint(step: Step[P, T]) -> Verb[P, T]:
    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        return await self._engine.write_relaxed(step, *args, **named)

    return method


def read(step: Step[P, T]) -> Verb[P, T]:
    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        return self._engine.read(step, *args, **named)

    return method


async def end_overdue(engine: Engine, runs: Sequence[int]) -> None:
    """Whoever looks at runs ends what should have ended by itself; where that cannot be written, they only look."""
    for _ in range(STEPS_PER_LOOK):
        if not engine.read(dead_letter.overdue, runs, 1):
            return
        try:
            await engine.write(dead_letter.expire_overdue, runs)
        except ActionRequired:
            return


def look(step: Step[P, T]) -> Verb[P, T]:
    """As read, at one run, which is named first."""

    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        await end_overdue(self._engine, [_run(args, named)])
        return self._engine.read(step, *args, **named)

    return method


def look_in_thread(step: Step[P, T]) -> Verb[P, T]:
    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        await end_overdue(self._engine, [_run(args, named)])
        return await self._engine.read_in_thread(step, *args, **named)

    return method


def _run(args: tuple[Any, ...], named: dict[str, Any]) -> int:
    return int(args[0] if args else named["run"])


def read_in_thread(step: Step[P, T]) -> Verb[P, T]:
    @wraps(step)
    async def method(self: OnEngine[Engine], /, *args: P.args, **named: P.kwargs) -> T:
        return await self._engine.read_in_thread(step, *args, **named)

    return method
