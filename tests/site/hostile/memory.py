"""Memory: how large each process of a tree is, and has ever been."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

EVERY = 0.05


class MemoryWatcher:
    """Looks at a process and all its descendants until told to stop; sizes in MB."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._end = threading.Event()
        self.peaks: dict[int, float] = {}  # by process
        self.names: dict[int, str] = {}
        self.largest: list[tuple[float, float]] = []  # (time, the largest process at that moment)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> float:
        """The largest that any process was in this time."""
        return max((size for at, size in self.largest if begin - EVERY <= at <= end + EVERY), default=0.0)

    def _watch(self) -> None:
        while not self._end.wait(EVERY):
            now = 0.0
            for pid in tree(self._root):
                peak, size = _sizes(pid)
                self.peaks[pid] = max(peak, self.peaks.get(pid, 0.0))
                now = max(now, size)
                if pid not in self.names:
                    self.names[pid] = _name(pid)
            self.largest.append((time.time(), now))


def tree(root: int) -> list[int]:
    """The process and all that came of it."""
    below: dict[int, list[int]] = {}
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                below.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += below.get(pid, [])
    return found


def _sizes(pid: int) -> tuple[float, float]:
    """The most this process ever was, and what it is now."""
    sizes = {"VmHWM": 0.0, "VmRSS": 0.0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in sizes:
                sizes[key] = int(value.split()[0]) / 1000
    return max(sizes.values()), sizes["VmRSS"]


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return ""
