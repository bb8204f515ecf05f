"""Gate: finds out who asks, by token, session or by being on this machine, and refuses the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request

from shoal.config import Settings
from shoal.errors import Usage
from shoal.logs import redact
from shoal.queue.base import Queue
from shoal.web.access import HERE, Caller, Scope
from shoal.web.bucket import Buckets
from shoal.web.problem import Problem
from shoal.web.session import FIELD, HEADER, Signer
from shoal.web.tokens import Token, known, matching, of_settings

FRESH = 1.0  # seconds for which the queue's tokens are taken as they were
JUST_MADE = 0.1  # the same for one that is not among them: another server may have made it just now
AWAY = 300.0  # the same while the queue cannot be asked: who watches it should hear that
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
GUESSES, PER_GUESS = 10, 6.0  # wrong tokens of one address at once, and seconds for each further one
THROUGH_A_PROXY = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
WAY_OUT = "shoal token add NAME --scope admin, or set SHOAL_TOKEN"


class Keeper:
    """The gate of a server. Without any token it is open, to this machine alone."""

    def __init__(self, queue: Queue, settings: Settings, signer: Signer, *, local: bool) -> None:
        self._queue = queue
        self._own = (of_settings(settings.token),) if settings.token else ()
        self._local = local  # listens to this machine alone
        self.signer = signer
        self.away: Callable[[], bool] = lambda: False  # whether the queue is known not to answer
        self._known: tuple[Token, ...] = ()
        self._read_at = 0.0
        self._wrong = Buckets(1 / PER_GUESS, GUESSES)

    @classmethod
    async def open(cls, queue: Queue, settings: Settings, *, host: str) -> Keeper:
        keeper = cls(queue, settings, await Signer.open(queue), local=is_local(host))
        if not keeper._local and not await keeper.tokens():
            where = f" --queue '{redact(settings.queue)}'" if settings.queue else ""
            raise Usage(
                f"{host} can be reached from other machines, and nobody would be asked for a token",
                hint=f"shoal token add NAME --scope admin{where}, or set SHOAL_TOKEN; or listen on 127.0.0.1",
            )
        return keeper

    async def tokens(self, fresh: float = FRESH) -> tuple[Token, ...]:
        """All there are, at most a second old; while the queue is away, those there were."""
        age = time.monotonic() - self._read_at
        if not self._read_at or (age >= fresh and (age > AWAY or not self.away())):
            self._known = (*self._own, *await known(self._queue))
            self._read_at = time.monotonic()
        return self._known

    def touched(self) -> None:
        """Tokens were changed from here."""
        self._read_at = 0.0

    async def admit(self, connection: HTTPConnection, scope: Scope) -> Caller:
        """Who asks, if they may; 401 without a token, 403 where it is not enough."""
        caller = await self.caller(connection)
        if caller is None:
            raise Problem(
                401,
                "no-token",
                "this needs a token",
                hint="send the header Authorization with Bearer TOKEN; shoal token add NAME makes one",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if connection.scope["type"] == "websocket":
            if caller.via != "token":
                self.check_origin(connection)
        elif connection.scope["method"] not in SAFE:
            await self._check_writing(connection, caller)
        if not caller.may(scope):
            raise Problem(
                403,
                "not-allowed",
                f"the token {caller.name} may not do this: it needs the scope {scope}",
                hint="ask for another token: shoal token add NAME --scope " + scope,
            )
        return caller

    async def caller(self, connection: HTTPConnection) -> Caller | None:
        """Who asks, found out once per request; None: nobody we know."""
        state = connection.state
        if not hasattr(state, "caller"):
            refusal = found = None
            try:
                found = await self._found(connection)
            except Problem as problem:
                refusal = problem
            state.caller, state.refusal = found, refusal  # not where the queue could not be asked
        if state.refusal is not None:
            raise state.refusal
        caller: Caller | None = state.caller
        return caller

    async def _found(self, connection: HTTPConnection) -> Caller | None:
        tokens = await self.tokens()
        if not tokens:
            if not self._local:  # the last one was removed
                return None
            self._check_local(connection.headers)
            return HERE
        given = connection.headers.get("authorization", "")
        if given:
            kind, _, text = given.partition(" ")
            if kind.lower() != "bearer":
                raise _wrong_token("the Authorization header is not understood")
            token = await self.token_of(connection, text.strip())
            return Caller(token.name, frozenset(token.scopes), "token")
        session = self.signer.read(connection.cookies.get(self.signer.cookie, ""))
        if session is None:
            return None
        begun_with = next(filter(session.of, tokens), None) or next(
            filter(session.of, await self.tokens(JUST_MADE)), None
        )
        if begun_with is None:
            return None
        return Caller(begun_with.name, frozenset(begun_with.scopes), "session", session.nonce)

    async def still(self, caller: Caller) -> bool:
        """Whether somebody who was let in may stay: their token may have been taken back meanwhile."""
        tokens = await self.tokens()
        if caller.via == "loopback":
            return not tokens
        return any(it.name == caller.name and caller.scopes == frozenset(it.scopes) for it in tokens)

    async def token_of(self, connection: HTTPConnection, text: str) -> Token:
        """The token of this text; who guesses has to wait longer and longer."""
        address = connection.client.host if connection.client else ""
        found = matching(await self.tokens(), text) or matching(await self.tokens(JUST_MADE), text)
        if found is not None:
            return found
        wait = self._wrong.take(address)
        if wait:
            raise Problem(
                429,
                "too-many-guesses",
                "too many wrong tokens came from this address",
                hint="wait a minute, and look at the token",
                headers={"Retry-After": str(int(wait) + 1)},
            )
        raise _wrong_token("this token is not known here")

    def _check_local(self, headers: Headers) -> None:
        """Nobody is asked for a token here: only programs of this machine, and pages of ours, may ask."""
        if not is_local(_host_of(headers.get("host", ""))):
            raise Problem(
                403,
                "wrong-host",
                "without a token, this server answers only to the names of this machine",
                hint=f"http://127.0.0.1, or make a token: {WAY_OUT}",
            )
        if any(name in headers for name in THROUGH_A_PROXY):
            raise Problem(403, "through-a-proxy", "what comes through a proxy needs a token", hint=WAY_OUT)

    async def _check_writing(self, connection: HTTPConnection, caller: Caller) -> None:
        """A page of somebody else's cannot act in the name of whoever looks at it."""
        if caller.via == "token":
            return
        self.check_origin(connection)
        if caller.via == "session" and not self.signer.knows(caller, await _word(connection)):
            raise Problem(
                403,
                "no-csrf",
                "this form is not from a page of this session",
                hint="load the page again; programs use a token instead of a session",
            )

    def check_origin(self, connection: HTTPConnection) -> None:
        """Refuse what a page of another site asks for; programs say nothing of the kind."""
        headers = connection.headers
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin", "")
        if site not in ("same-origin", "none") or (origin and urlsplit(origin).netloc != headers.get("host")):
            raise Problem(403, "other-origin", "this was asked for by a page of another site")


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
        "wrong-token",
        words,
        hint="send the header Authorization with Bearer TOKEN; shoal token list shows which there are",
        headers={"WWW-Authenticate": "Bearer"},
    )


async def _word(connection: HTTPConnection) -> str:
    """The word of the page that this came from: in a header, or in the form itself."""
    given = connection.headers.get(HEADER, "")
    kind = connection.headers.get("content-type", "").partition(";")[0].strip()
    if given or not isinstance(connection, Request):
        return given
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        value = (await connection.form()).get(FIELD, "")
        return value if isinstance(value, str) else ""
    return ""
