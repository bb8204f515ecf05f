"""json_only: messages for our tasks are refused unless they are JSON, whatever else their app accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.strategy import default

JSON = "application/json"


def json_only(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """How a worker receives a task: refused before the body is read, for a pickle runs code as it is read."""
    receive = default(task, app, consumer, **options)

    def checked(message: Any, *args: Any, **kwargs: Any) -> Any:
        if message.content_type != JSON:
            raise InvalidTaskError(f"tasks of shoal are sent as JSON, not as {str(message.content_type)[:100]!r}")
        return receive(message, *args, **kwargs)

    return checked
