"""PushRequest: a task that somebody pushes to a worker, as it comes over the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from shoal.core.balancing import LoadReport
from shoal.core.typed_task import Task
from shoal.errors import UsageError

MAX_BODY_BYTES = 1_500_000  # bytes of a request: a payload may have a million
_TASK_FIELDS = frozenset(Task.__struct_fields__)


class PushRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Either a typed task, or the URL of a page and the run it is for."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")] = ""  # the same id is the same typed task
    task: dict[str, Any] | None = None  # the fields of shoal.Task
    url: Annotated[str, msgspec.Meta(max_length=8_192)] = ""
    run: Annotated[str, msgspec.Meta(max_length=200)] = ""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0  # of a page
    anyway: bool = False  # where this worker cannot take it, it waits in the queue for any other


class PushAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of it. refused: nothing did; another worker may take it."""

    id: int = 0
    state: Literal["leased", "added", "known", "seen", ""] = ""
    worker: str = ""  # that it was leased to
    refused: str = ""  # full, stopping, no-code, needs, not-serving
    error: str = ""  # what is wrong with the request, for people
    hint: str = ""
    load: LoadReport = LoadReport()


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is, for whoever balances."""

    name: str
    version: str
    serves: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    load: LoadReport = LoadReport()


def decode_request(body: bytes) -> PushRequest:
    """Raises UsageError for what is not understood."""
    try:
        request = msgspec.json.decode(body, type=PushRequest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"the request is not understood: {str(error)[:200]}", hint='{"task": {"type": …}}') from None
    if (request.task is None) == (not request.url):
        raise UsageError("give either a task or a url", hint='{"task": {"type": …}}, or {"url": …, "run": …}')
    if request.url and not request.run:
        raise UsageError("a url needs the run it is for", hint="shoal runs lists them")
    return request


def typed_task(fields: dict[str, Any]) -> Task:
    """The task that the fields of a request describe; raises UsageError."""
    if unknown := sorted(fields.keys() - _TASK_FIELDS):
        raise UsageError(f"a task has no {unknown[0]!r:.100}", hint=f"it has {', '.join(Task.__struct_fields__)}")
    try:
        return msgspec.convert(fields, Task)
    except msgspec.ValidationError as error:
        raise UsageError(f"the task is not understood: {str(error)[:200]}", hint="see shoal.Task") from None
