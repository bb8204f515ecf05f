"""Heat: which hosts failed when, as a map of host by time; of the hosts that were busiest at each moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

import msgspec

from shoal.control.history import Series
from shoal.control.sample import HOSTS as HOSTS
from shoal.control.sample import HostPoint
from shoal.view.series import STEPS

ROWS, COLUMNS = 20, 24
FEWEST = 6  # columns, where there is nothing older to show
LEVELS = (0.0, 0.02, 0.1, 0.25, 0.5)  # a share above so much is darker


class Cell(msgspec.Struct, gc=False):
    """What was tried at a host in a stretch of time."""

    tried: int = 0
    failed: int = 0

    @property
    def level(self) -> int:
        """0 where nothing failed, up to 5."""
        share = self.failed / self.tried if self.tried else 0.0
        return sum(share > bound for bound in LEVELS)

    @property
    def percent(self) -> str:
        """The share that failed; never 0 where something did, nor 100 where something did not."""
        if not self.failed or self.failed == self.tried:
            return "100" if self.failed else "0"
        return str(min(99, max(1, round(100 * self.failed / self.tried))))


class Row(msgspec.Struct):
    host: str
    cells: list[Cell | None]  # None: not among the busiest then
    whole: Cell


class Heat(msgspec.Struct):
    times: list[int]  # seconds; each stretch begins then
    rows: list[Row]  # the most failures first
    hosts: int  # so many are known of


def heat(series: Series, hours: float, *, like: str = "", rows: int = ROWS, columns: int = COLUMNS) -> Heat:
    """Hosts whose name contains `like`. Its cost is that of the samples, however many hosts there are."""
    step = next((one for one in STEPS if hours * 3600 / one <= columns), STEPS[-1])
    wide = max(1, round(hours * 3600 / step))
    first = int(series.now) // step - wide + 1
    samples = [(at, one.hosts) for one in series.samples if 0 <= (at := one.at // step - first) < wide]
    tried, failed = dict[str, int](), dict[str, int]()
    for _, hosts in samples:
        for name, point in hosts.items():
            if point.failed:
                failed[name] = failed.get(name, 0) + point.failed
            if point.done or point.failed:
                tried[name] = tried.get(name, 0) + point.done + point.failed
    known = [name for name in tried if like in name] if like else list(tried)
    worst = nsmallest(rows, known, key=lambda name: (-failed.get(name, 0), -tried[name], name))
    made = [Row(name, _cells(samples, name, wide), Cell(tried[name], failed.get(name, 0))) for name in worst]
    begun = min((at for row in made for at, cell in enumerate(row.cells) if cell), default=0)
    begun = max(0, min(begun, wide - FEWEST))
    for row in made:
        del row.cells[:begun]
    return Heat([(first + at) * step for at in range(begun, wide)], made, len(known))


def _cells(samples: Sequence[tuple[int, Mapping[str, HostPoint]]], name: str, wide: int) -> list[Cell | None]:
    cells: list[Cell | None] = [None] * wide
    for at, hosts in samples:
        if (point := hosts.get(name)) is not None and (point.done or point.failed):
            cell = cells[at] = cells[at] or Cell()
            cell.tried += point.done + point.failed
            cell.failed += point.failed
    return cells
