"""ResourceGuard: has a worker claim less, then nothing, before memory, disk or open files run out.

It reads the machine's figures with the heartbeat, in its thread, and between pages only how much memory is in use: a
few times a second, and more often the fewer pages there is room for. What pages have left in memory so far tells how
many may be in progress at a time. A worker that has stopped claiming goes on by itself once there is room again; if
it is its own memory that is not given back, it ends when it has nothing in progress, and its supervisor starts a fresh
one. For that one there must be room, too: where memory is getting short, no process has more than its share.
"""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

from msgspec.structs import replace

from shoal.core.resources import MachineResources, Pressure, ResourcePolicy, resource_pressure
from shoal.files.machine import MachineReader
from shoal.worker.memory import memory_of

log = logging.getLogger("shoal.worker")

MUCH_GROWTH = 16 * 2**20  # bytes; for less it is not worth starting afresh
MEMORY_INTERVAL = 0.2  # seconds between two looks at the memory
MIN_PAGES, MAX_PAGES = 2, 500  # likewise: as few while nothing is known of them
LOOKS_AHEAD = 8  # so often is looked before the pages that there is room for have ended
GETTING_SHORT = 0.15  # of the memory, before workers claim less: from there on shares count
CALM_SECONDS = 1.0  # without any task before it starts afresh
FORGETTING = 0.9  # a page that leaves much is remembered for some tens of looks
WORDS: dict[Pressure, str] = {"slow": "claims less", "stop": "claims nothing"}


class ResourceGuard:
    def __init__(self, worker: str, policy: ResourcePolicy, folder: str) -> None:
        self._worker = worker
        self._policy = policy
        self._reader = MachineReader(Path(folder), policy.memory_high)
        self._memory_at_first = 0
        self._memory = 0  # of this process, at the last look
        self._finished = 0  # pages, at the last look
        self._left_by_page = 0.0  # bytes that a page leaves in memory, lately
        self._idle_since: float | None = None
        self._share = math.inf  # bytes that this process may have where memory is getting short
        self._check_at = -math.inf
        self._check_after = 0  # pages
        self.most_in_progress: float = math.inf  # pages for which there is memory, at least one
        self.figures = MachineResources()
        self.pressure: Pressure = ""
        self.reason = ""

    def read(self) -> None:
        """In the heartbeat thread."""
        figures = self._reader.read()
        if not self._memory_at_first:
            self._memory_at_first = self._memory = memory_of()
            self._share = self._fair_share(figures)
        self._judge(figures)

    def check_memory(self, now: float, finished: int) -> None:
        """In the event loop, between pages: a leak may fill in a second what a heartbeat would see in five.

        finished: pages until now.
        """
        if now < self._check_at and finished < self._check_after:
            return
        total, used, limited_by = self._reader.read_memory()
        self._learn(finished)
        room = max(0.0, self._policy.memory_stop * total - used) / self._policy.processes
        self.most_in_progress = max(1.0, room // self._left_by_page) if total and self._left_by_page else math.inf
        pages = MAX_PAGES if finished else MIN_PAGES
        self._check_after = finished + max(1, int(min(pages, self.most_in_progress / LOOKS_AHEAD)))
        self._check_at = now + MEMORY_INTERVAL
        self._judge(replace(self.figures, memory_total=total, memory_used=used, limited_by=limited_by))

    def _learn(self, finished: int) -> None:
        """What a page leaves behind, from how much this process has grown since the last look."""
        memory, before, pages = memory_of(), self._memory, finished - self._finished
        self._memory, self._finished = memory, finished
        if pages > 0:
            self._left_by_page = max(FORGETTING * self._left_by_page, (memory - before) / pages, 0.0)

    def _fair_share(self, figures: MachineResources) -> float:
        """What is left for each process of this worker, at its start: not what its supervisor and others have."""
        processes, own = self._policy.processes, self._memory_at_first
        others = max(memory_of(os.getppid()), figures.memory_used - processes * own)
        room = self._policy.memory_high * figures.memory_total - others
        return max(room / processes, own + MUCH_GROWTH) if figures.memory_total else math.inf

    @property
    def _is_too_large(self) -> bool:
        limit = self._policy.memory_high - GETTING_SHORT
        return self._policy.memory_high < 1 and self._memory > self._share and self.figures.memory_share >= limit

    def _judge(self, figures: MachineResources) -> None:
        self.figures = figures
        pressure, reason = resource_pressure(self.figures, self._policy)
        if pressure != "stop" and self._is_too_large:
            pressure, reason = "stop", f"this process has {self._memory / 1e6:.0f} MB, more than its share"
        if pressure != self.pressure:
            event = {"slow": "claiming_less", "stop": "claiming_stopped"}.get(pressure, "claiming_again")
            log.warning(event, extra={"worker": self._worker, "why": reason or "there is room again"})
        self.pressure, self.reason = pressure, reason

    @property
    def words(self) -> str:
        return f"{WORDS[self.pressure]}: {self.reason}" if self.pressure else ""

    def needs_fresh_start(self, now: float, *, idle: bool) -> bool:
        """Whether it waits for memory that it has itself and would not give back: without its growth there is room."""
        is_short = self.figures.memory_share >= self._policy.memory_high or self._is_too_large
        is_short = is_short and self.pressure == "stop"
        if not idle or not is_short:
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        growth = memory_of() - self._memory_at_first if self._memory_at_first else 0
        others = self.figures.memory_used - growth * self._policy.processes
        is_own = self._is_too_large or others < self._policy.memory_high * self.figures.memory_total
        is_own = is_own and growth >= MUCH_GROWTH
        return is_own and now - self._idle_since >= CALM_SECONDS
