"""SessionOptions: a session as a machine declares it: where it may be used, and how one logs in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

NAME_RULE = "1 to 24 small letters, digits, dots, dashes and underscores, beginning with a letter or a digit"
SESSION_PREFIX = "session:"  # of the capability that its workers have
_is_name = re.compile(r"[a-z0-9][a-z0-9._-]{0,23}").fullmatch

LoginKind = Literal["form", "json", "browser", ""]


def is_session_name(name: str) -> bool:
    return _is_name(name) is not None


def session_capability(name: str) -> str:
    """What a worker has that can use this session."""
    return SESSION_PREFIX + name


@dataclass(frozen=True, slots=True)
class Login:
    """How one logs in. "{user}" and "{password}" stand for the two parts of the session's secret."""

    kind: LoginKind = ""  # "": nobody but a person can
    url: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # of a form, by name
    selector: str = ""  # of the form; "": the first that has a password
    body: str = ""  # of a JSON request, as JSON
    token: str = ""  # a JMESPath: what of its answer goes into the header
    header: str = ""  # with {token}
    steps: tuple[str, ...] = ()  # of a browser, as in core/browser_step.py


@dataclass(frozen=True, slots=True)
class LoggedInCheck:
    """What shows that somebody is logged in; a page of which one thing is not so was not answered to a member."""

    url: str = ""  # asked for after a login
    present: str = ""  # a selector that every HTML page has
    absent: str = ""  # one that none has
    status: tuple[int, ...] = (401,)
    redirect: str = ""  # a pattern for URLs that only strangers are led to


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """A session as a machine declares it. It names a secret and holds none."""

    name: str
    hosts: tuple[str, ...]  # to which it belongs: nothing of it goes anywhere else
    secret: str = ""
    secret_hosts: tuple[str, ...] | None = None  # those that the secret is bound to
    exit: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    delay: float | None = None  # between two requests to a host; None: as the host's pace allows
    in_flight: int | None = None
    failures: int = 3  # logins in a row that may fail before a person is asked
    max_age: float = 0.0  # seconds after which one logs in anew; 0: when the site ends it
    login: Login = Login()
    check: LoggedInCheck = LoggedInCheck()

    def covers(self, url: str) -> bool:
        """Whether a canonical URL is on one of its hosts."""
        from shoal.core.url import lane_of  # late: settings are read without it

        return self.covers_host(lane_of(url))

    def covers_host(self, host: str) -> bool:
        return _matches_any(self.hosts, host)

    def may_send_secret(self, url: str) -> bool:
        """Whether its login may be shown to the host of a canonical URL."""
        from shoal.core.url import lane_of  # late, as above

        return _matches_any(self.hosts if self.secret_hosts is None else self.secret_hosts, lane_of(url))


def _matches_any(patterns: Iterable[str], host: str) -> bool:
    from shoal.core.host_pattern import host_matches  # late, as above

    return any(host_matches(pattern, host) for pattern in patterns)
