"""Totals: children come and go, and what they have done stays counted."""

from __future__ import annotations

import threading

from shoal.core.figures import Figures, encode
from shoal.core.task import Outcome
from shoal.queue.base import Reaped
from shoal.worker.note import Seen
from shoal.worker.totals import Tally


class Child:
    def __init__(self, done: int) -> None:
        self.seen = Seen(pages=done, claimed=done, leases=(1, 2), figures=encode(Figures(done=done, lag=9.0)))

    def memory(self) -> int:
        return 100


def test_a_child_that_ended_leaves_its_sums_and_nothing_else() -> None:
    tally, first, second = Tally[Child](), Child(3), Child(4)
    tally.born(first)
    tally.born(second)
    both = tally.now()
    assert (both.children, both.done, both.figures.done, both.memory, both.leases) == (2, 7, 7, 200, 4)
    tally.ended(first)
    tally.ended(second)
    tally.died()
    past = tally.now()
    assert (past.children, past.done, past.figures.done, past.memory, past.leases) == (0, 7, 7, 0, 0)
    assert (past.deaths, past.figures.lag) == (1, 0.0)


def test_what_was_given_up_in_the_place_of_children_is_counted() -> None:
    tally = Tally[Child]()
    tally.settled(Outcome(task=1, lease=1, result="retry", cause="handler_timeout"))
    tally.settled(Outcome(task=1, lease=2, result="dead", cause="memory"))
    tally.reaped(Reaped(dead=2, expired=1))
    figures = tally.now().figures
    assert (figures.retries, figures.failed) == (1, {"handler": 2})
    assert figures.dead == {"handler": 1, "worker_lost": 2, "expired": 1}


class Ending(Child):
    """Somebody asks for the sums at the very moment in which it goes from the living to the past."""

    reader: threading.Thread | None = None

    @property
    def seen(self) -> Seen:
        if self.reader is not None and self.reader.ident is None:
            self.reader.start()
            self.reader.join(0.1)
        return self._seen

    @seen.setter
    def seen(self, seen: Seen) -> None:
        self._seen = seen


def test_a_child_is_counted_once_by_whoever_asks_while_it_ends() -> None:
    tally, child, read = Tally[Ending](), Ending(3), list[int]()
    tally.born(child)
    child.reader = threading.Thread(target=lambda: read.append(tally.now().done))
    tally.ended(child)
    child.reader.join()
    assert read == [3]
