"""Whatever keeps a host below the pace that was asked for is told, with its reason, and nothing else is."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from fake_clock import FakeClock

from shoal.cli.progress import PlainUi
from shoal.config.load import Settings
from shoal.core.lane import INDEFINITELY, LaneState, Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import LaneChange
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.host_limits import HostLimit, asked_spacing, find_host_limits, host_limit
from shoal.runs.progress import RunProgress
from shoal.sources.start_task import start_tasks
from shoal.view.documents import host_document
from shoal.view.formatting import describe_reason, format_host_limit
from shoal.view.status import gather_status, host_reason, limiting_factors

NOW = 1_000_000_000
HOST = "shop.example"


def lane(spacing: float = 0.0, **more: Any) -> LaneState:
    whole = {"next_at": 2 * NOW, "requested": spacing, "learned": 0.0, "max_in_flight": 2, "in_flight": 1, "ready": 9}
    return LaneState(name=HOST, spacing=spacing, **whole | more)


TABLE: tuple[tuple[LaneState, float, str], ...] = (
    (lane(0.05), 0.05, ""),
    (lane(0.05), 1.0, ""),
    (lane(1.0, learned=1.0, requested=0.05, reason="429"), 0.05, "shop.example at 1 page/s, not 20 pages/s: 429"),
    (lane(1.0, learned=1.0, requested=0.05), 0.05,
     "shop.example at 1 page/s, not 20 pages/s: learned from its answers"),
    (lane(5.0, learned=5.0, requested=0.0, reason="crawl-delay"), 0.0,
     "shop.example at 1 page every 5 s: Crawl-delay in its robots.txt"),
    (lane(2.0, spacing_override=2.0, reason="429"), 1.0,
     "shop.example at 1 page every 2 s, not 1 page/s: a person set that;"
     " shoal hosts set shop.example --reset removes it"),
    (lane(1.0, held_until=NOW + 30_000_000, reason="429, Retry-After: 30"), 1.0,
     "slowed down for 30 s: shop.example: 429, Retry-After: 30"),
    (lane(1.0, held_until=NOW + round(INDEFINITELY * 1e6), parked=True, reason="their sale"), 1.0,
     "parked until released: shop.example: their sale"),
    (lane(1.0, in_flight=2, next_at=NOW - 1), 1.0, "shop.example: 2 requests in flight, its limit (--in-flight)"),
    (lane(1.0, in_flight=2), 1.0, ""),  # its next slot is still to come: the pace decides
)  # fmt: skip


@pytest.mark.parametrize(("found", "asked", "words"), TABLE)
def test_what_holds_a_host_back_is_told_with_its_reason(found: LaneState, asked: float, words: str) -> None:
    limit = host_limit(found, asked, NOW)
    assert (format_host_limit(limit, NOW) if limit else "") == words


ASKED: tuple[tuple[dict[str, Any], str, float], ...] = (
    ({"rate": 20}, HOST, 0.05),
    ({"delay": 3}, HOST, 3.0),
    ({"rate": 4, "delay": 9}, HOST, 0.25),
    ({}, HOST, 1.0),
    ({}, "127.0.0.1:8808", 0.0),
    ({"delay": 1}, "127.0.0.1:8808", 1.0),
    ({"rate": "fast", "delay": None}, HOST, 1.0),  # whoever writes to the queue may have made it up
)


@pytest.mark.parametrize(("settings", "host", "spacing"), ASKED)
def test_what_a_run_asks_of_a_host_is_in_its_settings(settings: dict[str, Any], host: str, spacing: float) -> None:
    assert asked_spacing(Run(1, "r", "s", "k", "running", 0, 0, spec={"settings": settings}), host) == spacing


async def started(queue: SqliteQueue, name: str, **settings: float) -> Run:
    run = await queue.start_run(NewRun("s", name, name, {"mode": "distributed", "settings": settings}))
    tasks, _ = start_tasks(f"http://{HOST}/{n}" for n in range(20))
    await queue.add(run.id, tasks, {HOST: Pace(asked_spacing(run, HOST), 2)})
    return run


async def limits(queue: SqliteQueue, run: Run) -> list[str]:
    now = await queue.now()
    found = await find_host_limits(queue, Settings(), run, await queue.lanes(run=run.id), now)
    return [format_host_limit(limit, now) for limit in found]


async def test_a_slower_pace_that_an_unfinished_run_asks_for_is_explained(queue: SqliteQueue) -> None:
    old = await started(queue, "old")  # at one page a second, as every run is that asks for nothing else
    new = await started(queue, "new", rate=20.0)
    assert await limits(queue, new) == ["shop.example at 1 page/s, not 20 pages/s: run old asks for that"]
    assert await limits(queue, old) == []
    await queue.set_run(old.id, "pause")
    (words,) = await limits(queue, new)
    assert words.endswith("run old asks for that; nobody works on it, and shoal cancel old ends it")
    await queue.set_run(old.id, "cancel")
    assert await limits(queue, new) == []
    assert (await queue.lanes(names=(HOST,)))[0].spacing == pytest.approx(0.05)


async def test_a_reason_that_holds_no_more_is_not_told(queue: SqliteQueue) -> None:
    await started(queue, "old")
    new = await started(queue, "new", rate=20.0)
    # What a worker says that tries to go faster, and cannot: another run asks for this pace.
    await queue.set_lane(LaneChange(HOST, spacing=0.8, reason="speeding up again"))
    found = await gather_status(queue, Settings(), new, rate=1.0)
    (shown,) = found.lanes
    assert shown.reason == "speeding up again"
    assert (describe_reason(shown), host_document(shown)["reason"]) == ("", "")
    assert host_reason(found, shown) == "run old asks for that"
    await queue.set_lane(LaneChange(HOST, spacing=4.0, reason="429"))
    found = await gather_status(queue, Settings(), new, rate=1.0)
    assert host_reason(found, found.lanes[0]) == "429"


async def test_status_tells_what_holds_a_host_back(queue: SqliteQueue) -> None:
    await started(queue, "old")
    new = await started(queue, "new", rate=20.0)
    found = await gather_status(queue, Settings(), new, rate=1.0)
    served = type(found)(**{name: getattr(found, name) for name in found.__struct_fields__} | {"workers": [object()]})
    assert ("slower", "shop.example at 1 page/s, not 20 pages/s: run old asks for that") in limiting_factors(served)


def test_the_progress_line_has_the_reason() -> None:
    stream, clock = io.StringIO(), FakeClock(0.0)
    ui = PlainUi(stream, clock)
    slow = lane(1.0, learned=1.0, requested=0.05, reason="429")
    limit = HostLimit(slow, "learned", 0.05)
    ui.update(RunProgress(Stats(seen=9, ready=9), (slow,), NOW, limits=(limit,)))
    assert re.search(r"· shop\.example at 1 page/s, not 20 pages/s: 429 ·", stream.getvalue())
