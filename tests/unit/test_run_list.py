"""The run list: from which runs a fleet worker claims tasks."""

from __future__ import annotations

from typing import Any

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable
from shoal.worker.run_list import REFRESH_INTERVAL, RunList


class FakeRunQueue:
    """A queue that knows runs and nothing else."""

    def __init__(self, *runs: Run) -> None:
        self.list = list(runs)
        self.stats_of: dict[int, Stats] = {}
        self.list_calls = 0
        self.away = False
        self.now = 0.0

    async def runs(self, **_: Any) -> list[Run]:
        self.list_calls += 1
        if self.away:
            raise QueueUnavailable("gone")
        return list(self.list)

    async def stats(self, run: int) -> Stats:
        return self.stats_of.get(run, Stats())


def run(number: int, scraper: str = "books", **spec: Any) -> Run:
    return Run(number, f"r{number}", scraper, "k", "running", 0, 0, spec=spec)


def run_list(runs: FakeRunQueue, *names: str, **options: Any) -> RunList:
    def fits(it: Run) -> bool:
        return it.scraper in (names or ("books",)) and it.spec.get("mode") != "single"

    queue: Any = runs
    return RunList(queue, fits, clock=lambda: runs.now, scraper_names=names, **options)


async def test_work_is_asked_for_by_scraper_so_that_new_runs_need_not_be_known() -> None:
    runs = FakeRunQueue(run(1), run(2, "foreign"))
    assert await run_list(runs, "books").names_to_claim(fresh=True) == ("books",)


async def test_run_that_is_not_ours_under_our_name_makes_us_ask_for_runs_one_by_one() -> None:
    runs = FakeRunQueue(run(1), run(2, mode="single"))
    ours = run_list(runs, "books")
    assert await ours.names_to_claim(fresh=True) == ("r1",)
    runs.list.pop()
    runs.now += REFRESH_INTERVAL + 1
    assert await ours.names_to_claim(fresh=False) == ("books",)


async def test_refused_run_is_not_asked_for_and_others_are() -> None:
    runs = FakeRunQueue(run(1), run(2))
    ours = run_list(runs, "books")
    await ours.names_to_claim(fresh=True)
    ours.refuse(runs.list[0])
    assert await ours.names_to_claim(fresh=False) == ("r2",)
    ours.refuse(run(3))  # one that was not even on the list
    assert await ours.names_to_claim(fresh=False) == ("r2",)


async def test_list_is_looked_at_now_and_then_and_at_once_when_there_is_nothing_to_do() -> None:
    runs = FakeRunQueue(run(1))
    ours = run_list(runs)
    assert await ours.names_to_claim(fresh=False) == ("r1",)
    runs.list.append(run(2))
    runs.now += 0.1
    assert await ours.names_to_claim(fresh=False) == ("r1",)
    assert await ours.names_to_claim(fresh=True) == ("r1", "r2")
    assert runs.list_calls == 2


async def test_queue_that_is_away_leaves_the_list_as_it_was() -> None:
    runs = FakeRunQueue(run(1))
    ours = run_list(runs)
    await ours.names_to_claim(fresh=True)
    runs.away, runs.now = True, 100.0
    assert await ours.names_to_claim(fresh=True) == ("r1",)


async def test_run_with_too_many_records_on_their_way_to_the_store_waits() -> None:
    runs = FakeRunQueue(run(1), run(2))
    runs.stats_of[1] = Stats(records=100, trimmed=10)
    ours = run_list(runs, "books", store_backlog_limit=50)
    assert await ours.names_to_claim(fresh=True) == ("r2",)
    runs.stats_of[1] = Stats(records=100, trimmed=60)
    runs.now += 10
    assert await ours.names_to_claim(fresh=True) == ("books",)


async def test_ended_runs_are_told_of() -> None:
    runs, gone = FakeRunQueue(run(1), run(2)), []
    ours = run_list(runs, on_run_ended=gone.append)
    await ours.names_to_claim(fresh=True)
    runs.list.pop(0)
    runs.now += 10
    await ours.names_to_claim(fresh=True)
    assert gone == [1]
