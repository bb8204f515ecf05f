"""Problem details (RFC 9457): what went wrong with a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

from shoal.errors import (
    ActionRequired,
    QueueFull,
    QueueReadOnly,
    QueueRefused,
    QueueUnavailable,
    RunBusy,
    ShoalError,
    StoreUnavailable,
    UsageError,
)
from shoal.logs import redact

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:shoal:problem:"

_STATUS: tuple[tuple[type[ShoalError], int], ...] = (
    (RunBusy, 409),
    (UsageError, 422),
    (QueueUnavailable, 503),
    (StoreUnavailable, 503),
    (QueueFull, 507),
    (QueueReadOnly, 503),
    (QueueRefused, 503),
    (ActionRequired, 422),
)


class Problem(Exception):
    """Raised anywhere below a request; becomes its answer."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind  # short, stable: "no-such-run"
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = more

    def document(self, instance: str = "") -> dict[str, Any]:
        made: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": redact(self.detail),
        }
        if self.hint:
            made["hint"] = redact(self.hint)
        if instance:
            made["instance"] = redact(instance)
        return made | self.more

    def response(self, instance: str = "") -> Response:
        body = json.dumps(self.document(instance), ensure_ascii=False).encode()
        return Response(body, self.status, self.headers, media_type=MEDIA_TYPE)


def problem_of(error: ShoalError) -> Problem:
    """Our own errors in the words they have; what a server or a file did is a 503."""
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
    kind = {409: "run-busy", 422: "invalid-request", 503: "queue-unavailable", 507: "queue-full"}
    retry = {"Retry-After": "2"} if status == 503 else {}
    return Problem(
        status, kind.get(status, "internal-error"), str(error), hint=getattr(error, "hint", ""), headers=retry
    )


def not_found(what: str, named: object, hint: str = "") -> Problem:
    return Problem(404, f"no-such-{what}", f"there is no {what} {named}", hint=hint)
