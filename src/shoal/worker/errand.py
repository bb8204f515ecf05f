"""Errand: a typed task as its handler sees it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import msgspec

from shoal.core.task import Leased
from shoal.core.typed import Task, payload_of, retries_of
from shoal.errors import Usage

_encode = msgspec.json.Encoder(order="deterministic").encode


class Errand:
    """`payload` says what to do, `client` is what the scraper's `open` gave; `attempt` counts from 1."""

    def __init__(self, task: Leased, run: str, client: Any, doing: dict[int, str]) -> None:
        meta = task.meta or {}
        self.id = task.id
        self.type = task.kind
        self.payload = payload_of(meta)
        self.priority = task.priority
        self.attempt = task.attempts + task.lost + 1
        self.run = run
        self.client = client
        self.cancelled = False  # nobody waits for the result any more: long loops in threads may look at it
        self._retries = retries_of(meta)
        self._doing = doing
        self._more: list[Task] = []

    def enqueue(self, *tasks: Task) -> None:
        """More work, queued when this handler has come to its end without an error.

        The same task is queued once, however often this one is tried.
        """
        for task in tasks:
            if not isinstance(task, Task):
                raise Usage(
                    f"task.enqueue takes tasks, not {type(task).__name__}",
                    hint="shoal.Task(type=…, payload=…)",
                )
            self._more.append(task)

    def progress(self, text: str) -> None:
        """Say what is being done, for `shoal workers`."""
        self._doing[self.id] = str(text)[:200]

    @property
    def own_retries(self) -> int | None:
        return self._retries

    def more(self) -> list[tuple[Task, str]]:
        """What was asked for, each with the key that makes it the same when this task is tried again."""
        seen: Counter[bytes] = Counter()
        found = []
        for task in self._more:
            said = _encode([self.id, task.type, task.payload])
            seen[said] += 1
            key = task.key or hashlib.sha256(said + b"/%d" % seen[said]).hexdigest()[:32]
            found.append((task, key))
        return found

    def __repr__(self) -> str:
        return f"<task {self.id}: {self.type}, attempt {self.attempt}>"
