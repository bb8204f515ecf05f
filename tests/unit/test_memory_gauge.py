"""What some processes take together: never less than they do by more than is said, and measured seldom."""

from __future__ import annotations

import pytest

from shoal.fetch.browser.memory_gauge import MemoryGauge
from shoal.fetch.browser.process_tree import Resident

LIMIT = 500


class Processes:
    """By pid: private and shared bytes; how much of the shared ones is a process's own share."""

    def __init__(self) -> None:
        self.resident: dict[int, Resident] = {}
        self.shares: dict[int, int] = {}
        self.measured = 0
        self.gauge = MemoryGauge(lambda pid: self.resident.get(pid, Resident(0, 0)), self._measure)

    def _measure(self, pid: int) -> int:
        self.measured += 1
        return self.shares[pid]

    def run(self, pid: int, private: int, shared: int, share: int) -> None:
        self.resident[pid] = Resident(private, shared)
        self.shares[pid] = private + share

    def total(self, limit: int = LIMIT) -> int:
        return self.gauge.total(sorted(self.resident), limit)


@pytest.fixture
def processes() -> Processes:
    """Three that share 200 bytes: together 300, and 700 for whoever counts what they share thrice."""
    found = Processes()
    for pid, private in ((1, 50), (2, 25), (3, 25)):
        found.run(pid, private, 200, 200 // 3)
    return found


def test_it_is_measured_once_where_nothing_grows(processes: Processes) -> None:
    assert [processes.total() for _ in range(5)] == [298] * 5
    assert processes.measured == 3


def test_what_may_not_be_too_much_is_not_measured(processes: Processes) -> None:
    assert processes.total(limit=700) == 300 + 400  # nobody knows what is shared
    assert processes.measured == 0


@pytest.mark.parametrize(
    ("resident", "total"),
    [
        (Resident(125, 200), 298 + 100),
        (Resident(25, 300), 298 + 100),  # shared memory may be somebody's, too
        (Resident(0, 0), 298),  # what is given back counts when it is measured again
    ],
)
def test_growth_is_added_without_measuring(processes: Processes, resident: Resident, total: int) -> None:
    processes.total()
    processes.resident[3] = resident
    assert processes.total() == total
    assert processes.measured == 3


def test_a_new_process_counts_with_its_own_and_what_it_shares_beyond_the_usual(processes: Processes) -> None:
    processes.total()
    processes.run(4, 30, 260, 60)
    assert processes.total() == 298 + 30 + 60
    assert processes.measured == 3


def test_of_a_process_that_has_ended_only_what_was_its_own_is_gone(processes: Processes) -> None:
    processes.total()
    del processes.resident[3]
    assert processes.total() == 298 - 25


def test_what_may_be_too_much_is_measured_exactly_every_time(processes: Processes) -> None:
    processes.total()
    processes.run(3, 400, 200, 66)
    assert processes.total() == 50 + 25 + 400 + 66 * 3
    assert processes.total() == 50 + 25 + 400 + 66 * 3
    assert processes.measured == 9
