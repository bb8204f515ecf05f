"""ProcessTree: the processes below one, and the memory they take, as Linux counts it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

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


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of times a minute
            return file.read()
    except OSError:
        return b""
