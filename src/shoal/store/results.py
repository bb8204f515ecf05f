"""Results: a store of records beside the queue, on SQLite or PostgreSQL, that many queues may share.

Records come in by `append`, which moves the run's position in the same commit: whoever brings the same
records again is refused. What people store by hand (`store`) has no position.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Protocol

import msgspec

from shoal.core.run import TASK_BITS
from shoal.errors import StoreRefused, Usage

SLICE = 1000
NUMBER = (1 << TASK_BITS) - 1  # what of a task's id is its number within the run
_ONLY = "value"


class Origin(msgspec.Struct, frozen=True):
    """Whose records they are."""

    home: str  # the queue in which the run began
    run: str
    type: str
    number: int = 0  # of the run in its queue: the ids of its tasks begin with it


class Position(msgspec.Struct, frozen=True):
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


class Line(Protocol):
    """A record as a queue keeps it."""

    @property
    def seq(self) -> int: ...

    @property
    def task(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A record as the store keeps it."""

    task: int
    type: str
    run: str
    seq: int
    data: bytes  # one JSON object
    stored_at: int  # UTC microseconds

    @property
    def value(self) -> Any:
        return unpacked(self.data)


class ResultStore(Protocol):
    place: str  # for people, without a password

    async def position(self, origin: Origin) -> Position: ...

    async def append(self, origin: Origin, after: int, records: Sequence[Line]) -> bool:
        """Take the records that follow `after`; False, and nothing is taken, if that is not its position.

        After a rebase, records that were here before it, of the same task, are left out: it was done twice.
        """
        ...

    async def rebase(self, origin: Origin, at: Position, seq: int) -> bool:
        """The queue was set back to `seq`: what follows is new. False if the position is another by now."""
        ...

    async def read(
        self, origin: Origin, *, after: int = 0, limit: int = SLICE, tasks: Collection[int] = ()
    ) -> list[Kept]:
        """A run's records by ascending seq; with `tasks`, only those of these."""
        ...

    async def store(self, task: int, type: str, result: Any, run: str = "") -> None:
        """Keep a task's result, in place of what was stored for it before."""
        ...

    async def get(self, task: int, *, run: str = "") -> list[Kept]:
        """All records of a task, however they came; a run's name tells apart queues that share a store."""
        ...

    def aggregate(self, type: str) -> AsyncIterator[Kept]:
        """All records of one type of task, or of one scraper; older runs first."""
        ...

    async def count(self, type: str = "") -> int: ...

    async def close(self) -> None: ...


def by_hand(task: int, type: str, run: str) -> Origin:
    """The origin of a result that did not come from a queue's records."""
    return Origin(f"#{task >> TASK_BITS}", run, type, task >> TASK_BITS)


def packed(value: Any) -> bytes:
    """A result as one JSON object: a dict as it is, anything else as its only field."""
    as_it_is = isinstance(value, dict) and value.keys() != {_ONLY}
    try:
        return msgspec.json.encode(value if as_it_is else {_ONLY: value})
    except (TypeError, ValueError) as error:
        raise Usage(f"this result cannot be stored: {error}", hint="give what JSON can express") from error


def unpacked(data: bytes) -> Any:
    found = msgspec.json.decode(data)
    return found[_ONLY] if found.keys() == {_ONLY} else found


async def open_results(url: str) -> ResultStore:
    """The store an address names; it is made if it is not there."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "sqlite":
        from shoal.store.results_sqlite import SqliteResults

        return await SqliteResults.open(rest.partition("?")[0].removeprefix("/") if mark else url)
    if scheme in ("postgresql", "postgres"):
        try:
            from shoal.store.results_postgres import PostgresResults
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise Usage(
                "stores of the kind postgresql:// need a package that is not installed: asyncpg",
                hint="pip install 'shoal[postgres]'",
            ) from error
        return await PostgresResults.open(url)
    raise StoreRefused(
        f"results cannot be stored in {scheme}://", hint="--store sqlite:///results.db or postgresql://…"
    )
