"""Authentication: identifies callers by token, by session or as this machine, and refuses the others."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from shoal.config.load import Settings
from shoal.config.queue_token import server_token
from shoal.errors import UsageError
from shoal.logs import redact
from shoal.queue.base import Queue
from shoal.web.auth import peer_user
from shoal.web.auth.access import LOOPBACK_CALLER, Caller, Scope
from shoal.web.auth.ended_sessions import end_session, ended_sessions
from shoal.web.auth.local_token import LocalToken
from shoal.web.auth.session import CSRF_FIELD, CSRF_HEADER, Session, Signer
from shoal.web.auth.tokens import Token, find_matching, list_tokens, settings_token
from shoal.web.http.problem import Problem
from shoal.web.http.rate_bucket import TokenBuckets

TOKENS_MAX_AGE = 1.0  # seconds for which the queue's tokens are taken as they were
# The same for one that is not among them: another server may have made it just now.
UNKNOWN_TOKEN_MAX_AGE = 0.1
OUTAGE_MAX_AGE = 300.0  # the same while the queue cannot be asked: who watches it should hear that
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
# Wrong tokens of one address at once, and seconds for each further one.
MAX_GUESSES, SECONDS_PER_GUESS = 10, 6.0
# Whatever a proxy may add to a request that it passes on.
is_proxy_header = re.compile(
    r"forwarded|via|x-forwarded-.+|x-real-.+|x-original-.+|x-client-ip|x-cluster-client-ip|true-client-ip|proxy-.+"
).fullmatch
HOW_TO_ADD_ONE = "shoal token add NAME --scope admin, or set SHOAL_TOKEN"


class TokenAuthenticator:
    """Authenticates the callers of a server. Without any token it is open, to this machine alone."""

    def __init__(
        self, queue: Queue, settings: Settings, signer: Signer, *, local: bool, token_file: Path | None = None
    ) -> None:
        """token_file: where the local token is written to if it is needed; None: there is none."""
        self._queue = queue
        own = server_token(settings)
        self._settings_tokens = (settings_token(own),) if own else ()
        self._local = local  # listens to this machine alone
        self.signer = signer
        self.is_queue_down: Callable[[], bool] = lambda: False  # whether the queue is known not to answer
        self.local_token = LocalToken(signer.local_token(), token_file) if local and token_file else None
        self._tokens: tuple[Token, ...] = ()
        self._ended: frozenset[str] = frozenset()  # sessions that were logged out
        self._read_at = 0.0
        self._wrong_tokens = TokenBuckets(1 / SECONDS_PER_GUESS, MAX_GUESSES)

    @classmethod
    async def open(
        cls, queue: Queue, settings: Settings, *, host: str, token_file: Path | None = None
    ) -> TokenAuthenticator:
        authenticator = cls(queue, settings, await Signer.open(queue), local=is_local(host), token_file=token_file)
        if not authenticator._local and not await authenticator.tokens():
            where = f" --queue '{redact(settings.queue)}'" if settings.queue else ""
            raise UsageError(
                f"{host} can be reached from other machines, and no token would be required",
                hint=f"shoal token add NAME --scope admin{where}, or set SHOAL_TOKEN; or listen on 127.0.0.1",
            )
        return authenticator

    async def tokens(self, max_age: float = TOKENS_MAX_AGE) -> tuple[Token, ...]:
        """All there are, at most a second old; while the queue is away, those there were."""
        age = time.monotonic() - self._read_at
        if not self._read_at or (age >= max_age and (age > OUTAGE_MAX_AGE or not self.is_queue_down())):
            self._ended = await ended_sessions(self._queue)
            self._tokens = (*self._settings_tokens, *await list_tokens(self._queue))
            self._read_at = time.monotonic()
        return self._tokens

    async def accepted_tokens(self, max_age: float = TOKENS_MAX_AGE) -> tuple[Token, ...]:
        """The same, or where there are none, the local one."""
        return await self.tokens(max_age) or ((self.local_token.token,) if self.local_token else ())

    @property
    def local_token_path(self) -> str:
        """Where the token is that counts now; empty if that is for others to say."""
        return self.local_token.path if self.local_token and not self._tokens else ""

    def invalidate(self) -> None:
        """Tokens were changed from here."""
        self._read_at = 0.0

    async def authorize(self, connection: HTTPConnection, scope: Scope) -> Caller:
        """Who asks, if they may; 401 without a token, 403 where it is not enough."""
        caller = await self.identify(connection)
        if caller is None:
            path = self.local_token_path
            source = f"it is in the file {path}" if path else "shoal token add NAME creates one"
            raise Problem(
                401,
                "token-required",
                "a token is required",
                hint=f"send the header Authorization with Bearer TOKEN; {source}",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if connection.scope["type"] == "websocket":
            if caller.via != "token":
                self.check_origin(connection)
        elif connection.scope["method"] not in SAFE_METHODS:
            await self._check_csrf(connection, caller)
        if not caller.has_scope(scope):
            raise Problem(
                403,
                "insufficient-scope",
                f"the token {caller.name} may not do this: it needs the scope {scope}",
                hint="ask for another token: shoal token add NAME --scope " + scope,
            )
        return caller

    async def identify(self, connection: HTTPConnection) -> Caller | None:
        """Who asks, found out once per request; None: nobody we know."""
        state = connection.state
        if not hasattr(state, "caller"):
            refusal = found = None
            try:
                found = await self._identify(connection)
            except Problem as problem:
                refusal = problem
            state.caller, state.refusal = found, refusal  # not where the queue could not be asked
        if state.refusal is not None:
            raise state.refusal
        caller: Caller | None = state.caller
        return caller

    async def _identify(self, connection: HTTPConnection) -> Caller | None:
        tokens = await self.tokens()
        if not tokens:
            if not self._local:  # the last one was removed
                return None
            if self._is_own_program(connection):
                return LOOPBACK_CALLER
            tokens = await self.accepted_tokens()
        given = connection.headers.get("authorization", "")
        if given:
            kind, _, text = given.partition(" ")
            if kind.lower() != "bearer":
                raise _wrong_token("the Authorization header is not understood")
            token = await self.find_token(connection, text.strip())
            return Caller(token.name, frozenset(token.scopes), "token")
        session = self._session(connection)
        if session is None or session.nonce in self._ended:
            return None
        session_token = next(filter(session.belongs_to, tokens), None) or next(
            filter(session.belongs_to, await self.accepted_tokens(UNKNOWN_TOKEN_MAX_AGE)), None
        )
        if session_token is None:
            return None
        return Caller(session_token.name, frozenset(session_token.scopes), "session", session.nonce)

    async def is_still_valid(self, caller: Caller) -> bool:
        """Whether somebody who was let in may stay: their token may have been taken back meanwhile."""
        tokens = await self.tokens()
        if caller.session in self._ended:
            return False
        if caller.name == LOOPBACK_CALLER.name:
            return not tokens
        return any(it.name == caller.name and caller.scopes == frozenset(it.scopes) for it in tokens)

    async def find_token(self, connection: HTTPConnection, text: str) -> Token:
        """The token of this text; who guesses has to wait longer and longer."""
        found = find_matching(await self.accepted_tokens(), text) or find_matching(
            await self.accepted_tokens(UNKNOWN_TOKEN_MAX_AGE), text
        )
        if found is not None:
            return found
        raise self._wrong_guess(connection, "this token is unknown")

    def use_link(self, connection: HTTPConnection, key: str) -> Token:
        """The token that the link with this key stands for, once."""
        if self.local_token is not None and not self._tokens and self.local_token.use_link(key):
            return self.local_token.token
        raise self._wrong_guess(connection, "this link was used before, or is not the last one")

    async def end_session(self, connection: HTTPConnection) -> None:
        """Log out the browser that asks, also on all other servers of the queue, within a second."""
        session = self._session(connection)
        if session is not None:
            await end_session(self._queue, session)
            self.invalidate()

    def _session(self, connection: HTTPConnection) -> Session | None:
        return self.signer.read(connection.cookies.get(self.signer.cookie, ""))

    def _wrong_guess(self, connection: HTTPConnection, words: str) -> Problem:
        wait = self._wrong_tokens.take(connection.client.host if connection.client else "")
        if wait:
            return Problem(
                429,
                "too-many-invalid-tokens",
                "too many wrong tokens came from this address",
                hint="wait a minute, and check the token",
                headers={"Retry-After": str(int(wait) + 1)},
            )
        return _wrong_token(words)

    def _is_own_program(self, connection: HTTPConnection) -> bool:
        """Nobody is asked for a token here: only this user's own programs, and pages of ours, may ask.

        False: the system does not say whose program it is, and the local token is asked for after all.
        """
        headers = connection.headers
        if not is_local(_host_of(headers.get("host", ""))):
            raise Problem(
                403,
                "host-not-allowed",
                "without a token, this server answers only under this machine's names",
                hint=f"http://127.0.0.1, or make a token: {HOW_TO_ADD_ONE}",
            )
        # Proxies speak HTTP/1.0 unless they are told otherwise, and no client of today does.
        if connection.scope.get("http_version") == "1.0" or any(is_proxy_header(name) for name in headers):
            raise Problem(403, "proxy-requires-token", "requests through a proxy need a token", hint=HOW_TO_ADD_ONE)
        same_user = _is_same_user(connection)
        if same_user is False or (same_user is None and self.local_token is None):
            raise Problem(
                403,
                "user-requires-token",
                "without a token, this server answers only to programs of the user who started it",
                hint=HOW_TO_ADD_ONE,
            )
        if same_user is None and self.local_token is not None:
            self.local_token.write()
        return same_user is True

    async def _check_csrf(self, connection: HTTPConnection, caller: Caller) -> None:
        """A page of somebody else's cannot act in the name of whoever looks at it."""
        if caller.via == "token":
            return
        self.check_origin(connection)
        if caller.via == "session" and not self.signer.is_csrf_token(caller, await _csrf_value(connection)):
            raise Problem(
                403,
                "invalid-csrf-token",
                "this form does not belong to this session",
                hint="load the page again; programs use a token instead of a session",
            )

    def check_origin(self, connection: HTTPConnection) -> None:
        """Refuse what a page of another site asks for; programs say nothing of the kind."""
        headers = connection.headers
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin", "")
        if site not in ("same-origin", "none") or (origin and urlsplit(origin).netloc != headers.get("host")):
            raise Problem(403, "cross-origin-request", "this request came from a page of another site")


def _is_same_user(connection: HTTPConnection) -> bool | None:
    """Whether the other end is a process of this process's user; a proxy's workers have a user of their own.

    None: the system does not say (macOS, other network namespaces).
    """
    if not peer_user.is_supported:
        return None
    client, server = connection.client, connection.scope.get("server")
    if client is None or server is None or server[1] is None:
        return False
    known: dict[str, int | None] = connection.scope.setdefault(peer_user.CONNECTION_KEY, {})
    if "peer_uid" not in known:
        known["peer_uid"] = peer_user.peer_uid((client.host, client.port), (server[0], server[1]))
    uid = known["peer_uid"]
    return None if uid is None else uid == os.geteuid()


@lru_cache(maxsize=256)
def is_local(host: str) -> bool:
    """Whether a name or address is this machine's own, which no other can reach."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_of(text: str) -> str:
    """Of a Host header, without its port."""
    return text[: text.find("]") + 1] if text.startswith("[") else text.partition(":")[0]


def _wrong_token(words: str) -> Problem:
    return Problem(
        401,
        "invalid-token",
        words,
        hint="send the header Authorization with Bearer TOKEN; shoal token list shows which there are",
        headers={"WWW-Authenticate": "Bearer"},
    )


async def _csrf_value(connection: HTTPConnection) -> str:
    """The CSRF token that came with a request: in a header, or in the form itself."""
    given = connection.headers.get(CSRF_HEADER, "")
    kind = connection.headers.get("content-type", "").partition(";")[0].strip()
    if given or not isinstance(connection, Request):
        return given
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        value = (await connection.form()).get(CSRF_FIELD, "")
        return value if isinstance(value, str) else ""
    return ""
