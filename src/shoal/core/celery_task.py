"""CeleryTask: a task of somebody's own Celery app, to be sent once the page or task that asked for it is settled."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from shoal.core.celery_name import is_task_name
from shoal.core.task import OutboxEntry
from shoal.core.typed_task import check_payload
from shoal.errors import UsageError

KIND = "celery"  # of the outbox
MAX_RECORDS_BYTES = 250_000  # of a page's records in a message; beyond it goes without them
# Ids are made from this, so that the same page asks for the same task however often it is tried.
_NAMESPACE = uuid.UUID("6f1f1bd6-2c55-5d0e-9d51-7b6f0c0e4a53")

_encode = msgspec.json.Encoder(order="deterministic").encode


class CeleryTask(msgspec.Struct, frozen=True):
    """A Celery task by its name, with arguments of JSON values; `queue` where it is not the app's usual one."""

    name: str
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = {}
    queue: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_task_name(self.name):
            raise UsageError(f"{self.name!r:.100} is not the name of a Celery task", hint='such as "shop.tasks.index"')
        if self.queue and not (isinstance(self.queue, str) and is_task_name(self.queue)):
            raise UsageError(f"{self.queue!r:.100} is not the name of a Celery queue", hint='such as "celery"')
        if not isinstance(self.args, list | tuple):
            raise UsageError(f"the arguments of {self.name} are a list", hint='args=["https://…"]')
        check_payload({"args": list(self.args), "kwargs": self.kwargs}, self.name)


class CeleryMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message as the outbox keeps it: a stable id, so that sending it twice is one task to whoever looks."""

    id: str
    task: CeleryTask


def celery_entries(run: str, parent: int, tasks: Iterable[CeleryTask]) -> Iterator[OutboxEntry]:
    """What the task `parent` of a run asked for, each with an id that follows from what it is."""
    seen: Counter[bytes] = Counter()
    for task in tasks:
        identity = _encode([run, parent, task.name, task.args, task.kwargs, task.queue])
        seen[identity] += 1
        id = str(uuid.uuid5(_NAMESPACE, f"{identity.hex()}/{seen[identity]}"))
        yield OutboxEntry(KIND, id, _encode(CeleryMessage(id, task)))


def after_page(name: str, run: str, url: str, task: int, records: Sequence[bytes]) -> CeleryTask:
    """What a run that names a Celery task has to say of each page that is done."""
    fits = sum(map(len, records)) <= MAX_RECORDS_BYTES
    found = [msgspec.json.decode(record) for record in records] if fits else None
    return CeleryTask(name, (url,), {"run": run, "task": task, "count": len(records), "records": found})
