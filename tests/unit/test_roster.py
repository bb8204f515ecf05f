"""The roster: which runs a member of the fleet asks for work of."""

from __future__ import annotations

from typing import Any

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable
from shoal.worker.roster import EVERY, Roster


class Runs:
    """A queue that knows runs and nothing else."""

    def __init__(self, *runs: Run) -> None:
        self.list = list(runs)
        self.stats_of: dict[int, Stats] = {}
        self.looks = 0
        self.away = False
        self.now = 0.0

    async def runs(self, **_: Any) -> list[Run]:
        self.looks += 1
        if self.away:
            raise QueueUnavailable("gone")
        return list(self.list)

    async def stats(self, run: int) -> Stats:
        return self.stats_of.get(run, Stats())


def run(number: int, scraper: str = "books", **spec: Any) -> Run:
    return Run(number, f"r{number}", scraper, "k", "running", 0, 0, spec=spec)


def roster(runs: Runs, *names: str, **options: Any) -> Roster:
    def fits(it: Run) -> bool:
        return it.scraper in (names or ("books",)) and it.spec.get("mode") != "single"

    queue: Any = runs
    return Roster(queue, fits, clock=lambda: runs.now, names=names, **options)


async def test_work_is_asked_for_by_scraper_so_that_new_runs_need_not_be_known() -> None:
    runs = Runs(run(1), run(2, "foreign"))
    assert await roster(runs, "books").serves(fresh=True) == ("books",)


async def test_run_that_is_not_ours_under_our_name_makes_us_ask_for_runs_one_by_one() -> None:
    runs = Runs(run(1), run(2, mode="single"))
    ours = roster(runs, "books")
    assert await ours.serves(fresh=True) == ("r1",)
    runs.list.pop()
    runs.now += EVERY + 1
    assert await ours.serves(fresh=False) == ("books",)


async def test_refused_run_is_not_asked_for_and_others_are() -> None:
    runs = Runs(run(1), run(2))
    ours = roster(runs, "books")
    await ours.serves(fresh=True)
    ours.refuse(runs.list[0])
    assert await ours.serves(fresh=False) == ("r2",)
    ours.refuse(run(3))  # one that was not even on the list
    assert await ours.serves(fresh=False) == ("r2",)


async def test_list_is_looked_at_now_and_then_and_at_once_when_there_is_nothing_to_do() -> None:
    runs = Runs(run(1))
    ours = roster(runs)
    assert await ours.serves(fresh=False) == ("r1",)
    runs.list.append(run(2))
    runs.now += 0.1
    assert await ours.serves(fresh=False) == ("r1",)
    assert await ours.serves(fresh=True) == ("r1", "r2")
    assert runs.looks == 2


async def test_queue_that_is_away_leaves_the_list_as_it_was() -> None:
    runs = Runs(run(1))
    ours = roster(runs)
    await ours.serves(fresh=True)
    runs.away, runs.now = True, 100.0
    assert await ours.serves(fresh=True) == ("r1",)


async def test_run_with_too_many_records_on_their_way_to_the_store_waits() -> None:
    runs = Runs(run(1), run(2))
    runs.stats_of[1] = Stats(records=100, trimmed=10)
    ours = roster(runs, "books", waiting_limit=50)
    assert await ours.serves(fresh=True) == ("r2",)
    runs.stats_of[1] = Stats(records=100, trimmed=60)
    runs.now += 10
    assert await ours.serves(fresh=True) == ("books",)


async def test_ended_runs_are_told_of() -> None:
    runs, gone = Runs(run(1), run(2)), []
    ours = roster(runs, ended=gone.append)
    await ours.serves(fresh=True)
    runs.list.pop(0)
    runs.now += 10
    await ours.serves(fresh=True)
    assert gone == [1]
