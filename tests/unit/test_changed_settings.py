"""Settings that are others than the last time: what is said of them, and what they cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal import app
from shoal.config.changed_settings import changed_settings, remembered_settings
from shoal.config.load import Settings, load
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome
from shoal.queue.base import Queue, TaskFilter
from shoal.runs.cured_failures import revive_cured
from shoal.sources.start_task import start_task


def settings(**given: Any) -> Settings:
    return load(given, env={})


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {}, []),
        ({"delay": "2s"}, {"delay": "2s"}, []),
        ({}, {"timeout": "60s"}, ["--timeout is 60, was 30"]),
        ({"rate": "5"}, {"rate": "10"}, ["--rate is 10, was 5"]),
        ({}, {"allow_private": True}, ["--allow-private is 1, was none"]),
        ({"ignore_robots": True}, {}, ["--ignore-robots is off, was on"]),
        ({}, {"include": ["/a/*", "/b/*"]}, ["--include is /a/*, /b/*, was none"]),
        ({}, {"max_pages": 5, "seen": "x"}, []),  # fixed when a run begins, and said as that
        ({}, {"workers": 3, "concurrency": 2}, []),  # of this machine: no page fares otherwise
        ({}, {"header": ["Cookie: secret"], "proxy": "http://u:secret@p.example"}, []),
    ],
)
def test_what_is_set_otherwise_is_named(before: dict[str, Any], now: dict[str, Any], said: list[str]) -> None:
    changes = changed_settings(remembered_settings(settings(**before)), settings(**now))
    assert [str(change) for change in changes] == said


def test_no_secret_is_remembered() -> None:
    given = settings(header=["Cookie: secret"], proxy="http://u:secret@p.example", auth="secret")
    assert "secret" not in str(remembered_settings(given))


@pytest.mark.parametrize(
    ("before", "now", "cures"),
    [
        ({}, {"allow_private": True}, "blocked.private"),
        ({"allow_private": True}, {}, ""),
        ({}, {"ignore_robots": True}, "robots"),
        ({}, {"timeout": "60s"}, "timeout.total"),
        ({"timeout": "60s"}, {}, ""),  # a lower limit cures nothing
        ({}, {"max_body": "64MB"}, "too_large"),
        ({}, {"user_agent": "other"}, ""),
    ],
)
def test_what_a_change_cures_follows_from_the_declaration(
    before: dict[str, Any], now: dict[str, Any], cures: str
) -> None:
    (change,) = changed_settings(remembered_settings(settings(**before)), settings(**now))
    assert change.cures == cures


@pytest.fixture
async def run(queue: Queue) -> Run:
    return await queue.start_run(NewRun("list", "key", "7KQ2X"))


async def add_dead(queue: Queue, run: Run, causes: dict[str, str]) -> None:
    await queue.add(run.id, [start_task(url) for url in causes])
    while (claim := await queue.claim("w", 10)).tasks:
        await queue.settle([Outcome(it.id, it.lease, "dead", cause=causes[it.url]) for it in claim.tasks])
    await queue.set_run(run.id, "finish")


async def test_only_pages_that_may_succeed_now_are_tried_again(queue: Queue, run: Run) -> None:
    causes = {
        "http://127.0.0.1:8000/": "blocked.private",
        "http://127.0.0.1:9000/": "blocked.private",
        "http://a.test/": "http.404",
        "http://b.test/": "timeout.total",
    }
    await add_dead(queue, run, causes)
    now = settings(allow_private="127.0.0.1:8000")
    revived = await revive_cured(queue, run, now, changed_settings({}, now))
    assert revived == {"--allow-private": 1}
    dead = await queue.list_tasks(run.id, state="dead")
    assert {view.url for view in dead} == set(causes) - {"http://127.0.0.1:8000/"}
    (again,) = await queue.runs(name=run.name, limit=1)
    assert again.state == "running"


async def test_a_run_that_nothing_was_cured_of_stays_finished(queue: Queue, run: Run) -> None:
    await add_dead(queue, run, {"http://a.test/": "http.404"})
    now = settings(timeout="60s")
    assert await revive_cured(queue, run, now, changed_settings({}, now)) == {}
    (same,) = await queue.runs(name=run.name, limit=1)
    assert same.state == "finished"


async def test_lanes_are_told_of_a_new_pace_and_nothing_is_added(queue: Queue, run: Run) -> None:
    known, other = start_task("http://a.test/1"), start_task("http://b.test/1")
    await queue.add(run.id, [known], {known.lane: Pace(60.0, 1)})
    await app.give_paces(queue, run, [known, other], lambda lane: Pace(0.0, 0))
    (lane,) = await queue.lanes(run=run.id)
    assert lane.spacing == 0.0
    assert (await queue.stats(run.id)).seen == 1
    assert await queue.revive(run.id, TaskFilter()) == 0


def test_the_state_of_a_list_is_in_its_own_folder(tmp_path: Path) -> None:
    given = settings(queue=str(tmp_path / "shoal.db"))
    assert app.bounded_raw_folder(given).parent == tmp_path / "raw"
    assert app.open_saved_pages(given) == []
