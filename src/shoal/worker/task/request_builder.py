"""RequestBuilder: a run's requests. Credentials go to the origin they are meant for, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Protocol

from msgspec.structs import replace

from shoal.core.page import Request, Response
from shoal.core.request_header import names_identity
from shoal.core.task import RequestOptions, is_plain
from shoal.core.url import path_of, request_digest
from shoal.errors import GiveUp
from shoal.fetch.cookies import Cookie

# Of what a task asks for itself, only these go along to another origin.
_SAFE_HEADERS = frozenset({"accept", "accept-language", "user-agent"})
_BODY_HEADERS = frozenset({"content-type", "content-encoding", "content-language"})
_METHOD_KEEPING_STATUSES = frozenset({307, 308})

Headers = tuple[tuple[str, str], ...]
MayUseSecret = Callable[[str, str], bool]  # its name, and the origin that would see it


class CookieStore(Protocol):
    def header(self, url: str, now: float) -> str: ...

    def store(self, url: str, lines: Iterable[str], now: float) -> None: ...

    def all(self) -> Iterable[Cookie]: ...

    def put(self, cookies: Iterable[Cookie], now: float) -> None: ...


class RequestIdentity(CookieStore, Protocol):
    """Who is logged in to a session that the fleet shares."""

    @property
    def key(self) -> str: ...

    @property
    def storage(self) -> Mapping[str, Mapping[str, str]]: ...

    def headers_for(self, url: str) -> Headers: ...


class Identities(Protocol):
    def identity(self, name: str, url: str) -> RequestIdentity | None:
        """None: it is not a session that the fleet shares, or not on one of its hosts."""
        ...


class CookieStores(Protocol):
    def jar(self, name: str) -> CookieStore: ...


class RequestBuilder:
    def __init__(
        self,
        *,
        timeout: float = 30.0,
        headers: Headers = (),
        auth: str = "",
        proxy: str = "",
        secrets: Mapping[str, str] | None = None,
        sessions: CookieStores | None = None,
        is_own_origin: Callable[[str], bool] = lambda origin: False,
        authorization_header: Callable[[str], str] = str,
        may_use_secret: MayUseSecret = lambda name, origin: True,
        may_code_use_secret: MayUseSecret | None = None,
        connections: str = "",
        is_offline: bool = False,
        cache: float = 0.0,
        exit_proxies: Mapping[str, Sequence[str]] | None = None,
        identities: Identities | None = None,
        session: str = "",
    ) -> None:
        """is_own_origin: whether an origin may see the run's own login; credential: a secret as a header.

        may_use_secret: whether a secret of this name may be shown to an origin at all, also because a task says so.
        may_code_use_secret: the same where code of this machine says so; None: no difference.
        connections: the name of the run's own, for requests that are not plain; none: those that all share.
        is_offline: nothing is really sent, so that logins and proxies are not needed.
        cache: for how long stored responses will do, as in Request.
        exit_proxies: by the name of the exit, those that may read what is not encrypted.
        identities: of the sessions that the fleet shares. session: the one that requests are of which name none.
        """
        self._identities = identities
        self._session = session
        self._check: Callable[[Request], None] | None = None
        self._is_offline = is_offline
        self._exit_proxies = exit_proxies or {}
        self._cache = cache
        self._connections = connections
        self._timeout = timeout
        self._public_headers = tuple(pair for pair in headers if not names_identity(pair[0]))
        self._headers = headers
        self._auth = auth
        self._secrets = secrets or {}
        self.proxy = self._proxy_url(proxy) if proxy else ""  # of every request that asks for no other
        self._sessions = sessions
        self._is_own_origin = is_own_origin
        self._credential = authorization_header
        self._may_use_secret = may_use_secret
        self._may_code_use_secret = may_code_use_secret or may_use_secret
        self._is_plain = not (headers or auth or proxy)
        if auth:
            self._secret(auth)  # said now, not on the first page

    def with_identities(self, identities: Identities, check: Callable[[Request], None] | None = None) -> RequestBuilder:
        """The same for others. check: raises for a request that is not to be sent."""
        found = copy(self)
        found._identities, found._check = identities, check
        return found

    def proxies_of(self, exit: str) -> list[str]:
        """The hosts of those that may read what is sent by an exit, or by the run's proxy."""
        proxies = self._exit_proxies.get(exit, ()) if exit else filter(None, (self.proxy,))
        return [proxy_origin(one).partition("://")[2] for one in proxies]

    def identity(self, url: str, request_options: RequestOptions | None) -> RequestIdentity | None:
        """Who asks, of a session that the fleet shares."""
        if self._identities is None:
            return None
        return self._identities.identity(session_of(request_options) or self._session, url)

    def build(
        self,
        url: str,
        request_options: RequestOptions | None,
        requested_url: str,
        *,
        by_code: bool = False,
        exit: str = "",
    ) -> Request:
        """The request for `url`; `requested_url` is the one that the options are for. by_code: of page.fetch.

        exit: the name of the one it leaves by, in place of the run's proxy.
        """
        identity = self.identity(url, request_options)
        cookie = self._cookie(url, request_options, identity)
        if self._is_plain and request_options is None and not cookie and not exit and identity is None:
            return Request(url, timeout=self._timeout, cache=self._cache)
        if self._is_offline:
            return Request(
                url, timeout=self._timeout, key=request_digest(url, request_options) if request_options else b""
            )
        options = request_options or RequestOptions()
        proxy = "" if exit else self._task_proxy(options.proxy) if options.proxy else self.proxy
        allows = self._may_code_use_secret if by_code else self._may_use_secret
        task_auth = options.auth if origin_of(url) == origin_of(requested_url) else ""
        for seen_by in self._exit_proxies.get(exit, ()) if exit else (proxy,):
            self._check_proxy_may_see(url, seen_by, task_auth, allows)
        headers = self._run_headers(origin_of(url))
        if identity is not None and (their_headers := identity.headers_for(url)):
            headers = _replaced(headers, their_headers)
        if own_headers := self._task_headers(options, origin_of(url), origin_of(requested_url), allows):
            headers = _replaced(headers, own_headers)
        is_own = bool(headers) or options.method != "GET" or options.body is not None
        if cookie and not any(name.lower() == "cookie" for name, _ in headers):
            headers.append(("cookie", cookie))
        key = b"" if is_plain(request_options) else request_digest(url, request_options)
        connections = self._connections if is_own else ""
        cache = self.cache_age(request_options)
        session = f"{self._connections}\0{name}" if exit and (name := session_of(request_options)) else ""
        if identity is not None:
            connections, session, cache = identity.key, identity.key if exit else "", 0.0
        request = Request(
            url,
            options.method,
            tuple(headers),
            options.body,
            self._timeout,
            key,
            proxy,
            connections,
            cache,
            exit,
            session,
        )
        if self._check is not None:
            self._check(request)
        return request

    def cache_age(self, options: RequestOptions | None) -> float:
        """How old a stored response may be that is used in place of a request, as in Request; 0: none is used."""
        if options is None:
            return 0.0 if self._session else self._cache
        is_own = options.session or options.rule_session or self._session or options.auth or options.again
        return 0.0 if is_own else options.cache or self._cache

    def _run_headers(self, origin: str) -> list[tuple[str, str]]:
        is_own_origin = self._is_own_origin(origin)
        headers = list(self._headers if is_own_origin else self._public_headers)
        if self._auth and is_own_origin and self._may_use_secret(self._auth, origin):
            headers.append(("authorization", self._credential(self._secret(self._auth))))
        return headers

    def _task_headers(
        self, options: RequestOptions, origin: str, requested_origin: str, allows: MayUseSecret
    ) -> Headers:
        """What the task asks for; nothing of it that is secret goes to another origin."""
        if origin != requested_origin:
            return _cross_origin_headers(options)
        if not options.auth:
            return options.headers
        if not allows(options.auth, origin):
            raise GiveUp(
                "bad_request",
                f"the secret {options.auth!r} is not for {origin}: bind it to that host in [secrets] of shoal.toml",
            )
        return (*options.headers, ("authorization", self._credential(self._secret(options.auth))))

    def store_cookies(self, response: Response, request_options: RequestOptions | None) -> bool:
        """Keep the cookies of an answer; says whether there were any."""
        identity = self.identity(response.url, request_options)
        if self._sessions is None and identity is None:
            return False
        lines = [value for name, value in response.headers if name == "set-cookie"]
        if lines and (jar := self._jar(request_options, identity)) is not None:
            jar.store(response.url, lines, time.time())
        return bool(lines)

    def session_cookies(self, url: str, request_options: RequestOptions | None) -> CookieStore | None:
        """The cookies that a browser shares with plain requests of the same session; None: they are not kept."""
        return self._jar(request_options, self.identity(url, request_options))

    def _jar(self, request_options: RequestOptions | None, identity: RequestIdentity | None) -> CookieStore | None:
        if identity is not None:
            return identity
        return None if self._sessions is None else self._sessions.jar(session_of(request_options))

    def _cookie(self, url: str, request_options: RequestOptions | None, identity: RequestIdentity | None) -> str:
        jar = self._jar(request_options, identity)
        return "" if jar is None else jar.header(url, time.time())

    def _secret(self, name: str) -> str:
        try:
            return self._secrets[name.lower()]
        except KeyError:
            raise GiveUp(
                "bad_request", f"there is no secret called {name!r}: set SHOAL_SECRET_{name.upper()}"
            ) from None

    def _check_proxy_may_see(self, url: str, proxy: str, task_auth: str, allows: MayUseSecret) -> None:
        """A proxy reads what is not encrypted: a secret that is for some hosts only is not shown to it."""
        if not proxy or url.startswith("https:"):
            return
        origin = origin_of(url)
        for name in filter(None, (task_auth, self._auth if self._is_own_origin(origin) else "")):
            if allows(name, origin) and not allows(name, proxy_origin(proxy)):
                raise GiveUp(
                    "bad_request",
                    f"the secret {name!r} is not for the proxy, which could read it on the way to {origin}: "
                    "use https, or no proxy",
                )

    def _proxy_url(self, proxy: str) -> str:
        return proxy if "://" in proxy else self._secret(proxy)

    def _task_proxy(self, proxy: str) -> str:
        """Tasks come from the queue: they choose between the proxies that this machine knows, and name no other."""
        if "://" in proxy and proxy not in self._secrets.values() and proxy != self.proxy:
            raise GiveUp(
                "bad_request", "the task names a proxy by its URL: only names of this machine's secrets are used"
            )
        return self._proxy_url(proxy)


def _replaced(headers: Iterable[tuple[str, str]], by: Headers) -> list[tuple[str, str]]:
    names = {name.lower() for name, _ in by}
    return [pair for pair in headers if pair[0].lower() not in names] + list(by)


def _cross_origin_headers(request_options: RequestOptions) -> Headers:
    """What goes along to another origin; a body that a server insists on stays readable there."""
    names = _SAFE_HEADERS if request_options.body is None else _SAFE_HEADERS | _BODY_HEADERS
    return tuple(pair for pair in request_options.headers if pair[0].lower() in names)


def proxy_origin(proxy: str) -> str:
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].rstrip('/')}"


def origin_of(url: str) -> str:
    return url[: len(url) - len(path_of(url))]


def options_after_redirect(request_options: RequestOptions | None, status: int) -> RequestOptions | None:
    """How the target of a redirect is asked for: a POST becomes a GET, unless the server insists."""
    if request_options is None or status in _METHOD_KEEPING_STATUSES or request_options.method in ("GET", "HEAD"):
        return request_options
    if status in (301, 302) and request_options.method != "POST":
        return request_options
    kept = tuple(pair for pair in request_options.headers if not pair[0].lower().startswith("content-"))
    return replace(request_options, method="GET", headers=kept, body=None, again=0)


def session_of(request_options: RequestOptions | None) -> str:
    """Whose cookies it is asked with: of its own session, or else of the one that a route names."""
    return (request_options.session or request_options.rule_session) if request_options else ""
