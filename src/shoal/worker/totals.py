"""Totals: what all children of a supervisor have done together, those that ended and those alive."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

import msgspec

from shoal.core.figures import Figures, decode, error_class, plus
from shoal.core.task import Outcome
from shoal.queue.base import Reaped
from shoal.worker.note import Seen


class Totals(msgspec.Struct, frozen=True):
    """What all children together have done since the supervisor began."""

    children: int = 0  # alive
    deaths: int = 0
    claimed: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0  # leases that others took over
    memory: int = 0  # bytes of those alive
    leases: int = 0  # held by those alive
    step: float = 0.0  # seconds that the longest step of user code under way has taken so far
    figures: Figures = msgspec.field(default_factory=Figures)  # what was settled in their place, too

    def plus(self, seen: Seen, *, ended: bool = False) -> Totals:
        """With one more child; of one that ended only what adds up is kept."""
        figures = decode(seen.figures)
        if ended:
            figures = msgspec.structs.replace(figures, lag=0.0, lanes={})
        return msgspec.structs.replace(
            self,
            claimed=self.claimed + seen.claimed,
            done=self.done + seen.pages,
            failed=self.failed + seen.failed,
            lost=self.lost + seen.lost,
            figures=plus(self.figures, figures),
        )


class Living(Protocol):
    """A child, as far as it is counted."""

    seen: Seen  # its note, when somebody last looked

    def memory(self) -> int: ...


C = TypeVar("C", bound=Living)


class Tally(Generic[C]):
    """Children come and go, sums never fall. `now` may be asked for in any thread."""

    def __init__(self) -> None:
        self.living: set[C] = set()
        self._past = Totals()
        self._lock = threading.Lock()  # so that nobody sees a child in neither place, or in both

    def born(self, child: C) -> None:
        with self._lock:
            self.living.add(child)

    def ended(self, child: C) -> None:
        with self._lock:
            self.living.discard(child)
            self._past = self._past.plus(child.seen, ended=True)

    def died(self) -> None:
        """One of those that ended was not meant to."""
        with self._lock:
            self._past = msgspec.structs.replace(self._past, deaths=self._past.deaths + 1)

    def settled(self, outcome: Outcome) -> None:
        """In the place of a child that could not do it any more."""
        one, dead = {error_class(outcome.cause): 1}, outcome.result == "dead"
        self._add(Figures(failed=one, dead=one if dead else {}, retries=0 if dead else 1))

    def reaped(self, reaped: Reaped) -> None:
        """What no child gave up: tasks that cost too many workers their lives, or waited for too long."""
        ended = {"worker_lost": reaped.dead, "expired": reaped.expired}
        self._add(Figures(dead={name: count for name, count in ended.items() if count}))

    def _add(self, figures: Figures) -> None:
        with self._lock:
            self._past = msgspec.structs.replace(self._past, figures=plus(self._past.figures, figures))

    def now(self) -> Totals:
        with self._lock:
            together, living = self._past, list(self.living)
            seen = [child.seen for child in living]
        for one in seen:
            together = together.plus(one)
        step = max((one.seconds() for one in seen), default=0.0)
        # A child that stands still cannot say so itself.
        figures = msgspec.structs.replace(together.figures, lag=max(together.figures.lag, step))
        return msgspec.structs.replace(
            together,
            children=len(living),
            memory=sum(child.memory() for child in living),
            leases=sum(len(one.leases) for one in seen),
            step=step,
            figures=figures,
        )
