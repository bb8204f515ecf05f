"""Sink: where records are written, one after the other, so that a crash leaves whole rows only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Stored(Protocol):
    """A record as the queue keeps it."""

    @property
    def seq(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class Ledger(Protocol):
    """The one verb of a queue that an export needs."""

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> Sequence[Stored]: ...


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a file is known to be whole: `size` bytes hold all records up to `seq`."""

    seq: int = 0
    size: int = 0
    rows: int = 0
    columns: tuple[str, ...] = ()
    print: str = ""  # fingerprint of what the file holds up to `size`


class Sink(Protocol):
    def wider(self, records: Sequence[bytes]) -> tuple[str, ...]:
        """Columns these records have and the sink does not; it must be begun anew to take them."""
        ...

    def write(self, records: Sequence[bytes]) -> None:
        """Append records, whole rows only. A failure leaves what was there before."""
        ...

    def flush(self) -> int:
        """Make everything written durable and say how many bytes that is."""
        ...

    def close(self) -> None: ...
