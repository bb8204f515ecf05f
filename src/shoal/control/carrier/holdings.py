"""Holdings: what each worker said it has in its hands, so that nobody else is given it meanwhile, or waiting there."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.queue.broker.wire import HoldingReport

FRESH_SECONDS = 12.0  # a worker says so every five
MAX_WORKERS, MAX_TASKS = 10_000, 5_000
MAX_HELD = 1_000_000  # tasks of all workers together


class Holdings:
    def __init__(self) -> None:
        # When it said so, what it has begun, and what was delivered to it besides.
        self._workers: dict[str, tuple[float, frozenset[int], frozenset[int]]] = {}
        self._count = 0

    def note(self, report: HoldingReport, now: float) -> None:
        self.forget((report.worker,))
        if (report.tasks or report.waiting) and len(report.worker) < 256:
            tasks, waiting = frozenset(report.tasks[:MAX_TASKS]), frozenset(report.waiting[:MAX_TASKS])
            self._workers[report.worker] = now, tasks, waiting
            self._count += len(tasks) + len(waiting)
        while len(self._workers) > MAX_WORKERS or self._count > MAX_HELD:
            self.forget((next(iter(self._workers)),))

    def forget(self, workers: Iterable[str]) -> None:
        """They are known to be dead."""
        for worker in workers:
            if (known := self._workers.pop(worker, None)) is not None:
                self._count -= len(known[1]) + len(known[2])

    def held(self, now: float, *, but: str = "") -> set[int]:
        """The tasks in somebody's hands, those of one worker apart."""
        self._forget_old(now)
        found: set[int] = set()
        for worker, (_, tasks, _) in self._workers.items():
            if worker != but:
                found |= tasks
        return found

    def delivered(self, now: float) -> set[int]:
        """The tasks that somebody has, begun or not: they are not missing."""
        self._forget_old(now)
        found: set[int] = set()
        for _, tasks, waiting in self._workers.values():
            found |= tasks
            found |= waiting
        return found

    def _forget_old(self, now: float) -> None:
        self.forget([worker for worker, (at, _, _) in self._workers.items() if now - at > FRESH_SECONDS])
