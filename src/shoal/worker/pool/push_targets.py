"""PushTargets: the workers of a pool to which tasks can be pushed, and how busy they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from shoal.core.balancing import LoadReport, PaceMeter, least_loaded
from shoal.core.counters import decode
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.crash_note import CrashNoteSnapshot

FRESH_SECONDS = 2.0  # a worker that has said nothing for longer stands still; it writes twice a second


class PushTarget(Protocol):
    """A worker, as whoever pushes tasks to it sees it."""

    @property
    def worker(self) -> str: ...

    def read_note(self) -> CrashNoteSnapshot | None: ...

    def send(self, batch: PushedBatch) -> None:
        """Tell it of tasks that are leased to it now."""
        ...


class _Known:
    """What is remembered of one target."""

    def __init__(self) -> None:
        self.meter = PaceMeter()
        self.sent = 0  # batches; those that it has not taken over yet are on their way


class PushTargets:
    """`targets` says which workers there are now."""

    def __init__(self, targets: Callable[[], Iterable[PushTarget]]) -> None:
        self._targets = targets
        self._known: dict[str, _Known] = {}

    def load(self) -> LoadReport:
        """Of all of them together."""
        loads = [load for _, load in self._loads()]
        places = sum(load.places for load in loads)
        busy = [load for load in loads if load.seconds_per_task and load.places]
        weight = sum(load.places for load in busy)
        return LoadReport(
            in_flight=sum(load.in_flight for load in loads if load.places),
            places=places,
            seconds_per_task=sum(load.seconds_per_task * load.places for load in busy) / weight if weight else 0.0,
        )

    def choose(self) -> PushTarget | None:
        """The least loaded that has room; None: nobody has."""
        free = [(target, load) for target, load in self._loads() if load.has_room]
        return least_loaded(free, lambda pair: pair[1])[0] if free else None

    def reserve(self, target: PushTarget) -> None:
        """Count a batch for a worker that is about to be leased to it."""
        self._known[target.worker].sent += 1

    def cancel(self, target: PushTarget) -> None:
        """The batch was not leased after all."""
        if target.worker in self._known:
            self._known[target.worker].sent -= 1

    def _loads(self) -> list[tuple[PushTarget, LoadReport]]:
        found = []
        for target in self._targets():
            note = target.read_note()
            if note is not None:
                found.append((target, self._load(note, self._known.setdefault(target.worker, _Known()))))
        living = {target.worker for target, _ in found}
        self._known = {worker: known for worker, known in self._known.items() if worker in living}
        return found

    def _load(self, note: CrashNoteSnapshot, known: _Known) -> LoadReport:
        is_fresh = time.monotonic_ns() - note.load_at < FRESH_SECONDS * 1e9
        counters = decode(note.counters)
        return LoadReport(
            in_flight=note.held + max(0, known.sent - note.batches),
            places=note.places if is_fresh else 0,
            seconds_per_task=known.meter.observe(sum(counters.took), counters.took_sum),
        )
