"""Answers as JSON, made from plain values in one pass."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def answer(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document as it is; what changes every second is never kept by anybody on the way."""
    return Response(
        _encode(document), status, {"Cache-Control": "no-store"} | dict(headers or {}), "application/json"
    )
