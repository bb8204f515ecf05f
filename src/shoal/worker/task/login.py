"""Login: the steps that a session's settings declare, taken once for the whole fleet by one worker.

Each request takes a slot of its host. robots.txt is not asked: this is what a person has told us to do, at a
URL of that person's choice, and not a page that we have found. What is secret goes to the hosts it is for alone, is in
memory alone, and is in no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from shoal.config.sessions import filled_in, filled_in_json, steps_with_secret
from shoal.core.host_pattern import host_matches
from shoal.core.lane import host_of_lane
from shoal.core.page import Request, Response
from shoal.core.session_options import SessionOptions
from shoal.core.task import RequestOptions
from shoal.core.url import lane_of
from shoal.errors import BrowserNeeded, FetchFailed, GiveUp, Retry, ShoalError, StepFailed, UsageError
from shoal.extract.jmespath_search import search_jmespath
from shoal.extract.page import Page
from shoal.fetch.base import VisitRequest
from shoal.fetch.sessions.identity import Identity
from shoal.worker.context import RunContext
from shoal.worker.postponed import TaskPostponed
from shoal.worker.sessions import Attendance, BoundIdentity, SessionWaits, SharedSessions
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.exchange import exchange, take_slot
from shoal.worker.task.failure import ExcludedByRule
from shoal.worker.task.session_check import logged_out_reason, login_problem, password_form

LOGIN_TIMEOUT = 120.0  # seconds for all of its steps
MAX_PROXIES = 8  # tried for one login
MAX_TOKEN = 8_000  # letters


class LoginFailed(ShoalError):
    """The site has not let us in."""


def _check_request(session: SessionOptions, readers: Callable[[str], list[str]], request: Request) -> None:
    """What is sent at a login, a second time after a redirect included, goes where the secret may go."""
    if request.body is None:
        return
    if not session.may_send_secret(request.url):
        raise LoginFailed(f"the login leads to {lane_of(request.url)}, which its secret is not for")
    bound = session.secret_hosts
    if request.url.startswith("https:") or bound is None:
        return
    for reader in readers(request.exit):  # a proxy reads what is not encrypted
        if not any(host_matches(pattern, reader) for pattern in bound):
            raise LoginFailed("the proxy could read the secret on its way: use https, or bind it to the proxy, too")


async def log_in(
    attempt: TaskAttempt, run_context: RunContext, sessions: SharedSessions, login: Attendance, secret: str | None
) -> Identity:
    """Make the login that is ours to make. Raises SessionWaits where it came to nothing."""
    keeping = asyncio.create_task(sessions.keep(login, _cancel_current()), name="keep-login")
    # Its slots are the host's own: the lane of the session is held until somebody has logged in.
    own_lane, attempt.lane = attempt.lane, host_of_lane(attempt.lane)
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT):
            identity = await _make_identity(attempt, run_context, login.options, secret)
        await _stop(keeping)
        return await sessions.succeed(login, identity)
    except SessionWaits:
        raise
    except asyncio.CancelledError:
        await _stop(keeping)
        if login.is_lost:
            await sessions.give_up(login)
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            raise SessionWaits(login.options.name, 1.0, "another worker logs in") from None
        await asyncio.shield(sessions.give_up(login))
        raise
    except (LoginFailed, StepFailed) as error:  # where scripts log in, a wrong password shows in what does not come
        await _stop(keeping)
        raise await sessions.fail(login, str(error), counts=True) from error
    except TaskPostponed:
        await _stop(keeping)
        await sessions.give_up(login)
        raise
    except (Retry, TimeoutError) as error:
        await _stop(keeping)
        words = f"{error.cause}: {error}" if isinstance(error, Retry) else "it took too long"
        raise await sessions.fail(login, words, counts=False) from error
    except (GiveUp, ExcludedByRule, UsageError) as error:
        await _stop(keeping)
        raise await sessions.fail(login, str(error), counts=True) from error
    finally:
        attempt.lane = own_lane
        keeping.cancel()
        sessions.leave(login)


async def _make_identity(
    attempt: TaskAttempt, run_context: RunContext, session: SessionOptions, secret: str | None
) -> Identity:
    """One whose proxy works: each new identity has another."""
    for _ in range(MAX_PROXIES - 1):
        try:
            return await _take_steps(attempt, run_context, session, secret)
        except FetchFailed as error:
            if error.cause != "exit" or not session.exit:
                raise
    return await _take_steps(attempt, run_context, session, secret)


async def _take_steps(
    attempt: TaskAttempt, run_context: RunContext, session: SessionOptions, secret: str | None
) -> Identity:
    if secret is None:
        raise LoginFailed(f"this machine has no secret {session.secret}: set SHOAL_SECRET_{session.secret.upper()}")
    identity = Identity.new(session)
    plain = run_context.request_builder
    builder = plain.with_identities(BoundIdentity(identity), partial(_check_request, session, plain.proxies_of))
    context = dataclasses.replace(run_context, request_builder=builder, robots=None)
    if session.login.kind == "browser":
        response = await _by_browser(attempt, context, session, identity, secret)
    elif session.login.kind == "json":
        response = await _by_json(attempt, context, session, identity, secret)
    else:
        response = await _by_form(attempt, context, session, secret)
    with attempt.step:
        problem = login_problem(session, response)
    if problem:
        raise LoginFailed(problem)
    if session.check.url:
        response = await _ask(attempt, context, session, session.check.url, RequestOptions())
        with attempt.step:
            problem = logged_out_reason(session, response)
        if problem or response.status >= 400:
            raise LoginFailed(f"{session.check.url}: {problem or f'the server answered {response.status}'}")
    return identity


async def _by_form(attempt: TaskAttempt, context: RunContext, session: SessionOptions, secret: str) -> Response:
    login = session.login
    response = await _ask(attempt, context, session, login.url, RequestOptions())
    if response.status >= 500:
        raise FetchFailed(f"http.{response.status}", f"the server answered {response.status}")
    with attempt.step:
        form = password_form(Page(response), login.selector)
        if form is None:
            what = f"no form {login.selector}" if login.selector else "no form with a password"
            raise LoginFailed(f"{response.url} has {what}, with status {response.status}")
        fields = {name: filled_in(text, secret) for name, text in login.fields.items()}
        url, more = form.request(fields, None, {})
    if "body" not in more:
        raise LoginFailed("the form would send the password in its URL, where logs keep it")
    options = RequestOptions(more["method"], tuple(more["headers"].items()), more["body"])
    return await _ask(attempt, context, session, url, options)


async def _by_json(
    attempt: TaskAttempt, context: RunContext, session: SessionOptions, identity: Identity, secret: str
) -> Response:
    login = session.login
    body = msgspec.json.encode(filled_in_json(msgspec.json.decode(login.body), secret))
    headers = (("Content-Type", "application/json"), ("Accept", "application/json"))
    response = await _ask(attempt, context, session, login.url, RequestOptions("POST", headers, body))
    if not login.token or response.status >= 400:
        return response
    try:
        token = search_jmespath(login.token, msgspec.json.decode(response.body))
    except msgspec.MsgspecError:
        raise LoginFailed("the answer is not JSON") from None
    if not isinstance(token, str) or not token or len(token) > MAX_TOKEN or not token.isprintable():
        raise LoginFailed(f"the answer has no text at {login.token}")
    name, _, value = login.header.partition(":")
    identity.headers = ((name.strip(), value.strip().replace("{token}", token)),)
    return response


async def _by_browser(
    attempt: TaskAttempt, context: RunContext, session: SessionOptions, identity: Identity, secret: str
) -> Response:
    if context.browser is None:
        raise BrowserNeeded(session.login.url)
    builder, url, exit = context.request_builder, session.login.url, attempt.exit_of(context)
    options = RequestOptions(session=session.name)

    async def navigate(url: str) -> Request:
        await take_slot(attempt, context, attempt.lane_of(url))
        return builder.build(url, options, session.login.url, exit=exit)

    hosts = session.hosts if session.secret_hosts is None else session.secret_hosts
    request = VisitRequest(
        url,
        navigate,
        steps_with_secret(session.login.steps, secret, hosts),
        session="\0".join((identity.key, exit, "")),
        cookies=identity,
    )
    live = await context.browser.visit(request)
    try:
        identity.storage = await live.storage()
        return live.response
    finally:
        await live.close()


async def _ask(
    attempt: TaskAttempt, context: RunContext, session: SessionOptions, url: str, options: RequestOptions
) -> Response:
    turn = partial(take_slot, attempt, context, attempt.lane_of(url))
    return await exchange(attempt, context, url, replace(options, session=session.name), turn, is_task_request=False)


def _cancel_current() -> Callable[[], None]:
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        task.cancel()

    return cancel


async def _stop(keeping: asyncio.Task[None]) -> None:
    """So that nothing changes the document beside us."""
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait([keeping])
