"""Manners: how a run asks for pages. Credentials go to the origin they are meant for, and nowhere else."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from shoal.core.page import Request, Response
from shoal.core.task import Ask
from shoal.core.url import path_of, request_digest
from shoal.errors import GiveUp

# Headers that say who somebody is, by the words in their names.
_telling = re.compile(r"auth|cookie|token|secret|api-?key|session|password", re.IGNORECASE).search
# Of what a task asks for itself, only these go along to another origin.
_HARMLESS = frozenset({"accept", "accept-language", "user-agent"})
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-language"})
_KEPT_METHODS = frozenset({307, 308})

Headers = tuple[tuple[str, str], ...]


class Cookies(Protocol):
    def header(self, url: str, now: float) -> str: ...

    def store(self, url: str, lines: Iterable[str], now: float) -> None: ...


class Sessions(Protocol):
    def jar(self, name: str) -> Cookies: ...


class Manners:
    def __init__(
        self,
        *,
        timeout: float = 30.0,
        headers: Headers = (),
        auth: str = "",
        proxy: str = "",
        secrets: Mapping[str, str] | None = None,
        sessions: Sessions | None = None,
        at_home: Callable[[str], bool] = lambda origin: False,
        credential: Callable[[str], str] = str,
        may: Callable[[str, str], bool] = lambda name, origin: True,
        bare: bool = False,
    ) -> None:
        """at_home: whether an origin may be shown the run's own login; credential: a secret as a header.

        may: whether a secret of this name may be shown to an origin at all.
        bare: nobody is really asked, so that logins and proxies are not needed.
        """
        self._bare = bare
        self._timeout = timeout
        self._open = tuple(pair for pair in headers if not _telling(pair[0]))
        self._all = headers
        self._auth = auth
        self._secrets = secrets or {}
        self.proxy = self._address(proxy) if proxy else ""  # of every request that asks for no other
        self._sessions = sessions
        self._at_home = at_home
        self._credential = credential
        self._may = may
        self._plain = not (headers or auth or proxy)
        if auth:
            self._secret(auth)  # said now, not on the first page

    def request(self, url: str, ask: Ask | None, home: str) -> Request:
        """What goes out for `url`; `home` is the address that `ask` was made for."""
        cookie = self._cookie(url, ask)
        if self._plain and ask is None and not cookie:
            return Request(url, timeout=self._timeout)
        if self._bare:
            return Request(url, timeout=self._timeout, key=request_digest(url, ask) if ask else b"")
        origin = origin_of(url)
        at_home = self._at_home(origin)
        headers = list(self._all if at_home else self._open)
        if self._auth and at_home and self._may(self._auth, origin):
            headers.append(("authorization", self._credential(self._secret(self._auth))))
        own = origin == origin_of(home)
        proxy, asked, ask = self.proxy, ask, ask or Ask()
        given = ask.headers if own else _abroad(ask)
        if ask.auth and own:
            self._check(ask.auth, origin)
            given += (("authorization", self._credential(self._secret(ask.auth))),)
        if given:
            names = {name.lower() for name, _ in given}
            headers = [pair for pair in headers if pair[0].lower() not in names] + list(given)
        if cookie and not any(name.lower() == "cookie" for name, _ in headers):
            headers.append(("cookie", cookie))
        if ask.proxy:
            proxy = self._address(ask.proxy)
        key = request_digest(url, asked) if asked is not None else b""
        return Request(url, ask.method, tuple(headers), ask.body, self._timeout, key, proxy)

    def heard(self, response: Response, ask: Ask | None) -> bool:
        """Keep the cookies of an answer; says whether there were any."""
        if self._sessions is None:
            return False
        lines = [value for name, value in response.headers if name == "set-cookie"]
        if lines:
            self._sessions.jar(ask.session if ask else "").store(response.url, lines, time.time())
        return bool(lines)

    def _cookie(self, url: str, ask: Ask | None) -> str:
        if self._sessions is None:
            return ""
        return self._sessions.jar(ask.session if ask else "").header(url, time.time())

    def _secret(self, name: str) -> str:
        try:
            return self._secrets[name.lower()]
        except KeyError:
            raise GiveUp(
                "bad_request", f"there is no secret called {name!r}: set SHOAL_SECRET_{name.upper()}"
            ) from None

    def _check(self, name: str, origin: str) -> None:
        if not self._may(name, origin):
            raise GiveUp(
                "bad_request",
                f"the secret {name!r} is not for {origin}: bind it to that host in [secrets] of shoal.toml",
            )

    def _address(self, proxy: str) -> str:
        return proxy if "://" in proxy else self._secret(proxy)


def _abroad(ask: Ask) -> Headers:
    """What goes along to another origin; a body that a server insists on stays readable there."""
    names = _HARMLESS if ask.body is None else _HARMLESS | _OF_THE_BODY
    return tuple(pair for pair in ask.headers if pair[0].lower() in names)


def origin_of(url: str) -> str:
    return url[: len(url) - len(path_of(url))]


def asked_again(ask: Ask | None, status: int) -> Ask | None:
    """How the target of a redirect is asked for: a POST becomes a GET, unless the server insists."""
    if ask is None or status in _KEPT_METHODS or ask.method in ("GET", "HEAD"):
        return ask
    if status in (301, 302) and ask.method != "POST":
        return ask
    kept = tuple(pair for pair in ask.headers if not pair[0].lower().startswith("content-"))
    return Ask("GET", kept, None, ask.session, ask.proxy, ask.auth)
