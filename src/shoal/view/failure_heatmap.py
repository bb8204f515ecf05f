"""The failure heatmap: which hosts failed when, for the hosts that were busiest at each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

import msgspec

from shoal.control.history import Series
from shoal.control.history_sample import MAX_HOSTS as MAX_HOSTS
from shoal.control.history_sample import HostPoint
from shoal.view.series import STEPS

MAX_ROWS, MAX_COLUMNS = 20, 24
MIN_COLUMNS = 6  # columns, where there is nothing older to show
LEVEL_BOUNDS = (0.0, 0.02, 0.1, 0.25, 0.5)  # a share above so much is darker


class HeatmapCell(msgspec.Struct, gc=False):
    """What was tried at a host in a stretch of time."""

    tried: int = 0
    failed: int = 0  # not for a mistake in the code that read the page: its host had answered

    @property
    def level(self) -> int:
        """0 where nothing failed, up to 5."""
        share = self.failed / self.tried if self.tried else 0.0
        return sum(share > bound for bound in LEVEL_BOUNDS)

    @property
    def percent(self) -> str:
        """The share that failed; never 0 where something did, nor 100 where something did not."""
        if not self.failed or self.failed == self.tried:
            return "100" if self.failed else "0"
        return str(min(99, max(1, round(100 * self.failed / self.tried))))


class HeatmapRow(msgspec.Struct):
    host: str
    cells: list[HeatmapCell | None]  # None: not among the busiest then
    total: HeatmapCell


class FailureHeatmap(msgspec.Struct):
    times: list[int]  # seconds; each stretch begins then
    rows: list[HeatmapRow]  # the most failures first
    hosts: int  # so many are known of


def build_heatmap(
    series: Series, hours: float, *, like: str = "", rows: int = MAX_ROWS, columns: int = MAX_COLUMNS
) -> FailureHeatmap:
    """Hosts whose name contains `like`. Its cost is that of the samples, however many hosts there are."""
    step = next((one for one in STEPS if hours * 3600 / one <= columns), STEPS[-1])
    wide = max(1, round(hours * 3600 / step))
    first = int(series.now) // step - wide + 1
    samples = [(at, one.hosts) for one in series.samples if 0 <= (at := one.at // step - first) < wide]
    tried, failed = dict[str, int](), dict[str, int]()
    for _, hosts in samples:
        for name, point in hosts.items():
            if hosts_own := point.failed - point.code_errors:
                failed[name] = failed.get(name, 0) + hosts_own
            if point.done or point.failed:
                tried[name] = tried.get(name, 0) + point.done + point.failed
    known = [name for name in tried if like in name] if like else list(tried)
    worst = nsmallest(rows, known, key=lambda name: (-failed.get(name, 0), -tried[name], name))
    made = [
        HeatmapRow(name, _cells(samples, name, wide), HeatmapCell(tried[name], failed.get(name, 0))) for name in worst
    ]
    begun = min((at for row in made for at, cell in enumerate(row.cells) if cell), default=0)
    begun = max(0, min(begun, wide - MIN_COLUMNS))
    for row in made:
        del row.cells[:begun]
    return FailureHeatmap([(first + at) * step for at in range(begun, wide)], made, len(known))


def _cells(samples: Sequence[tuple[int, Mapping[str, HostPoint]]], name: str, wide: int) -> list[HeatmapCell | None]:
    cells: list[HeatmapCell | None] = [None] * wide
    for at, hosts in samples:
        if (point := hosts.get(name)) is not None and (point.done or point.failed):
            cell = cells[at] = cells[at] or HeatmapCell()
            cell.tried += point.done + point.failed
            cell.failed += point.failed - point.code_errors
    return cells
