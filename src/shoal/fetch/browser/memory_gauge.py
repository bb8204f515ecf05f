"""MemoryGauge: the memory that some processes take together, looked at often and measured seldom.

To measure exactly (PSS, where what they share counts once) stops each process for milliseconds. What they take in any
case is cheap to read, so that between two measurements only what has grown is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.fetch.browser.process_tree import Resident, own_share, resident_memory

Look = Callable[[int], Resident]
Measure = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class _Measured:
    share: int  # bytes
    seen: Resident  # just then


class MemoryGauge:
    def __init__(self, look: Look = resident_memory, measure: Measure = own_share) -> None:
        self._look = look
        self._measure = measure
        self._measured: dict[int, _Measured] = {}

    def total(self, pids: Sequence[int], limit: int) -> int:
        """Bytes: exactly where it may be more than the limit, and otherwise not less than they take."""
        resident = {pid: self._look(pid) for pid in pids}
        bound = self._bound(resident)
        if bound <= limit:
            return bound
        self._measured = {pid: _Measured(self._measure(pid), seen) for pid, seen in resident.items()}
        return sum(one.share for one in self._measured.values())

    def _bound(self, resident: dict[int, Resident]) -> int:
        measured = self._measured
        # A new process has the same program and libraries in memory as those before it.
        usual = max((one.seen.shared for one in measured.values()), default=0)
        bound = 0
        for pid, now in resident.items():
            before = measured.get(pid)
            if before is None:
                bound += now.private + max(0, now.shared - usual)
            else:
                bound += before.share + max(0, now.private - before.seen.private)
                bound += max(0, now.shared - before.seen.shared)
        for pid in measured.keys() - resident.keys():
            gone = measured[pid]
            bound += max(0, gone.share - gone.seen.private)  # what it shared may now be the others' alone
        return bound
