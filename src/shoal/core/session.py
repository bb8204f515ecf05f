"""Session: a named identity that the fleet shares, what is known of it, and what becomes of it. Pure.

An identity is made by a login (or imported), used by all workers, and retired as a whole: its cookies, the headers
that the login gave, the proxy or circuit that it leaves by, and its context in a browser. The next one shares none
of it. Which sessions there are, where they may be used and how one logs in is said by each machine's own settings;
the queue only keeps who is logged in, encrypted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from shoal.core.session_options import SessionOptions

IDENTITY_PREFIX = "\0identity\0"  # of what requests of an identity are known by: no run is called so
LOGIN_SECONDS = 30.0  # for which a login holds, unless whoever does it says that it goes on
FIRST_PAUSE, MAX_PAUSE = 15.0, 600.0  # seconds between two logins of which the first failed
MAX_SUSPECTS = 20  # tasks remembered that ended a session
MAX_ENDED = 2  # times that one page may end a session; then the page itself is not what it should be
MAX_LOST_KEYS = 8
MAX_ERROR = 300  # letters
MAX_DOCUMENT = 1_000_000  # letters of a document
State = Literal["in", "out", "person"]


class SessionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the fleet knows of a session: its document in the queue. Who is logged in is sealed."""

    state: State = "out"
    identity: str = ""  # which one it is, or was last
    sealed: str = ""
    key: str = ""  # the fingerprint of the key it is sealed with
    lost_keys: tuple[str, ...] = ()  # of identities that were given up because nobody could read them
    made_at: int = 0
    source: Literal["", "login", "import"] = ""
    is_confirmed: bool = False  # a page was answered to a member since
    failures: int = 0  # logins in a row that came to nothing
    pauses: int = 0  # likewise, or that could not even be tried
    retry_at: int = 0
    error: str = ""
    login_token: str = ""  # of whoever is logging in
    login_by: str = ""
    login_until: int = 0
    logins: int = 0  # ever
    suspects: dict[str, int] = {}  # by task, how often it ended the session

    def is_logging_in(self, now: int) -> bool:
        return self.login_until > now


def read_state(text: str) -> SessionState:
    """A document as it is kept; one that is not what it should be is that of nobody: who writes it is a stranger."""
    try:
        return _decode(text) if len(text) <= MAX_DOCUMENT else SessionState()
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return SessionState()


def written(state: SessionState) -> str:
    return msgspec.json.encode(state).decode()


_decode = msgspec.json.Decoder(SessionState).decode


def begun(state: SessionState, *, token: str, by: str, now: int, seconds: float = LOGIN_SECONDS) -> SessionState:
    """Somebody logs in, or goes on with it."""
    return replace(state, login_token=token, login_by=by, login_until=now + int(seconds * 1e6))


def logged_in(
    state: SessionState, *, identity: str, sealed: str, key: str, now: int, source: Literal["login", "import"] = "login"
) -> SessionState:
    lost = state.lost_keys
    if state.key and state.key != key and state.state == "in":
        lost = (*(one for one in lost if one != state.key), state.key)[-MAX_LOST_KEYS:]
    return SessionState(
        state="in",
        identity=identity,
        sealed=sealed,
        key=key,
        lost_keys=tuple(one for one in lost if one != key),
        made_at=now,
        source=source,
        failures=state.failures if source == "login" else 0,
        logins=state.logins + (source == "login"),
        suspects=state.suspects if source == "login" else {},
    )


def login_failed(state: SessionState, error: str, *, now: int, counts: bool, most: int) -> SessionState:
    """counts: the site said no; else it could not be asked, which is nobody's fault."""
    failures, pauses = state.failures + counts, state.pauses + 1
    pause = min(FIRST_PAUSE * 2.0 ** min(pauses - 1, 10), MAX_PAUSE)
    return replace(
        _logged_out(state),
        state="person" if failures >= most else "out",
        failures=failures,
        pauses=pauses,
        retry_at=now + int(pause * 1e6),
        error=error[:MAX_ERROR],
    )


def given_up(state: SessionState) -> SessionState:
    """Whoever was logging in stops without having come to an end."""
    return replace(state, login_token="", login_by="", login_until=0)


def ended(state: SessionState, error: str, *, task: int, most: int, can_log_in: bool) -> SessionState:
    """The site has ended it, as a page shows. That counts as a failed login where no page was ever right."""
    failures = state.failures + (not state.is_confirmed)
    suspects = dict(list(state.suspects.items())[-MAX_SUSPECTS:])
    if task:
        suspects[str(task)] = suspects.pop(str(task), 0) + 1
    return replace(
        _logged_out(state),
        state="out" if can_log_in and failures < most else "person",
        failures=failures,
        error=error[:MAX_ERROR],
        suspects=suspects,
    )


def asked_again(state: SessionState) -> SessionState:
    """A person wants a new login."""
    return replace(_logged_out(state), failures=0, pauses=0, retry_at=0, suspects={}, error="", lost_keys=())


def asked_person(state: SessionState, error: str) -> SessionState:
    return replace(_logged_out(state), state="person", error=error[:MAX_ERROR])


def confirmed(state: SessionState) -> SessionState:
    return replace(state, is_confirmed=True, failures=0, pauses=0, error="")


def is_suspect(state: SessionState, task: int) -> bool:
    """Whether a page has ended the session so often that it is the page."""
    return state.suspects.get(str(task), 0) >= MAX_ENDED


def is_due(state: SessionState, options: SessionOptions, now: int) -> bool:
    """Whether it is time for a new login although the site has not ended the last one."""
    return bool(options.max_age) and options.login.kind != "" and now - state.made_at > options.max_age * 1e6


def sharing(options: SessionOptions, others: Iterable[SessionOptions], host: str) -> int:
    """How many sessions without a pace of their own share that of a host, as they leave by the same exit."""
    return sum(one.delay is None and one.exit == options.exit and one.covers_host(host) for one in others)


def identity_key(name: str, identity: str) -> str:
    """What the requests of an identity are known by, to whatever keeps something for it."""
    return f"{IDENTITY_PREFIX}{name}\0{identity}"


def is_identity(session: str) -> bool:
    return session.startswith(IDENTITY_PREFIX)


def _logged_out(state: SessionState) -> SessionState:
    """Nothing of its identity is kept, but which one it was."""
    return replace(state, state="out", sealed="", is_confirmed=False, login_token="", login_by="", login_until=0)
