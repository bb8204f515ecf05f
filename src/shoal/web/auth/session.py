"""Browser sessions: begun with a token, kept in a signed cookie and not on the server."""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Documents
from shoal.web.auth.access import Caller
from shoal.web.auth.tokens import Token

NAME = "key"
SESSION_SECONDS = 12 * 3600  # seconds
MAX_COOKIE_LENGTH = 1_000  # characters of a cookie
CSRF_HEADER, CSRF_FIELD = "x-shoal-csrf", "csrf"  # where a browser sends back the CSRF token of a page


class Session(msgspec.Struct, frozen=True):
    token: str  # its name
    digest_prefix: str  # the beginning of its digest: another token of the same name is another
    until: int
    nonce: str

    def belongs_to(self, token: Token) -> bool:
        return self.token == token.name and hmac.compare_digest(self.digest_prefix, token.digest[:16])


class Signer:
    """Signs and reads cookies with the key that all servers of a queue share."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.cookie = f"shoal-{sha256(key).hexdigest()[:8]}"  # servers on other ports have others

    @classmethod
    async def open(cls, queue: Documents) -> Signer:
        """With the key of the queue, which is made once, by whoever comes first."""
        while (document := await queue.document(kinds.SESSION_KEY, NAME)) is None:
            await queue.compare_and_swap(kinds.SESSION_KEY, NAME, secrets.token_hex(32), 0)
        return cls(bytes.fromhex(document.text))

    def new_cookie(self, token: Token) -> str:
        """The cookie of a new session."""
        session = Session(token.name, token.digest[:16], int(time.time()) + SESSION_SECONDS, secrets.token_hex(8))
        body = urlsafe_b64encode(msgspec.json.encode(session)).decode().rstrip("=")
        return f"{body}.{self._sign('session', body)}"

    def read(self, cookie: str) -> Session | None:
        body, dot, signature = cookie.partition(".")
        if not dot or len(cookie) > MAX_COOKIE_LENGTH or not cookie.isascii():
            return None
        if not hmac.compare_digest(self._sign("session", body), signature):
            return None
        try:
            found = msgspec.json.decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Session)
        except (ValueError, msgspec.DecodeError):
            return None
        return found if found.until > time.time() else None

    def local_token(self) -> str:
        """The text of the queue's local token, as long and as random as any other."""
        digest = hmac.new(self._key, b"local-token:", sha256).digest()
        return "shoal_" + urlsafe_b64encode(digest).decode().rstrip("=")

    def csrf_token(self, caller: Caller) -> str:
        """What forms of our own pages carry, for this caller alone."""
        return self._sign("csrf", caller.session or caller.via)

    def is_csrf_token(self, caller: Caller, text: str) -> bool:
        return text.isascii() and hmac.compare_digest(self.csrf_token(caller), text)

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._key, f"{what}:{text}".encode(), sha256).hexdigest()


def csrf_token(connection: HTTPConnection) -> str:
    """What every form of a page carries in its field `csrf`, and every htmx request in X-Shoal-CSRF."""
    caller = getattr(connection.state, "caller", None)
    signer: Signer = connection.app.state.context.authenticator.signer
    return signer.csrf_token(caller) if isinstance(caller, Caller) else ""


async def sign_in(connection: HTTPConnection, token: str, response: Response) -> Caller:
    """Begin a session with a token; Problem 401 for a wrong one, 429 for too many of those."""
    authenticator = connection.app.state.context.authenticator
    authenticator.check_origin(connection)  # nobody is logged in by a page of somebody else's
    found: Token = await authenticator.find_token(connection, token)
    begin_session(connection, found, response)
    return Caller(found.name, frozenset(found.scopes), "session")


def begin_session(connection: HTTPConnection, token: Token, response: Response) -> None:
    signer: Signer = connection.app.state.context.authenticator.signer
    headers = connection.headers
    proto = headers.get("x-forwarded-proto", "").partition(",")[0]
    response.set_cookie(
        signer.cookie,
        signer.new_cookie(token),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        # Anybody may say that it is: nothing is lost by a cookie that is for TLS only.
        secure="https" in (connection.url.scheme, headers.get("origin", "").partition(":")[0], proto.strip().lower()),
    )


async def sign_out(connection: HTTPConnection, response: Response) -> None:
    """End the session: here for everybody who has its cookie, and in this browser."""
    authenticator = connection.app.state.context.authenticator
    await authenticator.end_session(connection)
    response.delete_cookie(authenticator.signer.cookie, httponly=True, samesite="strict")
