"""Holdings: what each worker said it has in its hands, so that nobody else is given it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.queue.broker.wire import HoldingReport

FRESH_SECONDS = 12.0  # a worker says so every five
MAX_WORKERS, MAX_TASKS = 10_000, 5_000
MAX_HELD = 1_000_000  # tasks of all workers together


class Holdings:
    def __init__(self) -> None:
        self._workers: dict[str, tuple[float, frozenset[int]]] = {}
        self._count = 0

    def note(self, report: HoldingReport, now: float) -> None:
        self.forget((report.worker,))
        if report.tasks and len(report.worker) < 256:
            tasks = frozenset(report.tasks[:MAX_TASKS])
            self._workers[report.worker] = now, tasks
            self._count += len(tasks)
        while len(self._workers) > MAX_WORKERS or self._count > MAX_HELD:
            self.forget((next(iter(self._workers)),))

    def forget(self, workers: Iterable[str]) -> None:
        """They are known to be dead."""
        for worker in workers:
            if (known := self._workers.pop(worker, None)) is not None:
                self._count -= len(known[1])

    def held(self, now: float, *, but: str = "") -> set[int]:
        """The tasks in somebody's hands, those of one worker apart."""
        old = [worker for worker, (at, _) in self._workers.items() if now - at > FRESH_SECONDS]
        self.forget(old)
        found: set[int] = set()
        for worker, (_, tasks) in self._workers.items():
            if worker != but:
                found |= tasks
        return found
