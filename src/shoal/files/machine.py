"""The machine we run on, or the container: its cores, memory, disk and open files, and how much is in use.

In a container the machine's own figures mislead: the control group (cgroup, version 1 or 2) says what it may have.
Where a group lies in others that have limits, the tightest counts.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shoal.core.resources import USUAL_MEMORY_HIGH, MachineResources

NO_LIMIT = 2**60  # version 1 says so by a number near the largest there is
MIN_SPAN = 0.05  # seconds between two readings that tell how busy the CPU is


class _Cgroup(msgspec.Struct, frozen=True):
    """The files of our control group, for one controller, from the innermost group outwards."""

    version: int
    folders: tuple[Path, ...]


class MachineReader:
    """Reads again and again: how busy the CPU was follows from two readings."""

    def __init__(
        self,
        disk: Path = Path(),
        memory_high: float = USUAL_MEMORY_HIGH,
        *,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._disk = disk
        self._memory_high = memory_high
        self._proc = proc
        self._memory = _find_cgroup(proc, cgroups, "memory")
        self._cpu = _find_cgroup(proc, cgroups, "cpu")
        self._cpu_account = _find_cgroup(proc, cgroups, "cpuacct")
        self._busy: tuple[float, float] | None = None  # (when, seconds of CPU until then)
        self._share: float | None = None

    def read(self) -> MachineResources:
        total, used, limited_by = self.read_memory()
        disk_total, disk_free = self._read_disk()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        cores = self._cores()
        return MachineResources(
            cores=cores,
            cpu=self._read_cpu(cores),
            load=_load(),
            memory_total=total,
            memory_used=used,
            disk_total=disk_total,
            disk_free=disk_free,
            files_limit=0 if limit == resource.RLIM_INFINITY else limit,
            files_open=self._count_files(),
            limited_by=limited_by,
        )

    def read_memory(self) -> tuple[int, int, str]:
        """(bytes, in use, limited by) of the machine or the group that is the first to have no more for us."""
        total, available = self._meminfo()
        found = [(total, total - available, "")] if total else []
        for folder in self._memory.folders:
            if (limited := self._group_memory(folder)) is not None and (not total or limited[0] < total):
                found.append((*limited, f"cgroup v{self._memory.version}"))
        return min(found, key=self._rank, default=(0, 0, ""))

    def _rank(self, place: tuple[int, int, str]) -> tuple[bool, float]:
        """What is short already comes first, the fullest of all; else where the least is left.

        By the share alone a half full machine would hide a small container in it, and by what is left alone a small
        container a machine that is nearly full.
        """
        total, used, _ = place
        short = used >= total * self._memory_high
        return (False, -used / total) if short else (True, total * self._memory_high - used)

    def _group_memory(self, folder: Path) -> tuple[int, int] | None:
        """(limit, in use); what the kernel keeps of files only because there is room is not in use."""
        names = ("memory.max", "memory.current", "inactive_file")
        if self._memory.version == 1:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        limit, usage = _number(folder / names[0]), _number(folder / names[1])
        if not limit or limit >= NO_LIMIT or usage is None:
            return None
        return limit, max(0, usage - _field(folder / "memory.stat", names[2]))

    def _meminfo(self) -> tuple[int, int]:
        file = self._proc / "meminfo"
        return _field(file, "MemTotal:") * 1024, _field(file, "MemAvailable:") * 1024

    def _cores(self) -> float:
        cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        for folder in self._cpu.folders:
            quota = _quota(folder, self._cpu.version)
            cores = min(cores, quota) if quota else cores
        return round(cores, 2)

    def _read_cpu(self, cores: float) -> float | None:
        """The share of our cores that was in use since the last reading; None at the first."""
        now, busy = time.monotonic(), self._busy_seconds()
        if busy is None:
            return None
        if self._busy is not None and now - self._busy[0] < MIN_SPAN:
            return self._share
        before, self._busy = self._busy, (now, busy)
        if before is not None:
            self._share = round(min(1.0, max(0.0, (busy - before[1]) / (now - before[0]) / max(cores, 0.01))), 3)
        return self._share

    def _busy_seconds(self) -> float | None:
        """Of the group if its cores are limited, else of the machine."""
        if any(_quota(folder, self._cpu.version) for folder in self._cpu.folders):
            for folder in self._cpu_account.folders:
                if self._cpu_account.version == 2 and (micro := _field(folder / "cpu.stat", "usage_usec")):
                    return micro / 1e6
                if self._cpu_account.version == 1 and (nano := _number(folder / "cpuacct.usage")):
                    return nano / 1e9
        words = _words(self._proc / "stat")
        if len(words) < 9 or words[0] != "cpu":
            return None
        user, nice, system, _, _, irq, soft, steal = (int(word) for word in words[1:9])
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")

    def _read_disk(self) -> tuple[int, int]:
        folder = self._disk
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent  # it is made with the first thing that is kept
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            return 0, 0
        return usage.total, usage.free

    def _count_files(self) -> int:
        try:
            return sum(1 for _ in (self._proc / "self" / "fd").iterdir())
        except OSError:
            return 0


def _find_cgroup(proc: Path, root: Path, controller: str) -> _Cgroup:
    """The group of this process and those around it; in a container its own is the root."""
    for line in _lines(proc / "self" / "cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            return _Cgroup(1, tuple(_groups(_mount_of(root, controllers, controller), path)))
        if number == "0" and not controllers and (root / "cgroup.controllers").exists():
            return _Cgroup(2, tuple(_groups(root, path)))
    return _Cgroup(2, ())


def _mount_of(root: Path, controllers: str, controller: str) -> Path:
    return next((root / name for name in (controllers, controller) if (root / name).is_dir()), root / controller)


def _groups(mount: Path, path: str) -> Iterator[Path]:
    if ".." in Path(path).parts:
        path = "/"  # a group outside of what we can see
    folder = mount / path.strip("/")
    while True:
        if folder.is_dir():
            yield folder
        if folder == mount:
            return
        folder = folder.parent


def _quota(folder: Path, version: int) -> float | None:
    """Cores that a group may use at a time; None: any."""
    if version == 2:
        words = _words(folder / "cpu.max")
        pair = words[:2] if len(words) >= 2 else []
    else:
        pair = [*_words(folder / "cpu.cfs_quota_us")[:1], *_words(folder / "cpu.cfs_period_us")[:1]]
    if len(pair) < 2 or not all(word.isdecimal() for word in pair) or not int(pair[1]):
        return None
    return int(pair[0]) / int(pair[1]) or None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace")
    except OSError:
        return ""


def _lines(file: Path) -> list[str]:
    return _text(file).splitlines()


def _words(file: Path) -> list[str]:
    """Of the first line."""
    lines = _lines(file)
    return lines[0].split() if lines else []


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdecimal() else None


def _field(file: Path, name: str) -> int:
    for line in _lines(file):
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return 0
