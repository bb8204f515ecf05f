"""Verbs of a backend from the functions that do them: each signature is written once, where its code is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T")


class OnEngine(Protocol[E]):
    """A queue that keeps what its functions work with."""

    _engine: E


def verb(
    function: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[OnEngine[E], P], Coroutine[Any, Any, T]]:
    """`function(engine, …)` as the method of a queue that has the engine."""

    @wraps(function)
    async def method(self: OnEngine[E], /, *args: P.args, **named: P.kwargs) -> T:
        return await function(self._engine, *args, **named)

    return method
