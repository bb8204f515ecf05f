"""Request options: from what a handler says about a request to the Ask that travels with its task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from shoal.core.request_header import header_problem
from shoal.core.task import RequestOptions
from shoal.errors import UsageError
from shoal.extract.fetching import PageFetching

RequestHeaders = Mapping[str, str] | Iterable[tuple[str, str]]
FormData = Mapping[str, Any] | Iterable[tuple[str, Any]]
RequestBody = str | bytes | FormData

FORM_TYPE = "application/x-www-form-urlencoded"
JSON_TYPE = "application/json"
_token = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch


def make_request_options(
    method: str = "",
    headers: RequestHeaders | None = None,
    body: RequestBody | None = None,
    json: Any = None,
    session: str = "",
    proxy: str = "",
    auth: str = "",
    by: PageFetching = PageFetching(),
) -> RequestOptions | None:
    """How to ask, or None where a plain GET will do; without a method, a body is POSTed."""
    if body is not None and json is not None:
        raise UsageError("a request has either body or json", hint="Leave one of them out.")
    if proxy and by.exit:
        raise UsageError("a request leaves by a proxy or by an exit", hint="Leave one of them out.")
    data, kind = _encode_body(body) if json is None else (msgspec.json.encode(json), JSON_TYPE)
    method = _method(method) if method else "GET" if data is None else "POST"
    pairs = _headers(headers)
    if kind and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs = (*pairs, ("Content-Type", kind))
    request_options = RequestOptions(
        method,
        pairs,
        data,
        session,
        _secret_name(proxy, "proxy", "@:"),
        _secret_name(auth, "auth", ":"),
        fetch=by.fetch,
        steps=by.steps,
        exit=by.exit,
    )
    return None if request_options == RequestOptions() else request_options


def _encode_body(body: RequestBody | None) -> tuple[bytes | None, str]:
    if body is None:
        return None, ""
    if isinstance(body, bytes):
        return body, ""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    pairs = list(body.items() if isinstance(body, Mapping) else body)
    return urlencode([(name, "" if value is None else value) for name, value in pairs], doseq=True).encode(), FORM_TYPE


def _method(method: str) -> str:
    if not _token(method):
        raise UsageError(f"{method!r} is not an HTTP method", hint="Write GET, POST, PUT or another single word.")
    return method.upper()


def _headers(headers: RequestHeaders | None) -> tuple[tuple[str, str], ...]:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers or ())
    for name, value in pairs:
        if problem := header_problem(name, value):
            raise UsageError(problem, hint='Write headers={"Accept": "…"}.')
    return pairs


def _secret_name(name: str, what: str, marks: str) -> str:
    """What is stored with a task is seen by many: logins are given by the name of a secret."""
    if any(mark in name for mark in marks):
        raise UsageError(
            f"{what} must be the name of a secret, not its value",
            hint=f'Set SHOAL_SECRET_MINE in the environment and write {what}="mine".',
        )
    return name
