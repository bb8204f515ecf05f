"""Runs: found by what people type of them, and never finished before everything was added."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.errors import RunNameTaken, UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs import identity
from shoal.runs.identity import (
    find_or_start,
    finish_seeding,
    is_seeding,
    is_single_process,
    resolve_run,
    run_code_version,
    run_name,
)

NAMES = {"20260215_120000_k3f": "books", "20260215_120001_abc": "shops", "7KQ2A": "books"}


def test_names_are_utc_with_a_suffix_in_lower_case() -> None:
    names = {run_name() for _ in range(50)}
    assert len(names) > 45
    assert all(re.fullmatch(r"20\d{6}_\d{6}_[2-9a-z]{3}", name) for name in names)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("20260215_120000_k3f", "20260215_120000_k3f"),
        ("20260215_120001", "20260215_120001_abc"),
        ("k3f", "20260215_120000_k3f"),
        ("K3F", "20260215_120000_k3f"),
        ("7kq", "7KQ2A"),
        ("books", "7KQ2A"),  # the newest of that scraper
        ("shops", "20260215_120001_abc"),
        ("3f", None),
        ("nothing", None),
    ],
)
async def test_a_run_is_found_by_its_beginning_its_end_or_its_scraper(
    queue: Queue, typed: str, meant: str | None
) -> None:
    for name, scraper in NAMES.items():
        await queue.start_run(NewRun(scraper, name, name))
    found = await resolve_run(queue, typed)
    assert (found.name if found else None) == meant


async def test_what_could_be_several_runs_is_refused_with_their_names(queue: Queue) -> None:
    for name, scraper in NAMES.items():
        await queue.start_run(NewRun(scraper, name, name))
    with pytest.raises(UsageError, match="2026 could be any of 20260215_120001_abc, 20260215_120000_k3f"):
        await resolve_run(queue, "2026")


class Watched:
    """A queue that writes down what it is asked; all else is real."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._queue, name)


async def test_a_name_that_another_run_of_this_second_has_is_left_to_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that one is being seeded or not: a thousand starts a second meet now and then."""
    names = iter(["n1", "n1", "n2", "n2", "n3"])
    monkeypatch.setattr(identity, "run_name", lambda *_: next(names))
    first, _ = await find_or_start(queue, NewRun("books", "1"), fresh=False)
    second, _ = await find_or_start(queue, NewRun("books", "2"), fresh=False)  # n1 is being seeded
    await finish_seeding(queue, second.name)
    third, found = await find_or_start(queue, NewRun("books", "3"), fresh=False)  # n2 was
    assert [first.name, second.name, third.name, found] == ["n1", "n2", "n3", "new"]
    assert [await is_seeding(queue, run) for run in (first, second, third)] == [True, False, True]


@pytest.mark.parametrize("seeding", [True, False])
async def test_a_given_name_that_is_taken_leaves_the_other_run_as_it_is(queue: Queue, seeding: bool) -> None:
    first, _ = await find_or_start(queue, NewRun("books", "1", "mine"), fresh=False)
    if not seeding:
        await finish_seeding(queue, first.name)
    with pytest.raises(RunNameTaken, match="called mine already"):
        await find_or_start(queue, NewRun("books", "2", "mine"), fresh=False)
    assert await is_seeding(queue, first) == seeding


async def test_a_new_run_is_marked_before_it_is_there_and_until_all_is_added(queue: Queue) -> None:
    watched: Any = Watched(queue)
    run, found = await find_or_start(watched, NewRun("books", "key"), fresh=False)
    assert found == "new" and watched.asked.index("compare_and_swap") < watched.asked.index("start_run")
    assert await is_seeding(queue, run)
    await finish_seeding(queue, run.name)
    await finish_seeding(queue, run.name)  # harmless
    assert not await is_seeding(queue, run) and await queue.documents(kinds.SEEDING) == []


async def test_going_on_marks_it_again_and_an_ended_run_is_not_marked(queue: Queue) -> None:
    run, _ = await find_or_start(queue, NewRun("books", "key"), fresh=False)
    await finish_seeding(queue, run.name)
    await queue.set_run(run.id, "pause")
    again, found = await find_or_start(queue, NewRun("books", "key"), fresh=False)
    assert (again.id, again.state, found) == (run.id, "running", "continued")
    assert await is_seeding(queue, run)
    await finish_seeding(queue, run.name)
    await queue.set_run(run.id, "finish")
    assert (await find_or_start(queue, NewRun("books", "key"), fresh=False))[1] == "ended"
    assert not await is_seeding(queue, run)


async def test_who_loses_the_race_to_start_it_leaves_no_mark_of_its_own(queue: Queue) -> None:
    class Late(Watched):
        async def runs(self, **words: Any) -> list[Run]:
            """Asked before the other had started it."""
            return []

    first = await queue.start_run(NewRun("books", "key", "20260215_120000_k3f"))
    late: Any = Late(queue)
    run, found = await find_or_start(late, NewRun("books", "key"), fresh=False)
    assert (run.id, found) == (first.id, "continued")
    assert [document.name for document in await queue.documents(kinds.SEEDING)] == [first.name]


async def test_starting_over_cancels_what_was_under_way(queue: Queue) -> None:
    first, _ = await find_or_start(queue, NewRun("books", "key"), fresh=False)
    second, found = await find_or_start(queue, NewRun("books", "key"), fresh=True)
    assert found == "new" and second.id != first.id
    assert {run.name: run.state for run in await queue.runs()}[first.name] == "cancelled"


def test_what_a_run_says_of_itself_is_read_whatever_it_is() -> None:
    run = Run(1, "r", "books", "key", "running", 1, 1)
    assert run_code_version(run) == "" and not is_single_process(run)
    run = Run(1, "r", "books", "key", "running", 1, 1, spec={"code": {"version": "abc"}, "mode": "single"})
    assert run_code_version(run) == "abc" and is_single_process(run)


async def ended_by_its_limit(queue: Queue) -> Run:
    """A run of two pages of three."""
    run, _ = await find_or_start(queue, NewRun("books", "key", max_pages=2), fresh=False)
    await queue.add(run.id, [Task(url, "a.test", digest(url)) for url in "abc"], {"a.test": UNLIMITED_PACE})
    await finish_seeding(queue, run.name)
    claim = await queue.claim("w", 3)
    await queue.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])
    return (await queue.runs())[0]


@pytest.mark.parametrize("limit", [3, 0])
async def test_a_run_that_its_limit_ended_goes_on_with_more_if_that_is_asked_for(queue: Queue, limit: int) -> None:
    before = await ended_by_its_limit(queue)
    new = NewRun("books", "key", max_pages=limit)
    assert await find_or_start(queue, new, fresh=False) == (before, "ended"), "nobody asked for another limit"
    run, found = await find_or_start(queue, new, fresh=False, relimit=True, go_on=True)
    assert (run.id, run.state, run.max_pages, found) == (before.id, "running", limit, "continued")
    assert await is_seeding(queue, run)
    assert (await queue.stats(run.id)).ready == 1


@pytest.mark.parametrize("limit", [2, 1])
async def test_with_no_more_than_before_it_stays_ended(queue: Queue, limit: int) -> None:
    before = await ended_by_its_limit(queue)
    asked = NewRun("books", "key", max_pages=limit)
    assert await find_or_start(queue, asked, fresh=False, relimit=True, go_on=True) == (before, "ended")
    assert not await is_seeding(queue, before)


async def test_a_run_with_nothing_left_stays_ended_and_is_not_marked(queue: Queue) -> None:
    run, _ = await find_or_start(queue, NewRun("books", "key", max_pages=2), fresh=False)
    await finish_seeding(queue, run.name)
    await queue.set_run(run.id, "finish")
    again, found = await find_or_start(
        queue, NewRun("books", "key", max_pages=9), fresh=False, relimit=True, go_on=True
    )
    assert (again.id, again.state, again.max_pages, found) == (run.id, "finished", 2, "ended")
    assert not await is_seeding(queue, again)


async def test_a_run_that_goes_on_gets_the_limit_that_is_asked_for(queue: Queue) -> None:
    await find_or_start(queue, NewRun("books", "key", max_pages=2), fresh=False)
    asked = NewRun("books", "key", max_pages=9)
    assert (await find_or_start(queue, asked, fresh=False))[0].max_pages == 2
    assert (await find_or_start(queue, asked, fresh=False, relimit=True, go_on=True))[0].max_pages == 9
