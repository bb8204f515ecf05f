"""The failure heatmap: shares by host and time, the worst hosts first, and no more than fit on a page."""

from __future__ import annotations

import pytest

from shoal.control.history import Series
from shoal.control.history_sample import HostPoint, Sample
from shoal.view.failure_heatmap import MAX_COLUMNS, MAX_ROWS, MIN_COLUMNS, HeatmapCell, build_heatmap

NOW = 1_000_000 * 3600


def series(*samples: tuple[int, dict[str, tuple[int, int]]]) -> Series:
    """Samples as (seconds ago, {host: (done, failed)})."""
    made = [Sample(NOW - ago, hosts={name: HostPoint(*pair) for name, pair in hosts.items()}) for ago, hosts in samples]
    return Series(NOW, tuple(made))


@pytest.mark.parametrize(
    ("tried", "failed", "percent", "level"),
    [
        (100, 0, "0", 0),
        (1_000, 1, "1", 1),
        (100, 2, "2", 1),
        (100, 3, "3", 2),
        (100, 10, "10", 2),
        (4, 1, "25", 3),
        (2, 1, "50", 4),
        (1_000, 999, "99", 5),
        (7, 7, "100", 5),
    ],
)
def test_a_share_is_a_number_and_a_shade(tried: int, failed: int, percent: str, level: int) -> None:
    cell = HeatmapCell(tried, failed)
    assert (cell.percent, cell.level) == (percent, level)


def test_attempts_are_summed_by_host_and_stretch_of_time() -> None:
    found = build_heatmap(series((400, {"a": (9, 1)}), (10, {"a": (1, 0)}), (20, {"a": (0, 1), "b": (5, 0)})), 1)
    assert [(row.host, row.total) for row in found.rows] == [("a", HeatmapCell(12, 2)), ("b", HeatmapCell(5, 0))]
    assert [cell for cell in found.rows[0].cells if cell] == [HeatmapCell(10, 1), HeatmapCell(2, 1)]
    assert found.rows[1].cells.count(None) == len(found.times) - 1
    assert all(len(row.cells) == len(found.times) for row in found.rows)


def test_a_column_begins_where_the_one_before_ends() -> None:
    found = build_heatmap(series((23 * 3600, {"a": (1, 0)}), (0, {"a": (1, 0)})), 24)
    steps = {after - before for before, after in zip(found.times, found.times[1:], strict=False)}
    assert steps == {3600} and len(found.times) == MAX_COLUMNS
    assert found.times[-1] <= NOW < found.times[-1] + 3600
    assert found.rows[0].cells[0] == found.rows[0].cells[-1] == HeatmapCell(1, 0)


def test_what_is_older_than_the_first_attempt_is_left_out() -> None:
    assert len(build_heatmap(series((10, {"a": (1, 0)})), 6).times) == MIN_COLUMNS
    assert len(build_heatmap(series(), 6).times) <= MAX_COLUMNS


def test_older_samples_and_hosts_without_attempts_do_not_count() -> None:
    found = build_heatmap(series((7200, {"a": (5, 5)}), (10, {"b": (0, 0)})), 1)
    assert (found.rows, found.hosts) == ([], 0)


def test_of_many_hosts_the_worst_are_shown() -> None:
    many = {f"h{number:04}": (100, number) for number in range(1_000)}
    found = build_heatmap(series((10, many)), 1)
    assert (len(found.rows), found.hosts) == (MAX_ROWS, 1_000)
    assert [row.host for row in found.rows[:2]] == ["h0999", "h0998"]


def test_hosts_are_filtered_by_a_part_of_their_name() -> None:
    found = build_heatmap(series((10, {"shop.example": (1, 0), "news.example": (1, 0)})), 1, like="shop")
    assert ([row.host for row in found.rows], found.hosts) == (["shop.example"], 1)


def test_mistakes_in_the_code_that_reads_pages_are_not_held_against_their_host() -> None:
    point = HostPoint(done=2, failed=8, code_errors=7)
    made = build_heatmap(Series(NOW, (Sample(NOW - 60, hosts={"a.test": point}),)), 1.0)
    assert [(row.total.tried, row.total.failed) for row in made.rows] == [(10, 1)]
    assert [(cell.tried, cell.failed) for cell in made.rows[0].cells if cell] == [(10, 1)]
