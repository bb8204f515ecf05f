"""Asking: from what a handler says about a request to the Ask that travels with its task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from shoal.core.task import Ask
from shoal.errors import Usage

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Form = Mapping[str, Any] | Iterable[tuple[str, Any]]
Body = str | bytes | Form

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
_token = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_no_line = re.compile(r"[^\r\n\0]*").fullmatch


def ask_for(
    method: str = "",
    headers: Headers | None = None,
    body: Body | None = None,
    json: Any = None,
    session: str = "",
    proxy: str = "",
    auth: str = "",
) -> Ask | None:
    """How to ask, or None where a plain GET will do; without a method, a body is POSTed."""
    if body is not None and json is not None:
        raise Usage("a request has either body or json", hint="Leave one of them out.")
    data, kind = _encoded(body) if json is None else (msgspec.json.encode(json), JSON)
    method = _method(method) if method else "GET" if data is None else "POST"
    pairs = _headers(headers)
    if kind and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs = (*pairs, ("Content-Type", kind))
    ask = Ask(method, pairs, data, session, _secret(proxy, "proxy", "@"), _secret(auth, "auth", ":"))
    return None if ask == Ask() else ask


def _encoded(body: Body | None) -> tuple[bytes | None, str]:
    if body is None:
        return None, ""
    if isinstance(body, bytes):
        return body, ""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    pairs = list(body.items() if isinstance(body, Mapping) else body)
    return urlencode(
        [(name, "" if value is None else value) for name, value in pairs], doseq=True
    ).encode(), FORM


def _method(method: str) -> str:
    if not _token(method):
        raise Usage(f"{method!r} is no method of HTTP", hint="Write GET, POST, PUT or another single word.")
    return method.upper()


def _headers(headers: Headers | None) -> tuple[tuple[str, str], ...]:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers or ())
    for name, value in pairs:
        if not isinstance(name, str) or not _token(name):
            raise Usage(f"{name!r} cannot be the name of a header", hint='Write headers={"Accept": "…"}.')
        if not isinstance(value, str) or not _no_line(value):
            raise Usage(f"the header {name} must be one line of text, not {value!r}")
    return pairs


def _secret(name: str, what: str, mark: str) -> str:
    """What is stored with a task is seen by many: logins are given by the name of a secret."""
    if mark in name:
        raise Usage(
            f"{what} is to be the name of a secret, not the login itself",
            hint=f'Set SHOAL_SECRET_MINE in the environment and write {what}="mine".',
        )
    return name
