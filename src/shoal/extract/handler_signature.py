"""Signature of a handler: what it is called with is checked where it is declared, not at the first page."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shoal.errors import UsageError

_PROBE = object()


def check_handler(func: Callable[..., Any], what: str, given: str, hint: str = "") -> None:
    """Refuse what is no function of exactly these arguments. given: their names, for example "task"; "": none."""
    if not callable(func):
        raise UsageError(f"{what} is not a function", hint="Put @… above a def.")
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return  # some builtins have none
    names = [name for name in given.split(", ") if name]
    try:
        signature.bind(*[_PROBE] * len(names))
    except TypeError as error:
        name = getattr(func, "__name__", "it")
        raise UsageError(
            f"{what} is called as {name}({given}), but is declared as {name}{signature}: {error}",
            hint=hint or f"Declare it as def {name}({given}): …",
        ) from None


def check_opening(func: Callable[..., Any], what: str) -> None:
    """Refuse an opening that yields: nobody would run it to its end."""
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise UsageError(f"{what} yields", hint="Return the client; what closes it is declared with @….close.")
    check_handler(func, what, "")
