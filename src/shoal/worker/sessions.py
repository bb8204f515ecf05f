"""SharedSessions: the sessions of this worker process, shared with the fleet through the queue.

Whoever needs one asks `enter`: it gives the identity to go as, a login to be made by this worker alone, or raises what
lets the task wait at no cost. Only the store's clock says whether a login is still being made, and a login whose
document somebody else has changed meanwhile is nobody's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from shoal.core import session as rules
from shoal.core.session import LOGIN_SECONDS, SessionState
from shoal.core.session_options import SessionOptions
from shoal.core.task import LeasedTask
from shoal.errors import ActionRequired
from shoal.fetch.cookies import Cookie
from shoal.fetch.sessions.identity import Identity, storage_within, with_news
from shoal.fetch.sessions.seal import SealBroken, SessionSeal
from shoal.queue.base import Queue
from shoal.queue.sessions import change_session, load_session, release_session_lanes, swap_session
from shoal.worker.postponed import TaskPostponed
from shoal.worker.task.request_builder import Identities, RequestIdentity

log = logging.getLogger("shoal.worker")

REFRESH_SECONDS = 2.0  # for which the document is not read again
SHARE_SECONDS = 2.0  # for which new cookies wait
LOGIN_WAIT = 5.0  # seconds after which it is looked again whether a login has come to an end
ELSEWHERE_WAIT = 5.0  # likewise, where only another worker can log in
PERSON_WAIT = 60.0  # likewise, where a person must do something
RENEW_EVERY = LOGIN_SECONDS / 6
EXIT_FAILURES = 3  # in a row, after which an identity has lost its proxy


class SessionWaits(TaskPostponed):
    """Nobody is logged in now: the task goes back, and the lane of its session waits."""

    def __init__(self, name: str, seconds: float, why: str, *, holds_lane: bool = True) -> None:
        super().__init__(f"session {name}: {why}")
        self.session = name
        self.after = seconds
        self.holds_lane = holds_lane


@dataclass(slots=True)
class Attendance:
    """A login that is this worker's to make."""

    options: SessionOptions
    token: str
    is_lost: bool = False


class BoundIdentity:
    """The identity of one attempt: whoever logs in anew meanwhile, its requests are of one visitor."""

    def __init__(self, identity: Identity, others: Identities | None = None) -> None:
        self._identity = identity
        self._others = others

    def identity(self, name: str, url: str) -> RequestIdentity | None:
        if name == self._identity.options.name:
            return self._identity if self._identity.options.covers(url) else None
        return self._others.identity(name, url) if self._others is not None else None


@dataclass(slots=True)
class _Known:
    """What this process knows of a session."""

    state: SessionState = field(default_factory=SessionState)
    version: int = -1
    read_at: float = float("-inf")
    shared_at: float = float("-inf")
    identity: Identity | None = None
    unreadable: str = ""  # why its document is of no use here
    logging_in: bool = False
    exit_failures: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedSessions:
    def __init__(
        self,
        queue: Queue,
        options: Mapping[str, SessionOptions],
        seal: SessionSeal,
        worker: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._options = options
        self._seal = seal
        self._worker = worker
        self._clock = clock
        self._known = {name: _Known() for name in options}

    def options(self, name: str) -> SessionOptions | None:
        return self._options.get(name)

    def of_task(self, task: LeasedTask) -> SessionOptions | None:
        """The session that a task is fetched as, on one of its hosts."""
        asked = task.request_options
        found = self._options.get(asked.session or asked.rule_session) if asked is not None else None
        return found if found is not None and found.covers(task.url) else None

    def identity(self, name: str, url: str) -> Identity | None:
        """Who is logged in, as this process knows it, for a request to one of the hosts."""
        known = self._known.get(name)
        if known is None or not self._options[name].covers(url):
            return None
        if known.identity is None:
            known.identity = Identity.new(self._options[name])  # of nobody: what it hears is kept by nobody
        return known.identity

    async def enter(self, options: SessionOptions, *, can_log_in: bool) -> Identity | Attendance:
        """Who to go as, or the login that must be made first. Raises SessionWaits."""
        known = self._known[options.name]
        if self._is_fresh(known) and not options.max_age and known.state.state == "in" and not known.unreadable:
            assert known.identity is not None
            return known.identity
        async with known.turn:
            await self._refresh(options.name, known)
            state, now = known.state, await self._queue.now()
            is_due = rules.is_due(state, options, now)
            if state.state == "in" and not known.unreadable and not is_due and known.identity is not None:
                return known.identity
            if state.state == "person":
                raise SessionWaits(
                    options.name, PERSON_WAIT, f"a person is needed: {state.error or 'nobody is logged in'}"
                )
            if known.logging_in or state.is_logging_in(now):
                raise SessionWaits(options.name, LOGIN_WAIT, f"{state.login_by or 'somebody'} is logging in")
            if known.unreadable and self._seal.fingerprint in state.lost_keys:
                # Others cannot read what is sealed here: whoever logged in anew would take it from them each time.
                raise SessionWaits(options.name, PERSON_WAIT, known.unreadable, holds_lane=False)
            if state.state == "out" and state.retry_at > now:
                wait = (state.retry_at - now) / 1e6
                raise SessionWaits(options.name, wait, f"the last login failed: {state.error}")
            if not options.login.kind:
                await self._ask_person(options, known, known.unreadable or state.error or "nobody has logged in")
            if not can_log_in:
                why = "one logs in with a browser, and this worker has none"
                raise SessionWaits(options.name, ELSEWHERE_WAIT, why, holds_lane=False)
            return await self._begin(options, known, now)

    async def keep(self, login: Attendance, on_lost: Callable[[], None]) -> None:
        """Go on saying that the login is being made; calls `on_lost` once if it is not ours any more."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                renewed = await self._renew(login)
            except ActionRequired:
                continue  # it holds for a while
            if renewed is None:
                login.is_lost = True
                on_lost()
                return

    async def _renew(self, login: Attendance) -> SessionState | None:
        now = await self._queue.now()
        return await self._change_own(
            login, lambda state: rules.begun(state, token=login.token, by=self._worker, now=now)
        )

    async def succeed(self, login: Attendance, identity: Identity) -> Identity:
        """The login is made: everybody goes on with it. Raises SessionWaits where it was not ours any more."""
        name, now = login.options.name, await self._queue.now()
        identity.take_news()
        identity.storage = storage_within(identity.storage, login.options)
        sealed = self._seal.seal(name, identity.values())
        fingerprint = self._seal.fingerprint

        def log_in(state: SessionState) -> SessionState:
            return rules.logged_in(state, identity=identity.id, sealed=sealed, key=fingerprint, now=now)

        if await self._finish(login, log_in) is None:
            raise SessionWaits(name, LOGIN_WAIT, "another worker has logged in meanwhile")
        known = self._known[name]
        known.identity, known.unreadable, known.exit_failures = identity, "", 0
        log.info("session_logged_in", extra={"session_name": name, "worker": self._worker})
        await release_session_lanes(self._queue, name)
        return identity

    async def fail(self, login: Attendance, error: str, *, counts: bool) -> SessionWaits:
        """The login came to nothing; says how long its tasks wait."""
        name, most, now = login.options.name, login.options.failures, await self._queue.now()
        state = await self._finish(
            login, lambda state: rules.login_failed(state, error, now=now, counts=counts, most=most)
        )
        if state is None:
            return SessionWaits(name, LOGIN_WAIT, "another worker logs in")
        if state.state == "person":
            log.error(
                "session_needs_person", extra={"session_name": name, "why": state.error, "hint": person_hint(name)}
            )
            return SessionWaits(name, PERSON_WAIT, f"a person is needed: {state.error}")
        log.warning(
            "session_login_failed", extra={"session_name": name, "why": state.error, "failures": state.failures}
        )
        return SessionWaits(name, max(1.0, (state.retry_at - now) / 1e6), f"the login failed: {state.error}")

    async def give_up(self, login: Attendance) -> None:
        """Whoever made the login was stopped: others may make it at once."""
        await self._finish(login, rules.given_up)

    def leave(self, login: Attendance) -> None:
        """Nobody here is making this login any more, whatever became of it."""
        self._known[login.options.name].logging_in = False

    async def note_good_page(self, options: SessionOptions) -> None:
        """A page was answered to a member."""
        known = self._known[options.name]
        known.exit_failures = 0
        if known.identity is None or known.state.is_confirmed or known.state.state != "in":
            return
        id = known.identity.id

        def confirm(state: SessionState) -> SessionState | None:
            fits = state.state == "in" and state.identity == id and not state.is_confirmed
            return rules.confirmed(state) if fits else None

        await self._change(options.name, known, confirm)

    async def end(self, options: SessionOptions, identity: str, task: int, why: str) -> SessionWaits | None:
        """A page shows that this identity is not logged in (any more). None: it is the page itself, by now."""
        known, name = self._known[options.name], options.name
        is_page = False

        def end(state: SessionState) -> SessionState | None:
            nonlocal is_page
            is_page = False
            if state.state != "in" or state.identity != identity:
                return None
            if task and rules.is_suspect(state, task):
                is_page = True
                return None
            can = bool(options.login.kind)
            return rules.ended(state, why, task=task, most=options.failures, can_log_in=can)

        ended = await self._change(name, known, end)
        if is_page:
            return None
        known.read_at = float("-inf")
        if ended is None:
            return SessionWaits(name, 0.0, "somebody has logged in anew meanwhile", holds_lane=False)
        log.warning("session_ended", extra={"session_name": name, "task": task, "why": why, "state": ended.state})
        if ended.state == "person":
            log.error(
                "session_needs_person", extra={"session_name": name, "why": ended.error, "hint": person_hint(name)}
            )
            return SessionWaits(name, PERSON_WAIT, f"a person is needed: {ended.error}")
        return SessionWaits(name, 0.0, why)

    async def note_exit_failure(self, options: SessionOptions, why: str) -> None:
        """Its proxy does not work; where that goes on, the identity is retired with it."""
        known = self._known[options.name]
        known.exit_failures += 1
        if known.exit_failures >= EXIT_FAILURES and known.identity is not None:
            known.exit_failures = 0
            await self.end(options, known.identity.id, 0, f"its proxy does not work: {why}")

    async def share_due(self) -> None:
        """Share new cookies that have waited for long enough."""
        now = self._clock()
        for name, known in self._known.items():
            if known.identity is not None and known.identity.has_news and now >= known.shared_at + SHARE_SECONDS:
                await self._share(name, known)

    async def share_all(self) -> None:
        for name, known in self._known.items():
            if known.identity is not None and known.identity.has_news:
                await self._share(name, known)

    async def _share(self, name: str, known: _Known) -> None:
        async with known.turn:
            identity = known.identity
            if identity is None:
                return
            known.shared_at, news = self._clock(), identity.take_news()
            try:
                await self._change(name, known, lambda state: self._with_news(name, state, identity, news))
            except ActionRequired as error:
                identity.bring_back(news)
                log.warning("session_not_shared", extra={"session_name": name, "why": str(error)})
            known.version, known.read_at = -1, float("-inf")  # others may have heard something, too

    def _with_news(
        self, name: str, state: SessionState, identity: Identity, news: tuple[Cookie, ...]
    ) -> SessionState | None:
        if state.state != "in" or state.identity != identity.id or state.key != self._seal.fingerprint:
            return None  # retired, and its cookies with it
        values = with_news(self._seal.open(name, state.sealed), news, time.time())
        return replace(state, sealed=self._seal.seal(name, values))

    async def _begin(self, options: SessionOptions, known: _Known, now: int) -> Attendance:
        token = secrets.token_hex(8)
        state = rules.begun(known.state, token=token, by=self._worker, now=now)
        version = await swap_session(self._queue, options.name, state, known.version)
        if version is None:
            known.read_at = float("-inf")
            raise SessionWaits(options.name, LOGIN_WAIT, "somebody else is logging in")
        known.state, known.version, known.logging_in = state, version, True
        if known.unreadable:
            log.warning("session_unreadable", extra={"session_name": options.name, "why": known.unreadable})
        return Attendance(options, token)

    async def _finish(self, login: Attendance, change: Callable[[SessionState], SessionState]) -> SessionState | None:
        """None: it is not ours any more."""
        known = self._known[login.options.name]
        known.logging_in, known.read_at = False, float("-inf")
        return None if login.is_lost else await self._change_own(login, change)

    async def _change_own(
        self, login: Attendance, change: Callable[[SessionState], SessionState]
    ) -> SessionState | None:
        """Only who has begun a login goes on with it: its token is that of nobody else."""
        known = self._known[login.options.name]
        return await self._change(
            login.options.name, known, lambda state: change(state) if state.login_token == login.token else None
        )

    async def _ask_person(self, options: SessionOptions, known: _Known, why: str) -> None:
        if known.state.state != "person":
            await self._change(options.name, known, lambda state: rules.asked_person(state, why))
            details = {"session_name": options.name, "why": why, "hint": person_hint(options.name)}
            log.error("session_needs_person", extra=details)
        raise SessionWaits(options.name, PERSON_WAIT, f"a person is needed: {why}")

    async def _change(
        self, name: str, known: _Known, change: Callable[[SessionState], SessionState | None]
    ) -> SessionState | None:
        changed = await change_session(self._queue, name, change)
        if changed is None:
            return None
        if changed[1] > known.version:
            known.state, known.version = changed
        return changed[0]

    def _is_fresh(self, known: _Known) -> bool:
        return self._clock() < known.read_at + REFRESH_SECONDS

    async def _refresh(self, name: str, known: _Known) -> None:
        if self._is_fresh(known):
            return
        state, version = await load_session(self._queue, name)
        known.read_at = self._clock()
        if version == known.version and known.identity is not None:
            return
        if version and version < known.version:
            return  # read before we changed it ourselves
        known.state, known.version, known.unreadable = state, version, ""
        if state.state != "in":
            return
        try:
            values = self._seal.open(name, state.sealed)
        except SealBroken as error:
            known.unreadable = str(error)
            return
        if known.identity is not None and known.identity.id == values.id:
            known.identity.refresh(values, time.time())
        else:
            known.identity, known.exit_failures = Identity(self._options[name], values, time.time()), 0


def person_hint(name: str) -> str:
    return f"shoal session show {name}; when it is mended: shoal session renew {name}"
