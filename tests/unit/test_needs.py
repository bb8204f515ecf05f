"""Needs: names that are accepted, what users may ask for, and what people are told is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock

from shoal.config.load import Settings, load
from shoal.core.capability import MAX_CAPABILITIES, capability_names
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.needs import skip_refused
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats, sum_stats
from shoal.core.task import Outcome, digest
from shoal.core.task import Task as QueueTask
from shoal.core.typed_task import Task
from shoal.errors import UsageError
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.missing_capabilities import find_missing
from shoal.view.why import explain_url


def worker(*capabilities: str) -> WorkerStatus:
    return WorkerStatus("w", "w", "host", 1, "1", 1, 1, capabilities=capabilities)


def test_names_come_in_order_and_once() -> None:
    assert capability_names(("exit:de", "browser", "browser")) == ("browser", "exit:de")
    assert capability_names("browser") == ("browser",)
    assert capability_names(()) == ()


@pytest.mark.parametrize("names", [("Browser",), ("a+b",), ("",), ("-x",), (7,), ("a" * 33,)])
def test_what_is_no_name_is_refused_with_what_would_be_one(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="not the name of a capability") as caught:
        capability_names(names)
    assert "exit:de" in str(caught.value.hint)


def test_flags_and_variables_give_several_names() -> None:
    assert load({"has": ("browser", "exit:de")}, env={}).has == ("browser", "exit:de")
    assert load({}, env={"SHOAL_HAS": "browser, exit:de"}).has == ("browser", "exit:de")
    with pytest.raises(UsageError, match="not the name"):
        load({"has": ("Browser",)}, env={})
    with pytest.raises(UsageError, match="too many"):
        load({"has": tuple(f"c{n}" for n in range(MAX_CAPABILITIES + 1))}, env={})


def test_a_typed_task_says_what_it_needs() -> None:
    assert Task(type="shot", needs="browser").to_queue_task().needs == ("browser",)
    assert Task(type="shot", needs=("exit:de", "browser")).to_queue_task().needs == ("browser", "exit:de")
    with pytest.raises(UsageError, match="not the name"):
        Task(type="shot", needs="A browser")


def test_found_tasks_that_are_refused_become_skipped_links() -> None:
    kept, refused = (QueueTask(url, "h", digest(url), needs=(url,)) for url in ("a", "b"))
    outcome = Outcome(1, 1, "done", found=(kept, refused), skipped=(("scope", "x"),))
    changed = skip_refused(outcome, [("b",)])
    assert (changed.found, changed.skipped) == ((kept,), (("scope", "x"), ("needs", "b")))
    assert skip_refused(outcome, []) is outcome


def test_only_what_no_worker_has_is_missing() -> None:
    needs = {"browser": 3, "browser+exit:de": 12, "gpu": 1}
    missing = find_missing(needs, [worker("browser"), worker("exit:de", "gpu")])
    assert [(one.names, one.tasks) for one in missing] == [(("browser", "exit:de"), 12)]
    assert find_missing(needs, [worker("browser", "exit:de", "gpu")]) == []
    assert [one.tasks for one in find_missing(needs, [])] == [12, 3, 1]


def test_what_is_missing_is_said_with_what_to_do() -> None:
    many, one = find_missing({"browser": 1200, "a+b": 1}, [])
    assert str(many) == "1,200 tasks need browser, and no worker has it: start one with --has browser"
    assert str(one) == "1 task needs a and b, and no worker has both: start one with --has a --has b"


def test_exits_are_described_in_settings_and_not_by_a_flag() -> None:
    exit, both = find_missing({"exit:de": 3, "browser+exit:de": 1}, [])
    assert str(exit).endswith("start one with de in the [exits] of its shoal.toml")
    assert str(both).endswith("start one with --has browser and de in the [exits] of its shoal.toml")
    assert [one.flags for one in (exit, both)] == ["", "--has browser"]


def test_sessions_are_described_in_settings_and_not_by_a_flag() -> None:
    session, both = find_missing({"session:shop": 3, "gpu+session:shop": 1}, [])
    assert str(session).endswith("start one with shop in the [sessions] of its shoal.toml, and the key")
    assert str(both).endswith("start one with --has gpu and shop in the [sessions] of its shoal.toml, and the key")
    assert [one.flags for one in (session, both)] == ["", "--has gpu"]


def test_the_needs_of_several_runs_are_added_up() -> None:
    total = sum_stats([Stats(ready=2, needs={"browser": 2}), Stats(ready=3, needs={"browser": 1, "gpu": 2})])
    assert (total.ready, total.needs) == (5, {"browser": 3, "gpu": 2})


async def test_why_names_what_is_missing(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"), clock=FakeClock())
    try:
        run: Run = await queue.start_run(NewRun(scraper="plain", key="k", name="r", spec={"mode": "distributed"}))
        task = QueueTask("task:x/1", "h", digest("task:x/1"), needs=("browser",))
        await queue.add(run.id, [task], {"h": UNLIMITED_PACE})
        await queue.register(worker())
        settings = Settings(queue=str(tmp_path / "queue.db"))
        said = (await explain_url(queue, settings, run, "task:x/1")).reason
        assert said == "it needs browser, and no worker has it: start one with --has browser"
        await queue.register(worker("browser"))
        said = (await explain_url(queue, settings, run, "task:x/1")).reason
        assert said == "it is next: any worker that has browser may take it now"
    finally:
        await queue.close()
