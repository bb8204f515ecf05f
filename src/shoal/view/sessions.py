"""Sessions as people see them: who is logged in, since when, what waits for it, and what a person must do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shoal.config.load import Settings
from shoal.core.lane import LaneState, WorkerStatus, session_of_lane
from shoal.core.session import SessionState
from shoal.core.session_options import SessionOptions, session_capability
from shoal.queue.base import Queue
from shoal.queue.sessions import list_sessions, session_lanes
from shoal.view.formatting import ago, clean, count

STATES = {"in": "logged in", "out": "logged out", "person": "needs a person", "login": "logging in"}
LOGINS = {"form": "a form", "json": "JSON", "browser": "a browser", "": "by a person"}


class SessionView(msgspec.Struct, frozen=True):
    """One session: nothing of it is a secret."""

    name: str
    state: str  # in, out, person, login
    here: bool  # whether this machine has it
    hosts: tuple[str, ...]
    exit: str
    login: str  # form, json, browser, or "" for a person
    made_at: int
    source: str
    is_confirmed: bool
    logins: int
    failures: int
    error: str
    login_by: str
    retry_at: int
    workers: int
    waiting: int  # pages
    in_flight: int

    @property
    def hint(self) -> str:
        """What a person can do, where one is needed."""
        if self.state != "person":
            return ""
        if self.here and not self.login:
            return f"log in with a browser, export its cookies, and: shoal session import {clean(self.name)} FILE"
        return f"mend what is wrong, then: shoal session renew {clean(self.name)}"


async def session_views(queue: Queue, settings: Settings) -> list[SessionView]:
    """Those of this machine, then those that only others have."""
    states, statuses, now = await list_sessions(queue), await queue.workers(), await queue.now()
    names = dict.fromkeys((*settings.sessions, *sorted(states), *_of_workers(statuses)))
    lanes = {name: [lane async for lane in session_lanes(queue, name)] for name in names}
    return [_view(name, settings.sessions.get(name), states, statuses, lanes[name], now) for name in names]


def _of_workers(statuses: Iterable[WorkerStatus]) -> list[str]:
    prefix = session_capability("")
    return sorted({it.removeprefix(prefix) for one in statuses for it in one.capabilities if it.startswith(prefix)})


def _view(
    name: str,
    options: SessionOptions | None,
    states: Mapping[str, SessionState],
    statuses: Iterable[WorkerStatus],
    lanes: Iterable[LaneState],
    now: int,
) -> SessionView:
    state, lanes = states.get(name, SessionState()), list(lanes)
    return SessionView(
        name,
        "login" if state.state != "person" and state.is_logging_in(now) else state.state,
        options is not None,
        options.hosts if options is not None else tuple(lane.name.partition("@")[0] for lane in lanes),
        options.exit if options is not None else "",
        options.login.kind if options is not None else "",
        state.made_at,
        state.source,
        state.is_confirmed,
        state.logins,
        state.failures,
        state.error,
        state.login_by,
        state.retry_at if state.retry_at > now and state.state != "person" else 0,
        sum(session_capability(name) in status.capabilities for status in statuses),
        sum(lane.ready for lane in lanes),
        sum(lane.in_flight for lane in lanes),
    )


def describe_session(one: SessionView, now: int) -> str:
    """Its state in words."""
    words = STATES[one.state]
    if one.state == "in":
        return f"{words} {ago(one.made_at, now)}" + (", by imported cookies" if one.source == "import" else "")
    if one.state == "login" and one.login_by:
        return f"{words}: {clean(one.login_by)}"
    return words


def waiting_words(one: SessionView) -> str:
    return f"{count(one.waiting, 'page')} waiting" if one.waiting else ""


async def needing_person(queue: Queue) -> dict[str, SessionState]:
    """The sessions that wait for a person, by name."""
    return {name: state for name, state in (await list_sessions(queue)).items() if state.state == "person"}


def waits_for(lanes: Iterable[LaneState], names: Iterable[str]) -> int:
    """Pages in lanes of these sessions."""
    wanted = set(names)
    return sum(lane.ready for lane in lanes if session_of_lane(lane.name) in wanted)
