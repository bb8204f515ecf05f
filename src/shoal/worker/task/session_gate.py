"""Session gate: a task of a shared session goes on when somebody is logged in, and its page says whether that is so."""

from __future__ import annotations

import dataclasses

from shoal.core.page import Response
from shoal.errors import FetchFailed, Retry
from shoal.worker.context import RunContext
from shoal.worker.sessions import Attendance, BoundIdentity
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.login import log_in
from shoal.worker.task.session_check import logged_out_reason

CAUSE = "session"


async def enter_session(attempt: TaskAttempt, run_context: RunContext) -> RunContext:
    """The context for who is logged in. Log in, if that is this worker's to do, or raise what lets the task wait."""
    sessions = run_context.sessions
    session = sessions.of_task(attempt.task) if sessions is not None else None
    if sessions is None or session is None:
        return run_context
    can_log_in = session.login.kind != "browser" or run_context.browser is not None
    found = await sessions.enter(session, can_log_in=can_log_in)
    if isinstance(found, Attendance):
        secret = run_context.secrets.get(session.secret) if session.secret else ""
        found = await log_in(attempt, run_context, sessions, found, secret)
    attempt.identity = found.id
    builder = run_context.request_builder.with_identities(BoundIdentity(found, sessions))
    return dataclasses.replace(run_context, request_builder=builder)


async def check_session(attempt: TaskAttempt, run_context: RunContext, response: Response) -> None:
    """Raise what lets the task wait for a new login, where the page was answered to a stranger."""
    sessions = run_context.sessions
    session = sessions.of_task(attempt.task) if sessions is not None else None
    if sessions is None or session is None or not attempt.identity:
        return
    with attempt.step:
        reason = logged_out_reason(session, response)
    if not reason:
        if 200 <= response.status < 300:
            await sessions.note_good_page(session)
        return
    waits = await sessions.end(session, attempt.identity, attempt.task.id, reason)
    if waits is not None:
        raise waits
    words = f"{reason}, also after a new login: the page is not for session {session.name}, or its check is wrong"
    raise Retry(CAUSE, words)


async def note_session_failure(attempt: TaskAttempt, error: BaseException) -> None:
    """A proxy that has failed takes its identity with it."""
    run_context = attempt.run_context
    if run_context is None or run_context.sessions is None or not isinstance(error, FetchFailed):
        return
    session = run_context.sessions.of_task(attempt.task)
    if session is not None and session.exit and error.cause == "exit":
        await run_context.sessions.note_exit_failure(session, str(error))
