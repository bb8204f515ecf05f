"""Bearing: how a worker is doing, as the registry shows it to people."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from shoal.core.figures import Figures, encode
from shoal.core.lane import Mark
from shoal.core.run import run_of
from shoal.version import __version__
from shoal.worker.leases import Leases
from shoal.worker.plan import Plan

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Doing(Protocol):
    """What a worker says of itself."""

    @property
    def done(self) -> int: ...
    @property
    def failed(self) -> int: ...


def memory_of(pid: int | str = "self") -> int:
    """Bytes a process has in memory; 0 where that cannot be known."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


class Bearing:
    """Asked for by the heart's thread; everything it looks at is read in single steps."""

    def __init__(
        self,
        worker: str,
        plan: Plan,
        leases: Leases,
        tally: Doing,
        title: Callable[[int], str],
        progress: Mapping[int, str] = {},
        figures: Callable[[], Figures] = Figures,
    ) -> None:
        self._worker = worker
        self._plan = plan
        self._leases = leases
        self._tally = tally
        self._title = title  # of the scraper of a run
        self._progress = progress  # by task: what handlers say of themselves
        self._figures = figures
        self._started_at = 0
        self.order = ""  # what a person asked for and we obey: drain, pause

    def mark(self, now: int) -> Mark:
        self._started_at = self._started_at or now
        started = Counter(run_of(task) for tasks in self._leases.report().values() for task in tasks)
        return Mark(
            id=self._worker,
            name=self._plan.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=self._started_at,
            seen_at=now,
            state=self._state(bool(started)),
            doing=self._doing(started),
            leased=len(self._leases),
            serves=self._plan.titles,
            code=self._plan.code,
            done=self._tally.done,
            failed=self._tally.failed,
            memory=memory_of(),
            figures=encode(self._figures()),
        )

    def _state(self, busy: bool) -> str:
        if self.order:
            return "draining" if self.order == "drain" else "paused"
        return "working" if busy or len(self._leases) else "idle"

    def _doing(self, started: Counter[int]) -> str:
        parts = []
        for run, number in started.most_common(3):
            title = self._title(run)
            thing = "task" if title.startswith("task:") else "page"
            parts.append(
                f"{number} {thing}{'' if number == 1 else 's'}"
                + (f" of {title.removeprefix('task:')}" if title else "")
            )
        return ", ".join([*parts, *list(self._progress.values())[-1:]])
