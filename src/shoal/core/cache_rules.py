"""Which responses may be shared between runs, and for how long: RFC 9111 as a shared cache obeys it, and less. Pure.

A request that says who asks is never answered from the cache, and its answer never kept. Errors are not kept either: a
retry is to ask again.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256

import msgspec

from shoal.core.page import Request, Response
from shoal.core.request_header import names_identity

HTTP_RULES = -1.0  # in place of seconds: for as long as the response's own headers say
MAX_LIFETIME = 365 * 86_400.0  # seconds; longer makes no difference
MAX_GUESS = 86_400.0  # of a response that says only when it was last modified
_GUESSED_SHARE = 0.1  # of the time for which it has not changed
_KEPT_STATUSES = frozenset((200, 203, 204, 301, 308))
CONDITIONAL_HEADERS = frozenset(
    ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")
)
BODY_HEADERS = frozenset(("content-length", "content-encoding", "content-type", "transfer-encoding"))


def is_shareable_request(request: Request) -> bool:
    """Whether anybody might send this request: no login, no cookie, nothing but a whole page that is asked for."""
    if request.method != "GET" or request.body is not None or request.first:
        return False
    return not any(
        name.lower() in CONDITIONAL_HEADERS or name.lower() == "cache-control" or names_identity(name)
        for name, _ in request.headers
    )


def cache_key(request: Request, user_agent: str) -> bytes:
    """What equal requests have in common: all that a server may vary its response by, and the way they leave by."""
    headers = sorted((name.lower(), value) for name, value in request.headers)
    return sha256(msgspec.json.encode((request.url, user_agent, request.proxy or request.exit, headers))).digest()[:16]


def is_shareable(response: Response) -> bool:
    """Whether a response may be given to others at all. One that sets a cookie is for whoever asked."""
    rules = header_tokens(response, "cache-control")
    return (
        response.status in _KEPT_STATUSES
        and "no-store" not in rules
        and "private" not in rules
        and not response.header("set-cookie")
        and "*" not in header_tokens(response, "vary")
    )


def is_worth_keeping(response: Response, fresh_for: float, asked: float) -> bool:
    """By HTTP's rules a response that is never fresh is kept only if it can be asked whether it has changed."""
    return asked > 0 or fresh_for > 0 or bool(conditions(response))


def fresh_for(response: Response, now: float) -> float:
    """Seconds for which a response that has just arrived is fresh by its own headers. `now` is Unix time.

    It may have been on its way for a while: in other caches, which say so, or by its own date.
    """
    age = max(_seconds(response.header("age")) or 0.0, now - (_date(response.header("date")) or now))
    return max(0.0, min(_lifetime(response, now), MAX_LIFETIME) - age)


def is_fresh(age: float, fresh_for: float, asked: float) -> bool:
    """Whether a stored response will do for a request that asks for at most so many seconds, or for HTTP's rules."""
    return age < (fresh_for if asked == HTTP_RULES else asked)


def conditions(response: Response) -> tuple[tuple[str, str], ...]:
    """The headers that ask whether a stored response has changed; none if it does not say how."""
    found = (("if-none-match", response.header("etag")), ("if-modified-since", response.header("last-modified")))
    return tuple(pair for pair in found if pair[1])


def updated_headers(stored: Response, not_modified: Response) -> tuple[tuple[str, str], ...]:
    """The headers of a stored response after a 304."""
    updated = tuple(pair for pair in not_modified.headers if pair[0] not in BODY_HEADERS)
    replaced = {name for name, _ in updated}
    return (*(pair for pair in stored.headers if pair[0] not in replaced), *updated)


def header_tokens(response: Response, name: str) -> set[str]:
    """The words of a header that lists some, whatever it says about each ("private=x" is "private")."""
    lines = ",".join(value for key, value in response.headers if key == name).lower()
    return {word.partition("=")[0].strip() for word in lines.split(",")}


def _lifetime(response: Response, now: float) -> float:
    lines = ",".join(value for key, value in response.headers if key == "cache-control").lower()
    rules = {name.strip(): value.strip(' "') for name, _, value in (word.partition("=") for word in lines.split(","))}
    if "no-cache" in rules:
        return 0.0
    for name in ("s-maxage", "max-age"):
        if name in rules:
            return _seconds(rules[name]) or 0.0  # what makes no sense is stale
    date = _date(response.header("date")) or now
    if response.header("expires"):
        return (_date(response.header("expires")) or 0.0) - date
    modified = _date(response.header("last-modified"))
    return min(MAX_GUESS, (date - modified) * _GUESSED_SHARE) if modified else 0.0


def _seconds(text: str) -> float | None:
    text = text.strip()
    return min(float(text[:12]), MAX_LIFETIME) if text.isascii() and text.isdecimal() else None


def _date(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
