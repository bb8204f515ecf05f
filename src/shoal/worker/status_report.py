"""StatusReport: a worker's status, as the registry shows it to people."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from shoal.core.counters import Counters, encode
from shoal.core.lane import WorkerStatus
from shoal.core.run import run_of
from shoal.core.typed_task import TYPE_PREFIX
from shoal.version import __version__
from shoal.worker.leases import Leases
from shoal.worker.memory import memory_of
from shoal.worker.plan import WorkerPlan
from shoal.worker.resource_guard import ResourceGuard


class TaskCounts(msgspec.Struct):
    """What a worker has done since it started."""

    done: int = 0
    failed: int = 0
    records: int = 0
    stale: int = 0


class StatusReport:
    """Built in the heartbeat thread; everything it reads is read in single steps."""

    def __init__(
        self,
        worker: str,
        plan: WorkerPlan,
        leases: Leases,
        counts: TaskCounts,
        run_title: Callable[[int], str],
        progress: Mapping[int, str] = {},
        counters: Callable[[], Counters] = Counters,
        guard: ResourceGuard | None = None,
    ) -> None:
        self._worker = worker
        self._plan = plan
        self._leases = leases
        self._counts = counts
        self._run_title = run_title  # of a run, by its number
        self._progress = progress  # by task: what handlers say of themselves
        self._counters = counters
        self._guard = guard
        self._started_at = 0
        self.command = ""  # what a person asked for: drain, pause

    def worker_status(self, now: int) -> WorkerStatus:
        self._started_at = self._started_at or now
        if self._guard is not None:
            self._guard.read()
        started = Counter(run_of(task) for tasks in self._leases.started_tasks().values() for task in tasks)
        return WorkerStatus(
            id=self._worker,
            name=self._plan.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=self._started_at,
            seen_at=now,
            state=self._state(bool(started)),
            activity=self._doing(started),
            leased=len(self._leases),
            serves=self._plan.scraper_names,
            capabilities=self._plan.capabilities,
            code=self._plan.code_versions,
            done=self._counts.done,
            failed=self._counts.failed,
            memory=memory_of(),
            counters=encode(self._guarded(self._counters())),
        )

    def _guarded(self, counters: Counters) -> Counters:
        guard = self._guard
        if guard is None:
            return counters
        return msgspec.structs.replace(
            counters, machine=guard.figures, pressure=guard.pressure, pressure_reason=guard.reason
        )

    def _state(self, busy: bool) -> str:
        if self.command:
            return "draining" if self.command == "drain" else "paused"
        return "working" if busy or len(self._leases) else "idle"

    def _doing(self, started: Counter[int]) -> str:
        parts = []
        for run, number in started.most_common(3):
            title = self._run_title(run)
            thing = "task" if title.startswith(TYPE_PREFIX) else "page"
            parts.append(
                f"{number} {thing}{'' if number == 1 else 's'}"
                + (f" of {title.removeprefix(TYPE_PREFIX)}" if title else "")
            )
        words = [self._guard.words] if self._guard is not None and self._guard.words else []
        return "; ".join([*words, *parts, *list(self._progress.values())[-1:]])
