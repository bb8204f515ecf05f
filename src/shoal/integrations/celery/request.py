"""JsonRequest: a message for one of our tasks, refused unless it is JSON, whatever else its app accepts."""

from __future__ import annotations

from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.request import Request

JSON = "application/json"


class JsonRequest(Request):  # type: ignore[misc]
    """Refused before its body is read: a pickle runs code as it is read."""

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        if message.content_type != JSON:
            raise InvalidTaskError(f"tasks of shoal are sent as JSON, not as {str(message.content_type)[:100]!r}")
        super().__init__(message, *args, **kwargs)
