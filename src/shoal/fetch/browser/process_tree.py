"""ProcessTree: the processes below one, the memory they take, and their time on the processor, as Linux counts it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_pss = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE).search
_RENDERER = b"--type=renderer"


class Resident(NamedTuple):
    """Bytes of a process that are in memory."""

    private: int
    shared: int  # files and memory that others may have, too


def descendants(pid: int) -> list[int]:
    """The process itself and all below it; empty if it is gone."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        threads = list(Path(f"/proc/{one}/task").glob("*"))
        if threads:
            found.append(one)
        for thread in threads:
            waiting += map(int, _read(f"{thread}/children").split())
    return found


def with_new_children(pids: list[int]) -> list[int]:
    """The same and what their first threads have started since: renderers come from those alone."""
    found, waiting = list[int](), list(pids)
    known = set(pids)
    while waiting:
        one = waiting.pop()
        found.append(one)
        new = [child for child in map(int, _read(f"/proc/{one}/task/{one}/children").split()) if child not in known]
        known.update(new)
        waiting += new
    return found


def resident_memory(pid: int) -> Resident:
    fields = _read(f"/proc/{pid}/statm").split()
    if len(fields) < 3:
        return Resident(0, 0)
    resident, shared = int(fields[1]) * _PAGE_SIZE, int(fields[2]) * _PAGE_SIZE
    return Resident(max(0, resident - shared), shared)


def own_share(pid: int) -> int:
    """Bytes, of which what it shares with others counts in parts (PSS); to find out takes a while."""
    found = _pss(_read(f"/proc/{pid}/smaps_rollup"))
    return int(found.group(1)) * 1024 if found else sum(resident_memory(pid))


def biggest_renderer(pids: list[int]) -> int:
    """The process with a page in it that takes most; 0 if there is none."""
    renderers = [pid for pid in pids if _RENDERER in _read(f"/proc/{pid}/cmdline")]
    return max(renderers, key=lambda pid: sum(resident_memory(pid)), default=0)


def parent_of(pid: int) -> int:
    """0 if it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


class CpuOfProcesses:
    """Time on the processor that processes have used since they were last looked at."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # in ticks

    def take(self, pids: Iterable[int]) -> int:
        """Microseconds of all of these. What one has used after the last look is lost when it ends."""
        found = {pid: int(fields[11]) + int(fields[12]) for pid in pids if (fields := _stat(pid))}
        ticks = sum(max(0, used - self._known.get(pid, 0)) for pid, used in found.items())
        self._known = {pid: used for pid, used in self._known.items() if Path(f"/proc/{pid}").exists()} | found
        return ticks * 1_000_000 // _TICKS_PER_SECOND


def _stat(pid: int) -> list[bytes]:
    """What follows its name, in which anything may be."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of times a minute
            return file.read()
    except OSError:
        return b""
