"""Task line: a URL that somebody else gives us, with how it is to be fetched, and the task that it becomes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from shoal.core.browser_step import MAX_STEPS
from shoal.core.capability import MAX_EXIT_NAME, capability_names
from shoal.core.request_header import header_problem
from shoal.core.task import Ack, Fetch, RequestOptions, Task
from shoal.errors import UsageError
from shoal.extract.fetching import page_fetching
from shoal.logs import redact
from shoal.runs.url_policy import UrlPolicy


class TaskLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A URL with what may be said of it: a line of NDJSON, or a message."""

    url: Annotated[str, msgspec.Meta(max_length=8_192)]
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] | None = None
    meta: dict[str, Any] | None = None
    delay: Annotated[float, msgspec.Meta(ge=0, le=365 * 86_400)] = 0.0
    ttl: Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    ack: Ack | None = None  # None: as the run's routes say, or manual
    needs: tuple[str, ...] = ()
    method: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z]{1,20}$")] = "GET"
    headers: dict[str, str] = {}
    body: Annotated[str, msgspec.Meta(max_length=32_000)] | None = None
    fetch: Fetch = ""  # "": as the run's routes or settings say
    exit: Annotated[str, msgspec.Meta(max_length=MAX_EXIT_NAME)] = ""  # likewise
    steps: Annotated[tuple[str | dict[str, Any], ...], msgspec.Meta(max_length=MAX_STEPS)] = ()


decode_task_line = msgspec.json.Decoder(TaskLine).decode


def task_from_line(given: TaskLine, number: int, policy: UrlPolicy, priority: int = 0) -> Task | str:
    """The task, by the rules of its run; or why there is none."""
    wanted = priority if given.priority is None else given.priority
    made = policy.make_task(number, given.url, wanted, is_routed=False)
    if isinstance(made, str):
        return made
    if any(redact((name, value)) != [name, value] for name, value in given.headers.items()):
        return "a header holds a secret, and requests are stored in the queue"
    if problem := next(filter(None, (header_problem(*pair) for pair in given.headers.items())), ""):
        return problem
    try:
        needs, by = capability_names(given.needs), page_fetching(given.fetch, given.steps, given.exit)
    except UsageError as error:
        return str(error)
    made = msgspec.structs.replace(
        made,
        delay=given.delay,
        ttl=given.ttl,
        ack=given.ack or "manual",
        needs=needs,
        meta=(made.meta or {}) | (given.meta or {}),
    )
    method = given.method.upper()
    if method != "GET" or given.headers or given.body is not None or by.fetch or by.exit:
        body = None if given.body is None else given.body.encode()
        headers = tuple(given.headers.items())
        options = RequestOptions(method, headers, body, fetch=by.fetch, steps=by.steps, exit=by.exit)
        made = policy.with_request(made, options)
    is_prioritised = given.priority is not None or bool(priority)
    return policy.route(made, keep_priority=is_prioritised, keep_ack=given.ack is not None)
