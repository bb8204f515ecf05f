"""JSON responses, encoded from plain values in one pass."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def json_response(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document as JSON, which no cache on the way may keep."""
    return Response(_encode(document), status, {"Cache-Control": "no-store"} | dict(headers or {}), "application/json")
