"""Totals: children come and go, and what they have done stays counted."""

from __future__ import annotations

import threading

from shoal.core.counters import Counters, encode
from shoal.core.task import Outcome
from shoal.queue.base import ReapResult
from shoal.worker.pool.crash_note import CrashNoteSnapshot
from shoal.worker.pool.totals import PoolTotalsRecorder


class Child:
    def __init__(self, done: int) -> None:
        self.snapshot = CrashNoteSnapshot(
            pages=done, claimed=done, leases=(1, 2), counters=encode(Counters(done=done, lag=9.0))
        )

    def memory(self) -> int:
        return 100


def test_a_child_that_ended_leaves_its_sums_and_nothing_else() -> None:
    totals, first, second = PoolTotalsRecorder[Child](), Child(3), Child(4)
    totals.add_child(first)
    totals.add_child(second)
    both = totals.current()
    assert (both.children, both.done, both.counters.done, both.memory, both.leases) == (2, 7, 7, 200, 4)
    totals.remove_child(first)
    totals.remove_child(second)
    totals.count_death()
    past = totals.current()
    assert (past.children, past.done, past.counters.done, past.memory, past.leases) == (0, 7, 7, 0, 0)
    assert (past.deaths, past.counters.lag) == (1, 0.0)


def test_what_was_given_up_in_the_place_of_children_is_counted() -> None:
    totals = PoolTotalsRecorder[Child]()
    totals.count_settled(Outcome(task=1, lease=1, result="retry", cause="handler_timeout"))
    totals.count_settled(Outcome(task=1, lease=2, result="dead", cause="memory"))
    totals.count_reaped(ReapResult(dead=2, expired=1))
    figures = totals.current().counters
    assert (figures.retries, figures.failed) == (1, {"handler": 2})
    assert figures.dead == {"handler": 1, "worker_lost": 2, "expired": 1}


class Ending(Child):
    """Somebody asks for the sums at the very moment in which it goes from the living to the past."""

    reader: threading.Thread | None = None

    @property
    def snapshot(self) -> CrashNoteSnapshot:
        if self.reader is not None and self.reader.ident is None:
            self.reader.start()
            self.reader.join(0.1)
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: CrashNoteSnapshot) -> None:
        self._snapshot = snapshot


def test_a_child_is_counted_once_by_whoever_asks_while_it_ends() -> None:
    totals, child, read = PoolTotalsRecorder[Ending](), Ending(3), list[int]()
    totals.add_child(child)
    child.reader = threading.Thread(target=lambda: read.append(totals.current().done))
    totals.remove_child(child)
    child.reader.join()
    assert read == [3]
