"""When a run ends, and which host decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.config.load import Settings
from shoal.core.forecast import Forecast, forecast
from shoal.core.lane import INDEFINITELY, LaneState
from shoal.core.run import NewRun
from shoal.core.stats import Stats
from shoal.core.task import Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.discovery import Discovery
from shoal.sources.start_task import start_task
from shoal.view.formatting import format_host_forecast, format_time_left
from shoal.view.status import gather_status


def lane(name: str, ready: int, spacing: float, held: int = 0) -> LaneState:
    return LaneState(name, 0, spacing, spacing, 0.0, 2, 0, ready, held_until=held)


SLOW, QUICK, UNLIMITED_PACE = lane("slow", 100, 2.0), lane("quick", 10, 1.0), lane("free", 100, 0.0)


@pytest.mark.parametrize(
    ("stats", "lanes", "rate", "max_pages", "seconds", "decided_by"),
    [
        (Stats(), [], 0.0, 0, 0.0, ""),
        (Stats(ready=100), [UNLIMITED_PACE], 0.0, 0, None, ""),
        (Stats(ready=100), [UNLIMITED_PACE], 10.0, 0, 10.0, ""),
        (Stats(ready=110), [SLOW, QUICK], 0.0, 0, 200.0, "slow"),
        (Stats(ready=110), [SLOW, QUICK], 1.5, 0, 200.0, "slow"),
        (Stats(ready=20), [QUICK, lane("same", 10, 1.0)], 0.0, 0, 10.0, ""),
        (Stats(ready=10_000), [QUICK, UNLIMITED_PACE], 10.0, 0, 1000.0, ""),
        (Stats(ready=1), [lane("held", 1, 1.0, held=30_000_000)], 0.0, 0, 31.0, "held"),
        (Stats(ready=2), [QUICK, lane("until released", 1, 1.0, held=int(INDEFINITELY * 1e6))], 1.0, 0, None, ""),
        (Stats(ready=10), [QUICK, lane("nothing waits", 0, 1.0, held=int(INDEFINITELY * 1e6))], 1.0, 0, 10.0, "quick"),
        (Stats(ready=100, done=40), [SLOW], 0.0, 50, 20.0, "slow"),
        (Stats(ready=100, done=50), [SLOW], 0.0, 50, 0.0, ""),
    ],
)
def test_forecast(
    stats: Stats, lanes: list[LaneState], rate: float, max_pages: int, seconds: float | None, decided_by: str
) -> None:
    found = forecast(stats, lanes, rate=rate, now=0, max_pages=max_pages)
    assert (found.seconds, found.lane) == (seconds, decided_by)


NOW = 1_000_000_000_000


def growing(stats: Stats, *, rate: float = 1.0, ago: float | None = None, max_pages: int = 0, **more: bool) -> bool:
    found_at = 0 if ago is None else NOW - round(ago * 1e6)
    return forecast(stats, [], rate=rate, now=NOW, max_pages=max_pages, found_at=found_at, **more).at_least


@pytest.mark.parametrize(
    ("stats", "more", "at_least"),
    [
        (Stats(ready=10, done=5), {}, False),  # a list: nothing was ever found
        (Stats(ready=10, done=5), {"ago": 1.0}, True),
        (Stats(ready=10, done=5), {"ago": 31.0}, False),
        (Stats(ready=10, done=5), {"ago": 31.0, "rate": 0.1}, True),  # a slow run finds something now and then
        (Stats(ready=10, done=5), {"ago": 201.0, "rate": 0.1}, False),
        (Stats(ready=1), {}, True),  # nobody knows what the first page leads to
        (Stats(ready=10, done=5), {"seeding": True}, True),
        (Stats(done=5), {"seeding": True}, True),
        (Stats(ready=10, done=5), {"ago": 1.0, "max_pages": 15}, False),  # more will not be fetched
        (Stats(ready=10, done=5), {"ago": 1.0, "max_pages": 16}, True),
    ],
)
def test_time_left_is_no_certain_figure_while_pages_are_being_found(
    stats: Stats, more: dict[str, Any], at_least: bool
) -> None:
    assert growing(stats, **more) is at_least


def test_a_figure_that_can_grow_is_told_as_the_least() -> None:
    known, open_ = Forecast(90.0), Forecast(90.0, "slow", 45, 2.0, at_least=True)
    assert format_time_left(known) == "about 1:30 left"
    assert format_time_left(open_) == "at least 1:30 left"
    assert format_host_forecast(open_).endswith("= at least 1:30")


async def test_a_crawl_says_when_it_last_found_a_page(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "q.db"))
    try:
        run = await queue.start_run(NewRun("books", "k", name="r"))
        await queue.add(run.id, [start_task(f"http://h.test/{n}") for n in range(3)], {})
        discovery = Discovery(queue)
        stats = await queue.stats(run.id)
        assert await discovery.last_at(run, stats) == 0, "what it began with was not found"
        (first, *_) = await queue.list_tasks(run.id)
        found = msgspec.structs.replace(start_task("http://h.test/found"), parent=first.id, depth=1)
        await queue.add(run.id, [found], {})
        claim = await queue.claim("w", 1)
        await queue.settle([Outcome(task=claim.tasks[0].id, lease=claim.tasks[0].lease, result="done")])
        stats = await queue.stats(run.id)
        at = await discovery.last_at(run, stats)
        assert 0 <= await queue.now() - at < 600_000_000
        assert (await gather_status(queue, Settings(), run)).forecast.at_least
        assert await Discovery(queue).last_at(run, stats) == at
    finally:
        await queue.close()
