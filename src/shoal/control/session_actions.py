"""What people do to sessions: ask for a new login, or bring one from their own browser."""

from __future__ import annotations

import time
from typing import NamedTuple

from shoal.config.load import Settings, did_you_mean
from shoal.control.actions import UserActions
from shoal.core.session import SessionState, asked_again, logged_in
from shoal.core.session_options import SessionOptions
from shoal.errors import UsageError
from shoal.fetch.cookies import Cookie
from shoal.fetch.sessions.exported import read_exported
from shoal.fetch.sessions.identity import Identity, IdentityValues, storage_within
from shoal.fetch.sessions.seal import SealBroken, SessionSeal
from shoal.queue.base import Queue
from shoal.queue.sessions import change_session, list_sessions, load_session, release_session_lanes


class ImportedSession(NamedTuple):
    """What was taken of a file, without a value of it."""

    cookies: int
    expired: int
    elsewhere: int  # cookies of hosts that are not the session's
    origins: int  # of which a browser keeps something


async def renew_session(queue: Queue, actor: UserActions, settings: Settings, name: str) -> SessionState:
    """Whoever is logged in is so no more: the next worker that needs it logs in. Its tasks go on."""
    if name not in settings.sessions and name not in await list_sessions(queue):
        raise UsageError(f"there is no session {name}", hint=_known_hint(settings, name))
    options = settings.sessions.get(name)
    if options is not None and not options.login.kind:
        raise UsageError(
            f"nobody can log in to {name} but a person: it has no login",
            hint=f"log in with a browser, export its cookies, and: shoal session import {name} FILE",
        )
    changed = await change_session(queue, name, asked_again)
    if changed is None:
        raise UsageError(f"the session {name} changes all the time", hint="try again")
    await release_session_lanes(queue, name)
    await actor.log_action("renew session", name)
    return changed[0]


async def import_session(
    queue: Queue, actor: UserActions, settings: Settings, name: str, data: bytes
) -> ImportedSession:
    """Go on as whoever was logged in to the browser that has exported this."""
    options = declared(settings, name)
    seal, now = SessionSeal(settings.session_key), time.time()
    exported = read_exported(data, now)
    values = IdentityValues(Identity.new(options).id, exported.cookies, (), storage_within(exported.storage, options))
    values = Identity(options, values, now).values()
    if not values.cookies and not values.storage:
        raise UsageError(
            f"none of the {len(exported.cookies):,} cookies is for {', '.join(options.hosts)}",
            hint="export those of that site, or add its host to the session",
        )
    sealed, at = seal.seal(name, values), await queue.now()

    def put(state: SessionState) -> SessionState:
        return logged_in(state, identity=values.id, sealed=sealed, key=seal.fingerprint, now=at, source="import")

    if await change_session(queue, name, put) is None:
        raise UsageError(f"the session {name} changes all the time", hint="try again")
    await release_session_lanes(queue, name)
    elsewhere = len(exported.cookies) - len(values.cookies)
    await actor.log_action("import session", name, cookies=len(values.cookies))
    return ImportedSession(len(values.cookies), exported.expired, elsewhere, len(values.storage))


def declared(settings: Settings, name: str) -> SessionOptions:
    """A session of this machine."""
    found = settings.sessions.get(name)
    if found is None:
        raise UsageError(f"there is no session {name} on this machine", hint=_known_hint(settings, name))
    return found


async def cookies_of(queue: Queue, settings: Settings, name: str) -> tuple[Cookie, ...] | None:
    """The cookies of whoever is logged in, to be counted; None where this machine cannot read them."""
    state, _ = await load_session(queue, name)
    if state.state != "in" or not settings.session_key:
        return None
    try:
        return SessionSeal(settings.session_key).open(name, state.sealed).cookies
    except (SealBroken, UsageError):
        return None


def _known_hint(settings: Settings, name: str) -> str:
    if not settings.sessions:
        return "describe it in [sessions] of shoal.toml"
    return did_you_mean(name, settings.sessions)
