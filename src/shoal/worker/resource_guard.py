"""ResourceGuard: has a worker claim less, then nothing, before memory, disk or open files run out.

It reads the machine's figures with the heartbeat, in its thread; a page costs nothing. A worker that has stopped
claiming goes on by itself once there is room again; if it is its own memory that is not given back, it
ends when it has nothing in progress, and its supervisor starts a fresh one.
"""

from __future__ import annotations

import logging
from pathlib import Path

from shoal.core.resources import MachineResources, Pressure, ResourcePolicy, resource_pressure
from shoal.files.machine import MachineReader
from shoal.worker.memory import memory_of

log = logging.getLogger("shoal.worker")

MUCH_MEMORY = 2.0  # times what it had at first: more than that is worth a fresh start
CALM_SECONDS = 5.0  # without any task before it starts afresh
WORDS: dict[Pressure, str] = {"slow": "claims less", "stop": "claims nothing"}


class ResourceGuard:
    def __init__(self, worker: str, policy: ResourcePolicy, folder: str) -> None:
        self._worker = worker
        self._policy = policy
        self._reader = MachineReader(Path(folder))
        self._memory_at_first = 0
        self._idle_since: float | None = None
        self.figures = MachineResources()
        self.pressure: Pressure = ""
        self.reason = ""

    def read(self) -> None:
        """In the heartbeat thread."""
        self.figures = self._reader.read()
        self._memory_at_first = self._memory_at_first or memory_of()
        pressure, reason = resource_pressure(self.figures, self._policy)
        if pressure != self.pressure:
            event = {"slow": "claiming_less", "stop": "claiming_stopped"}.get(pressure, "claiming_again")
            log.warning(event, extra={"worker": self._worker, "why": reason or "there is room again"})
        self.pressure, self.reason = pressure, reason

    @property
    def words(self) -> str:
        return f"{WORDS[self.pressure]}: {self.reason}" if self.pressure else ""

    def needs_fresh_start(self, now: float, *, idle: bool) -> bool:
        """Whether it waits for memory that it has itself and would not give back."""
        is_short = self.pressure == "stop" and self.figures.memory_share >= self._policy.memory_high
        if not idle or not is_short:
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        is_large = memory_of() > MUCH_MEMORY * self._memory_at_first > 0
        return is_large and now - self._idle_since >= CALM_SECONDS
