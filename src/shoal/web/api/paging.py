"""Paging: cursors that say where to continue, and to which list they belong."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem

T = TypeVar("T")


def make_cursor(list_name: str, at: int | str) -> str:
    return urlsafe_b64encode(msgspec.json.encode([list_name, at])).decode().rstrip("=")


def read_cursor(list_name: str, given: str, kind: type[T]) -> T | None:
    """Where a cursor of this list stands; None for the first page."""
    if not given:
        return None
    try:
        text = urlsafe_b64decode(given.encode("ascii") + b"=" * (-len(given) % 4))
        of, at = msgspec.json.decode(text, type=tuple[str, int | str])
    except (ValueError, msgspec.DecodeError):
        raise invalid_cursor() from None
    if of != list_name or not isinstance(at, kind) or not _usable(at):
        raise invalid_cursor()
    return at


def _usable(at: object) -> bool:
    return at.isprintable() if isinstance(at, str) else isinstance(at, int) and 0 <= at < 2**63


def invalid_cursor() -> Problem:
    return Problem(422, "invalid-cursor", "this cursor belongs to another list", hint="leave it out to start over")


def page_response(items: list[Any], next: str | None, **more: Any) -> Response:
    return json_response({"items": items, "next": next, **more})
