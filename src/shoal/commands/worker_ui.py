"""What a worker tells people: a snapshot of it, and the protocol of whoever shows it."""

from __future__ import annotations

import sys
from typing import Protocol

import msgspec

from shoal.worker.pool.totals import PoolTotals


class WorkerSnapshot(msgspec.Struct, frozen=True):
    """What a worker is doing at one moment, for its display."""

    name: str
    totals: PoolTotals
    reachable: bool
    runs: tuple[str, ...] = ()  # that it works on, where that is known


class WorkerUi(Protocol):
    def message(self, text: str) -> None:
        """One line for people."""
        ...

    def update(self, snapshot: WorkerSnapshot) -> None:
        """May be called as often as one likes; it shows what is worth showing."""
        ...


class PlainWorkerUi:
    """Prints messages only; for callers without a display of their own."""

    def message(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def update(self, snapshot: WorkerSnapshot) -> None: ...
