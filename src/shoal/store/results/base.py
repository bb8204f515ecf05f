"""Results: a store of records beside the queue, on SQLite or PostgreSQL, that many queues may share.

Records come in by `append`, which moves the run's position in the same commit: whoever brings the same
records again is refused. What people store by hand (`store`) has no position.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Protocol

import msgspec

from shoal.core.run import TASK_BITS
from shoal.errors import StoreRefused, UsageError
from shoal.store.base import RecordLike
from shoal.version import install_hint

BATCH_SIZE = 1000
TASK_NUMBER_MASK = (1 << TASK_BITS) - 1  # what of a task's id is its number within the run
_VALUE_KEY = "value"


class Origin(msgspec.Struct, frozen=True):
    """Whose records they are."""

    home: str  # the queue in which the run began
    run: str
    type: str
    number: int = 0  # of the run in its queue: the ids of its tasks begin with it


class StorePosition(msgspec.Struct, frozen=True):
    """How far the records of a run are here. A queue that was set back gives the same numbers again: then

    `shift` is what a number here is above that of the queue, and `base` the last number before that.
    """

    seq: int = 0  # all records of the queue up to it are here
    rows: int = 0  # how many that were
    shift: int = 0
    base: int = 0

    @property
    def last(self) -> int:
        """The last number here."""
        return self.seq + self.shift


class TaskRecord(RecordLike, Protocol):
    @property
    def task(self) -> int: ...


class StoredResult(msgspec.Struct, frozen=True, gc=False):
    """A record as the store keeps it."""

    task: int
    type: str
    run: str
    seq: int
    data: bytes  # one JSON object
    stored_at: int  # UTC microseconds

    @property
    def value(self) -> Any:
        return decode_result(self.data)


class ResultBackend(Protocol):
    label: str  # for people, without a password
    location: str  # its URL for programs on any machine, without a password

    async def position(self, origin: Origin) -> StorePosition: ...

    async def append(self, origin: Origin, after: int, records: Sequence[TaskRecord]) -> bool:
        """Take the records that follow `after`; False, and nothing is taken, if that is not its position.

        After a rebase, records that were here before it, of the same task, are left out: it was done twice.
        """
        ...

    async def rebase(self, origin: Origin, at: StorePosition, seq: int) -> bool:
        """The queue was set back to `seq`: what follows is new. False if the position is another by now."""
        ...

    async def read(
        self, origin: Origin, *, after: int = 0, limit: int = BATCH_SIZE, tasks: Collection[int] = ()
    ) -> list[StoredResult]:
        """A run's records by ascending seq; with `tasks`, only those of these."""
        ...

    async def store(self, task: int, type: str, result: Any, run: str = "") -> None:
        """Keep a task's result, in place of what was stored for it before."""
        ...

    async def get(self, task: int, *, run: str = "") -> list[StoredResult]:
        """All records of a task, however they came; a run's name tells apart queues that share a store."""
        ...

    def aggregate(self, type: str) -> AsyncIterator[StoredResult]:
        """All records of one type of task, or of one scraper; older runs first."""
        ...

    async def count(self, type: str = "") -> int: ...

    async def close(self) -> None: ...


def manual_origin(task: int, type: str, run: str) -> Origin:
    """The origin of a result that did not come from a queue's records."""
    return Origin(f"#{task >> TASK_BITS}", run, type, task >> TASK_BITS)


def encode_result(value: Any) -> bytes:
    """A result as one JSON object: a dict as it is, anything else as its only field."""
    is_plain_object = isinstance(value, dict) and value.keys() != {_VALUE_KEY}
    try:
        return msgspec.json.encode(value if is_plain_object else {_VALUE_KEY: value})
    except (TypeError, ValueError) as error:
        raise UsageError(f"this result cannot be stored: {error}", hint="give what JSON can express") from error


def decode_result(data: bytes) -> Any:
    found = msgspec.json.decode(data)
    return found[_VALUE_KEY] if found.keys() == {_VALUE_KEY} else found


async def open_results(url: str) -> ResultBackend:
    """The store a URL names; it is made if it is not there."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "sqlite":
        from shoal.store.results.sqlite import SqliteResultBackend

        return await SqliteResultBackend.open(rest.partition("?")[0].removeprefix("/") if mark else url)
    if scheme in ("postgresql", "postgres"):
        try:
            from shoal.store.results.postgres import PostgresResultBackend
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise UsageError(
                "stores of the kind postgresql:// need a package that is not installed: asyncpg",
                hint=install_hint("postgres"),
            ) from error
        return await PostgresResultBackend.open(url)
    raise StoreRefused(
        f"results cannot be stored in {scheme}://", hint="--store sqlite:///results.db or postgresql://…"
    )
