"""Intake message: what another program publishes, checked as a stranger's, before anything is done with it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from shoal.core.letter import Letter
from shoal.core.task import Ack
from shoal.core.typed_task import MAX_PAYLOAD_BYTES, Task
from shoal.errors import UsageError
from shoal.runs.task_line import TaskLine

MAX_MESSAGE = MAX_PAYLOAD_BYTES + 100_000  # bytes
MAX_URL_MESSAGE = 64_000  # likewise of one with a URL, as for a line of the API
MAX_REASON = 300  # letters
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}$"

Name = Annotated[str, msgspec.Meta(pattern=_NAME)]


class MessageRejected(Exception):
    """This message cannot become a task; says why."""


class UrlMessage(TaskLine, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A page. Of `run`, the name of an open run, and `scraper` at most one is given."""

    run: Name | None = None
    scraper: Name | None = None


class TypedMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A typed task. Its lane and pace are for those to say who have the code."""

    type: Annotated[str, msgspec.Meta(max_length=64)]
    payload: dict[str, Any] = {}
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    delay: Annotated[float, msgspec.Meta(ge=0, le=365 * 86_400)] = 0.0
    ttl: Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    retries: int | None = None
    retry_backoff: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    ack: Ack = "manual"
    needs: tuple[str, ...] = ()

    def to_task(self, key: str) -> Task:
        """key: what it is known by if it names no key itself."""
        try:
            return Task(
                type=self.type,
                payload=self.payload,
                key=self.key or key,
                priority=self.priority,
                delay=self.delay,
                ttl=self.ttl,
                retries=self.retries,
                retry_backoff=self.retry_backoff,
                ack=self.ack,
                needs=self.needs,
            )
        except UsageError as error:
            raise MessageRejected(f"{error} ({error.hint})"[:MAX_REASON]) from None


IntakeMessage = UrlMessage | TypedMessage | Letter
_KINDS: dict[str, type[IntakeMessage]] = {"letter": Letter, "url": UrlMessage, "type": TypedMessage}


def read_message(body: bytes) -> IntakeMessage:
    """What a message asks for; raises MessageRejected."""
    if len(body) > MAX_MESSAGE:
        raise MessageRejected(f"it has {len(body):,} bytes, and {MAX_MESSAGE:,} are the most")
    try:
        given = msgspec.json.decode(body)
        if not isinstance(given, dict):
            raise MessageRejected("it is not a JSON object")
        # A letter has a URL or a type, too.
        kind = next((kind for name, kind in _KINDS.items() if name in given), None)
        if kind is None:
            raise MessageRejected('it has none of "url", "type" and "letter"')
        if kind is UrlMessage and len(body) > MAX_URL_MESSAGE:
            raise MessageRejected(f"it has {len(body):,} bytes, and {MAX_URL_MESSAGE:,} are the most with a URL")
        found = msgspec.convert(given, kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise MessageRejected(f"it is not understood: {error}"[:MAX_REASON]) from None
    if isinstance(found, UrlMessage) and found.run and found.scraper:
        raise MessageRejected("it names both a run and a scraper")
    return found
