"""PoolTotals: what all children of a supervisor have done together, those that ended and those alive."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

import msgspec

from shoal.core.counters import Counters, combine, decode, error_class
from shoal.core.task import Outcome
from shoal.queue.base import ReapResult
from shoal.worker.pool.crash_note import CrashNoteSnapshot


class PoolTotals(msgspec.Struct, frozen=True):
    """What all children together have done since the supervisor began."""

    children: int = 0  # alive
    deaths: int = 0
    claimed: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0  # leases that others took over
    memory: int = 0  # bytes of those alive
    leases: int = 0  # held by those alive
    longest_step: float = 0.0  # seconds that the longest step of user code in progress has taken so far
    counters: Counters = msgspec.field(default_factory=Counters)  # what was settled in their place, too

    def with_child(self, snapshot: CrashNoteSnapshot, *, ended: bool = False) -> PoolTotals:
        """With one more child; of one that ended only what adds up is kept."""
        counters = decode(snapshot.counters)
        if ended:
            counters = msgspec.structs.replace(counters, lag=0.0, lanes={})
        return msgspec.structs.replace(
            self,
            claimed=self.claimed + snapshot.claimed,
            done=self.done + snapshot.pages,
            failed=self.failed + snapshot.failed,
            lost=self.lost + snapshot.lost,
            counters=combine(self.counters, counters),
        )


class CountedChild(Protocol):
    """A child, as far as it is counted."""

    snapshot: CrashNoteSnapshot  # its note, when somebody last looked

    def memory(self) -> int: ...


C = TypeVar("C", bound=CountedChild)


class PoolTotalsRecorder(Generic[C]):
    """Children come and go, totals never fall. `current` may be called from any thread."""

    def __init__(self) -> None:
        self.children: set[C] = set()
        self._ended = PoolTotals()
        self._lock = threading.Lock()  # so that nobody sees a child in neither place, or in both

    def add_child(self, child: C) -> None:
        with self._lock:
            self.children.add(child)

    def remove_child(self, child: C) -> None:
        with self._lock:
            self.children.discard(child)
            self._ended = self._ended.with_child(child.snapshot, ended=True)

    def count_death(self) -> None:
        """One of those that ended was not meant to."""
        with self._lock:
            self._ended = msgspec.structs.replace(self._ended, deaths=self._ended.deaths + 1)

    def count_settled(self, outcome: Outcome) -> None:
        """In the place of a child that could not do it any more."""
        one, dead = {error_class(outcome.cause): 1}, outcome.result == "dead"
        self._add(Counters(failed=one, dead=one if dead else {}, retries=0 if dead else 1))

    def count_reaped(self, reaped: ReapResult) -> None:
        """What no child gave up: tasks that cost too many workers their lives, or waited for too long."""
        ended = {"worker_lost": reaped.dead, "expired": reaped.expired}
        self._add(Counters(dead={name: count for name, count in ended.items() if count}))

    def _add(self, counters: Counters) -> None:
        with self._lock:
            self._ended = msgspec.structs.replace(self._ended, counters=combine(self._ended.counters, counters))

    def current(self) -> PoolTotals:
        with self._lock:
            totals, living = self._ended, list(self.children)
            snapshots = [child.snapshot for child in living]
        for one in snapshots:
            totals = totals.with_child(one)
        step = max((one.seconds() for one in snapshots), default=0.0)
        # A child that stands still cannot say so itself.
        counters = msgspec.structs.replace(totals.counters, lag=max(totals.counters.lag, step))
        return msgspec.structs.replace(
            totals,
            children=len(living),
            memory=sum(child.memory() for child in living),
            leases=sum(len(one.leases) for one in snapshots),
            longest_step=step,
            counters=counters,
        )
