"""Failure: the one place where whatever went wrong with a task becomes its outcome.

our own drain, a run not ours to serve, a queue that cannot be
asked, a stalled exchange                                         released: costs nothing
a rule that refuses the page after all                            cancelled; dead for a start URL
Retry, FetchFailed                                                the retry policy decides
GiveUp, FetchRefused                                              dead
MemoryError, the time limit                                       "memory", "handler_timeout"
anything else from a handler, SystemExit and its like included    "handler.<name>"
anything else                                                     "internal.<name>"
"""

from __future__ import annotations

import asyncio
import logging
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from shoal.core.retry import decide
from shoal.core.task import Outcome, Result
from shoal.errors import FetchFailed, GiveUp, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable, Retry
from shoal.worker.handling import HandlerTimeout
from shoal.worker.slot import NotNow
from shoal.worker.tools import NotServed
from shoal.worker.visit import Visit, ids_of

log = logging.getLogger("shoal.worker")

BODY_KEPT = 2_000
MESSAGE_KEPT = 500
TRACE_KEPT = 2_000
_NOT_THEIRS = tuple(
    {str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")}
)


class RuledOut(Exception):
    """A rule refuses the page after all: robots, scope."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def failed(visit: Visit, error: BaseException) -> Outcome:
    """The outcome of an attempt that ended with an exception."""
    if isinstance(error, MemoryError):
        # The frames hold what filled the memory; without them there is room to go on.
        traceback.clear_frames(error.__traceback__)
    error = _at_the_bottom(visit, error)
    if _is_nobodys_fault(visit, error):
        return _outcome(visit, "released")
    if isinstance(error, RuledOut):
        result: Result = "dead" if visit.task.parent is None else "cancelled"
        return _outcome(visit, result, error.reason, str(error), error)
    if isinstance(error, GiveUp):
        return _outcome(visit, "dead", error.cause, str(error), error)
    cause = _cause(visit, error)
    after = decide(
        cause,
        visit.task.failures or {},
        jitter=visit.tools.jitter(),
        after=error.after if isinstance(error, Retry) else None,
        limits=visit.served.retries if visit.served else None,
        base=visit.served.retry_delay if visit.served else None,
    )
    result = "dead" if after is None else "retry"
    return _outcome(visit, result, cause, _message(error), error, after or 0.0)


def _at_the_bottom(visit: Visit, error: BaseException) -> BaseException:
    """Of a group that a handler's own tasks ended with, what it comes down to if all of it is known."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    known = all(isinstance(leaf, Retry | GiveUp) or leaf in visit.hindrances for leaf in leaves)
    return leaves[0] if known else error


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _is_nobodys_fault(visit: Visit, error: BaseException) -> bool:
    if isinstance(error, asyncio.CancelledError):
        # A handler may also leak the CancelledError of a task of its own; then nobody cancelled ours.
        ours = asyncio.current_task()
        return ours is not None and ours.cancelling() > 0
    if visit.handling and not any(error is it for it in visit.hindrances):
        return False
    if isinstance(error, FetchFailed):
        return error.cause in ("stalled", "closed")
    return isinstance(error, NotNow | NotServed | QueueUnavailable | QueueFull | QueueReadOnly | QueueRefused)


def _cause(visit: Visit, error: BaseException) -> str:
    if isinstance(error, Retry):
        return error.cause
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, HandlerTimeout):
        return "handler_timeout"
    return f"{'handler' if visit.handling else 'internal'}.{type(error).__name__}"


def _outcome(
    visit: Visit,
    result: Result,
    cause: str = "",
    message: str = "",
    error: BaseException | None = None,
    after: float = 0.0,
) -> Outcome:
    log.info(
        f"page_{result}",
        extra=ids_of(visit.task, visit.tools)
        | {
            "url": visit.task.url,
            "cause": cause,
            "why": message[:MESSAGE_KEPT],
            "after": round(after, 3),
        },
    )
    return Outcome(
        task=visit.task.id,
        lease=visit.task.lease,
        result=result,
        attempt=visit.attempt(cause, message[:MESSAGE_KEPT]) if result != "released" else None,
        after=after,
        cause=cause,
        evidence=_evidence(visit, error) if result == "dead" else None,
        lanes=visit.lanes,
    )


def _evidence(visit: Visit, error: BaseException | None) -> dict[str, Any]:
    evidence: dict[str, Any] = {"url": visit.task.url}
    response = visit.response
    if response is not None:
        evidence |= {"status": response.status, "address": response.url}
        evidence["body"] = response.body[:BODY_KEPT].decode("utf-8", "replace")
    if visit.handling and error is not None:
        lines = traceback.format_exception(error, limit=-8)
        evidence["traceback"] = _plain("".join(lines)[-TRACE_KEPT:])
    return evidence


def _message(error: BaseException) -> str:
    """What was raised, and where in the user's own code."""
    if isinstance(error, Retry):
        return _plain(str(error))
    said = "".join(traceback.format_exception_only(error)[-1:]).strip()
    place = _place(error.__traceback__)
    return _plain(f"{said[: MESSAGE_KEPT - len(place) - 3]} ({place})" if place else said)


def _place(trace: TracebackType | None) -> str:
    place = ""
    while trace is not None:
        code: CodeType = trace.tb_frame.f_code
        if not code.co_filename.startswith((*_NOT_THEIRS, "<frozen")):
            place = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _plain(text: str) -> str:
    """Text that every store can keep: half a surrogate pair is none."""
    return text.encode("utf-8", "replace").decode("utf-8")
