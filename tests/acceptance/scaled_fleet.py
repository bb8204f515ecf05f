"""A fleet whose workers a scaler starts and stops as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_fleet import LocalFleet, stop_process
from wait import wait_until

from shoal.control.scaling.local import LocalWorker, list_workers
from shoal.control.scaling.scale_documents import ScaleEvent, read_history
from shoal.core.run import Run

# Short times; how busy this machine is does not count.
QUICK = (
    "--scaler", "local", "--scale-interval", "300ms", "--scale-up-cooldown", "100ms", "--scale-down-cooldown", "1s",
    "--cpu-high", "1", "--workers-per-core", "100", "--memory-per-worker", "1KB",
)  # fmt: skip


class ScaledFleet:
    def __init__(self, fleet: LocalFleet) -> None:
        self.fleet = fleet
        fleet.user.environment |= {"SHOAL_HEARTBEAT": "300ms", "SHOAL_MEMORY_HIGH": "1", "SHOAL_DISK_RESERVE": "1B"}
        self.code = fleet.scraper()
        self._scalers: list[subprocess.Popen[str]] = []

    def scaler(self, *options: str) -> subprocess.Popen[str]:
        made = self.fleet.user.start("scale", "auto", self.code, *QUICK, *options)
        self._scalers.append(made)
        return made

    def processes(self) -> list[LocalWorker]:
        """Those that live, also those on their way out."""
        found = [list_workers(folder) for folder in self.fleet.user.folder.rglob("scaled-workers")]
        return [worker for some in found for worker in some]

    def registered(self) -> int:
        return sum(status.state != "draining" for status in self.fleet.workers())

    def events(self) -> list[ScaleEvent]:
        """The oldest first; only changes."""
        return [event for event in reversed(self.fleet.ask(read_history)) if not event.problem]

    def hits(self, run: Run) -> Counter[str]:
        return Counter(hit.path for hit in self.fleet.site.hits if hit.path != "/robots.txt")

    def close(self) -> None:
        for scaler in self._scalers:
            if scaler.poll() is None:
                stop_process(scaler)
        for worker in self.processes():
            os.killpg(worker.pid, signal.SIGTERM)
        wait_until(lambda: not self.processes())


@contextmanager
def scaled_fleet(fleet: LocalFleet) -> Iterator[ScaledFleet]:
    made = ScaledFleet(fleet)
    try:
        yield made
    finally:
        made.close()


def status_of(fleet: LocalFleet) -> dict[str, object]:
    found: dict[str, object] = json.loads(fleet.user.shoal("scale", "status", "--json").out)
    return found


def folder_of(fleet: LocalFleet) -> Path:
    return next(iter(fleet.user.folder.rglob("scaled-workers")))
