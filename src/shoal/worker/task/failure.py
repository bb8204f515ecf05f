"""Failure: the one place where whatever went wrong with a task becomes its outcome.

our own drain, a run not ours to serve, a queue that cannot be
asked, a stalled exchange                                         released: costs nothing
a page that is odd                                                released, to be asked for a second time
a block page                                                      retried at no cost, and dead with a cause of its own
a rule that refuses the page after all                            cancelled; dead for a start URL
Retry, FetchFailed                                                the retry policy decides; dead with ack="auto"
GiveUp, FetchRefused                                              dead
MemoryError, the time limit                                       "memory", "handler_timeout"
anything else from a handler, SystemExit and its like included    "handler.<name>"
anything else                                                     "internal.<name>"
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sysconfig
import traceback
from bdb import BdbQuit
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from shoal.core.lane import session_of_lane
from shoal.core.retry import retry_delay
from shoal.core.task import UNACKNOWLEDGED, LaneChange, Outcome, Result
from shoal.errors import FetchFailed, GiveUp, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable, Retry
from shoal.worker.context import RunNotServed
from shoal.worker.postponed import TaskPostponed
from shoal.worker.sessions import SessionWaits
from shoal.worker.task.attempt import MAX_REASON, TaskAttempt, log_fields
from shoal.worker.task.handler_runner import HandlerTimeout
from shoal.worker.task.page_blocked import PageBlocked
from shoal.worker.task.page_counters import page_counters

log = logging.getLogger("shoal.worker")

MAX_EVIDENCE_BODY = 2_000
MAX_MESSAGE = 500
MAX_TRACEBACK = 2_000
MAX_FRAMES = 8
SECOND_LOOK, MIN_SECOND_LOOK = 5.0, 2.0  # seconds after which an odd page is asked for again
_NOT_USER_CODE = tuple({str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")})


class ExcludedByRule(Exception):
    """A rule refuses the page after all: robots, scope."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def failure_outcome(attempt: TaskAttempt, error: BaseException) -> Outcome:
    """The outcome of an attempt that ended with an exception."""
    if isinstance(error, MemoryError):
        # The frames hold what filled the memory; without them there is room to go on.
        traceback.clear_frames(error.__traceback__)
    error = _root_error(attempt, error)
    if _is_releasable(attempt, error):
        return _outcome(attempt, "released", after=_wait_of(attempt, error))
    if isinstance(error, PageBlocked):
        return _blocked_outcome(attempt, error)
    if isinstance(error, ExcludedByRule):
        result: Result = "dead" if attempt.task.parent is None else "cancelled"
        return _outcome(attempt, result, error.reason, str(error), error)
    if isinstance(error, GiveUp):
        return _outcome(attempt, "dead", error.cause, str(error), error)
    if attempt.task.ack == "auto":  # whatever it was, it is not tried again
        cause = UNACKNOWLEDGED if isinstance(error, asyncio.CancelledError) else _cause(attempt, error)
        return _outcome(attempt, "dead", cause, _message(error), error)
    cause = _cause(attempt, error)
    after = _retry_delay(attempt, cause, error.after if isinstance(error, Retry) else None)
    result = "dead" if after is None else "retry"
    return _outcome(attempt, result, cause, _message(error), error, after or 0.0)


def _wait_of(attempt: TaskAttempt, error: BaseException) -> float:
    """Seconds until a released task is worth another look; what waits in a lane of its session is held there."""
    if not isinstance(error, SessionWaits):
        return 0.0
    task = attempt.task
    if error.holds_lane and session_of_lane(task.lane) == error.session:
        if error.after:
            # In the queue alone: whoever logs in ends it there, and here it would outlast that.
            hold = LaneChange(task.lane, hold_for=error.after, reason=str(error)[:MAX_REASON])
            attempt.lane_changes += (hold,)
        return 0.0
    return error.after


def _blocked_outcome(attempt: TaskAttempt, error: PageBlocked) -> Outcome:
    """What is only odd costs nothing; a block page costs none of the attempts of its task."""
    if error.is_odd:
        base = attempt.run_context.retry_delay if attempt.run_context else None
        after = SECOND_LOOK if base is None else max(MIN_SECOND_LOOK, min(base, SECOND_LOOK))
        return _outcome(attempt, "released", after=after)
    delay = None if error.is_final or attempt.task.ack == "auto" else _retry_delay(attempt, error.cause, None)
    return _outcome(attempt, "dead" if delay is None else "retry", error.cause, str(error), error, delay or 0.0)


def is_last_attempt(attempt: TaskAttempt, cause: str, after: float | None) -> bool:
    """Whether an attempt that fails with this cause is not followed by another."""
    return attempt.task.ack == "auto" or _retry_delay(attempt, cause, after) is None


def _retry_delay(attempt: TaskAttempt, cause: str, after: float | None) -> float | None:
    run_context = attempt.run_context
    return retry_delay(
        cause,
        attempt.task.failures or {},
        jitter=attempt.context.jitter(),
        after=after,
        limits=run_context.retries if run_context else None,
        base=run_context.retry_delay if run_context else None,
    )


def _root_error(attempt: TaskAttempt, error: BaseException) -> BaseException:
    """Of a group that a handler's own tasks ended with, what it comes down to if all of it is known."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    all_known = all(isinstance(leaf, Retry | GiveUp) or leaf in attempt.page_fetch_errors for leaf in leaves)
    return leaves[0] if all_known else error


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _is_releasable(attempt: TaskAttempt, error: BaseException) -> bool:
    if attempt.task.ack == "auto" and isinstance(error, asyncio.CancelledError | FetchFailed):
        return False  # it was begun, and comes once at most
    if isinstance(error, BdbQuit) and not attempt.context.supervised:
        signal.raise_signal(signal.SIGINT)  # whoever leaves the debugger means the run, not this page
        return True
    if isinstance(error, asyncio.CancelledError):
        # A handler may also leak the CancelledError of a task of its own; then nobody cancelled ours.
        current = asyncio.current_task()
        return current is not None and current.cancelling() > 0
    if attempt.is_in_handler and not any(error is fetch_error for fetch_error in attempt.page_fetch_errors):
        return False
    if isinstance(error, FetchFailed):
        return error.cause in ("stalled", "closed")
    return isinstance(error, TaskPostponed | RunNotServed | QueueUnavailable | QueueFull | QueueReadOnly | QueueRefused)


def _cause(attempt: TaskAttempt, error: BaseException) -> str:
    if isinstance(error, Retry):
        return error.cause
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, HandlerTimeout):
        return "handler_timeout"
    return f"{'handler' if attempt.is_in_handler else 'internal'}.{type(error).__name__}"


def _outcome(
    attempt: TaskAttempt,
    result: Result,
    cause: str = "",
    message: str = "",
    error: BaseException | None = None,
    after: float = 0.0,
) -> Outcome:
    log.info(
        f"page_{result}",
        extra=log_fields(attempt.task, attempt.context)
        | {"url": attempt.task.url, "cause": cause, "why": message[:MAX_MESSAGE], "after": round(after, 3)},
    )
    return Outcome(
        task=attempt.task.id,
        lease=attempt.task.lease,
        result=result,
        attempt=attempt.history_entry(cause, message[:MAX_MESSAGE]) if result != "released" else None,
        after=after,
        cause=cause,
        evidence=_evidence(attempt, error) if result == "dead" else None,
        lanes=attempt.lane_changes,
        counters=page_counters(attempt) | attempt.block_counters,
    )


def _evidence(attempt: TaskAttempt, error: BaseException | None) -> dict[str, Any]:
    evidence: dict[str, Any] = {"url": attempt.task.url}
    response = attempt.response
    if response is not None:
        evidence |= {"status": response.status, "url": response.url}
        evidence["body"] = response.body[:MAX_EVIDENCE_BODY].decode("utf-8", "replace")
    if attempt.is_in_handler and error is not None:
        evidence["traceback"] = _storable_text(user_traceback(error))
    return evidence


def _message(error: BaseException) -> str:
    """What was raised, and where in the user's own code."""
    if isinstance(error, Retry):
        return _storable_text(str(error))
    text = "".join(traceback.format_exception_only(error)[-1:]).strip()
    location = _user_code_location(error.__traceback__)
    return _storable_text(f"{text[: MAX_MESSAGE - len(location) - 3]} ({location})" if location else text)


def user_traceback(error: BaseException) -> str:
    """The traceback from the first line of the user's own code on, cut in its middle where it is long."""
    trace = error.__traceback__
    while trace is not None and not _is_user_code(trace.tb_frame.f_code):
        trace = trace.tb_next
    told = traceback.TracebackException(type(error), error, trace or error.__traceback__)
    if len(told.stack) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        told.stack = traceback.StackSummary.from_list([*told.stack[:half], *told.stack[-half:]])
    text = "".join(told.format())
    half = MAX_TRACEBACK // 2
    return text if len(text) <= MAX_TRACEBACK else f"{text[:half]}\n…\n{text[-half:]}"


def _is_user_code(code: CodeType) -> bool:
    return not code.co_filename.startswith((*_NOT_USER_CODE, "<frozen"))


def _user_code_location(trace: TracebackType | None) -> str:
    location = ""
    while trace is not None:
        code: CodeType = trace.tb_frame.f_code
        if _is_user_code(code):
            location = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return location


def _storable_text(text: str) -> str:
    """Text that every store can keep: half a surrogate pair is none."""
    return text.encode("utf-8", "replace").decode("utf-8")
