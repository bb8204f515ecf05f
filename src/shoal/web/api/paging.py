"""Paging: cursors that say where to go on, and to which list they belong."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from shoal.web.answer import answer
from shoal.web.problem import Problem

T = TypeVar("T")


def cursor(list: str, at: int | str) -> str:
    return urlsafe_b64encode(msgspec.json.encode([list, at])).decode().rstrip("=")


def place(list: str, given: str, kind: type[T]) -> T | None:
    """Where a cursor of this list stands; None for the first page."""
    if not given:
        return None
    try:
        text = urlsafe_b64decode(given.encode("ascii") + b"=" * (-len(given) % 4))
        of, at = msgspec.json.decode(text, type=tuple[str, int | str])
    except (ValueError, msgspec.DecodeError):
        raise unknown() from None
    if of != list or not isinstance(at, kind) or not _usable(at):
        raise unknown()
    return at


def _usable(at: object) -> bool:
    return at.isprintable() if isinstance(at, str) else isinstance(at, int) and 0 <= at < 2**63


def unknown() -> Problem:
    return Problem(
        422, "unknown-cursor", "this cursor is not of this list", hint="leave it away to begin at the start"
    )


def page(items: list[Any], next: str | None, **more: Any) -> Response:
    return answer({"items": items, "next": next, **more})
