"""wrap: turns an existing function into a scraper, without changing it."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from shoal.core.typed_task import Task
from shoal.errors import UsageError
from shoal.extract.scraper import Mode, Scraper, TaskHandler

_unsafe_chars = re.compile(r"[^a-z0-9_-]+")
_encode = msgspec.json.Encoder(order="deterministic").encode


def wrap(
    func: Callable[..., Any],
    name: str | None = None,
    mode: Mode = "single",
    *,
    payloads: Iterable[dict[str, Any]] = ({},),
    retries: int | None = None,
    timeout: float = 0.0,
) -> Scraper:
    """A scraper that calls a function once for each payload, as func(**payload).

    Code that is not async runs in a thread. If it returns a list, every item is a record. An
    interrupted run resumes with the payloads that are left.
    """
    if not callable(func):
        raise UsageError(f"{func!r} cannot be called, so it cannot be wrapped", hint="shoal.wrap(run_india)")
    task_type = name or _name(func)
    scraper = Scraper(task_type, mode=mode)
    chosen = list(payloads)
    for payload in chosen:
        _check(func, payload)
    scraper.tasks[task_type] = TaskHandler(
        task_type, same_kind(func, lambda task: func(**task.payload)), retries, timeout, rows=True
    )
    scraper.seeds = tuple(Task(type=task_type, payload=given, key=_key(given), retries=retries) for given in chosen)
    return scraper


def _name(func: Callable[..., Any]) -> str:
    name = getattr(func, "__qualname__", type(func).__name__).rpartition(".")[2].lower()
    return _unsafe_chars.sub("-", name).strip("-_")[:64] or "function"


def _key(payload: dict[str, Any]) -> str:
    return hashlib.sha256(_encode(payload)).hexdigest()[:32]


def _check(func: Callable[..., Any], payload: dict[str, Any]) -> None:
    """Refuse a function that cannot be called with its payload here, before a worker meets it."""
    try:
        signature = inspect.signature(func)
    except (ValueError, TypeError):  # written in C
        return
    try:
        signature.bind(**payload)
    except TypeError as error:
        raise UsageError(
            f"{_name(func)} cannot be called with {payload!r}: {error}",
            hint='name its arguments: shoal.wrap(func, payloads=[{"country": "in"}])',
        ) from error


def same_kind(func: Callable[..., Any], call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`call` as a function of the same kind as func: plain, async or an async generator."""
    if inspect.iscoroutinefunction(func):

        async def wait(task: Any) -> Any:
            return await call(task)

        return wait
    if inspect.isasyncgenfunction(func):

        async def iterate(task: Any) -> Any:
            async for item in call(task):
                yield item

        return iterate
    return call
