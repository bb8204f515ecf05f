"""What an export reads from and writes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import msgspec

WrittenOutput = tuple[Path, int, tuple[str, ...]]  # a file, its rows and its columns
P = ParamSpec("P")
T = TypeVar("T")


class RecordLike(Protocol):
    """A record as the queue keeps it."""

    @property
    def seq(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class TaskRecord(RecordLike, Protocol):
    """A record of which it is known what it was made from."""

    @property
    def task(self) -> int: ...


class RecordReader(Protocol):
    """The one method of a queue that an export needs."""

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> Sequence[RecordLike]: ...


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a file is known to be whole: `size` bytes hold all records up to `seq`."""

    seq: int = 0
    size: int = 0
    rows: int = 0
    columns: tuple[str, ...] = ()
    fingerprint: str = msgspec.field(name="print", default="")  # of what the file holds up to `size`
    safe: bool = False  # written so that no cell is a formula
    bom: bool = False  # begun with a byte order mark
    in_order: bool = False  # rows in the order of a list; `seq` counts them then

    @property
    def form(self) -> Checkpoint:
        """How a file is written, whatever it holds by now."""
        return Checkpoint(safe=self.safe, bom=self.bom, in_order=self.in_order)


class AppendFormat(Protocol):
    """A file that rows are appended to, so that a crash leaves whole rows only."""

    def missing_columns(self, records: Sequence[bytes]) -> tuple[str, ...]:
        """Columns these records have and the sink does not; it must be begun anew to take them."""
        ...

    def write(self, records: Sequence[bytes]) -> None:
        """Append records, whole rows only. A failure leaves what was there before."""
        ...

    def flush(self) -> int:
        """Make everything written durable and say how many bytes that is."""
        ...

    def close(self) -> None: ...


class RewriteFormat(Protocol):
    """A file that can only be written as a whole: all records are seen first, then written."""

    needs_scan: bool  # whether it needs to see them first

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about the file as it was written."""
        ...

    def scan(self, records: Sequence[bytes]) -> None: ...

    def begin(self, path: Path) -> None: ...

    def write(self, records: Sequence[bytes]) -> None: ...

    def end(self) -> None:
        """Complete the file."""
        ...

    def close(self) -> None:
        """Release the file, complete or not; harmless to repeat."""
        ...


class OutputWriter(Protocol):
    """One way of keeping an output in step with a run's records."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    async def drain(self) -> int:
        """Copy what is new, as far as that is cheap; says how many records."""
        ...

    async def finish(self) -> int:
        """Make the file hold every record there is; says how many are new."""
        ...

    def close(self) -> None: ...


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do blocking work in a thread, and do not leave it behind when cancelled: it uses our files."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
