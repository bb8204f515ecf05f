"""What people and programs are told of dead letters that were removed when their retention was over."""

from __future__ import annotations

import pytest

from shoal.commands.result import Result
from shoal.config.load import load
from shoal.control.history_sample import Baseline, Observation, measure
from shoal.control.stalls import progress_of
from shoal.core.forecast import forecast
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import DISCARDED
from shoal.errors import UsageError
from shoal.queue.base import TaskView
from shoal.view.documents import stats_document
from shoal.view.formatting import format_account
from shoal.view.metric_family import MetricFamily
from shoal.view.metrics import _by_state
from shoal.view.why import waiting_reason

RUN = Run(1, "r1", "books", "k", "running", 1_000_000, 1_000_000)
STATS = Stats(seen=10, ready=1, done=5, dead=1, discarded=3, cancelled=0)


@pytest.mark.parametrize(("given", "seconds"), [("0", 0.0), ("60", 60.0), ("24h", 86_400.0), ("7d", 604_800.0)])
def test_a_retention_is_a_duration(given: str, seconds: float) -> None:
    assert load({"dead_retention": given}, env={}).dead_retention == seconds


@pytest.mark.parametrize("given", ["59s", "-1", "soon", "24 hours ago"])
def test_a_retention_that_is_none_or_too_short_is_refused_with_what_to_give(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        load({"dead_retention": given}, env={})
    assert given in str(refused.value)
    assert "at least a minute" in refused.value.hint


@pytest.mark.parametrize(("asked", "kept"), [(0.0, 0.0), (1.0, 60.0), (86_400.0, 86_400.0)])
def test_a_run_keeps_its_dead_letters_for_a_minute_at_least(asked: float, kept: float) -> None:
    assert NewRun("books", "k", dead_retention=asked).keeps_dead == kept


def test_the_account_adds_up_with_what_was_removed() -> None:
    assert STATS.is_balanced
    assert STATS.failed == 4
    assert format_account(STATS) == "  seen 10 = done 5 + dead 1 + discarded 3 + cancelled 0 + open 1"
    assert "discarded" not in format_account(Stats(seen=1, done=1)), "where there is nothing to say"
    told = stats_document(STATS)
    assert (told["dead"], told["discarded"], told["balanced"]) == (1, 3, True)


def test_every_task_is_in_one_state_of_the_metrics() -> None:
    family = _by_state(MetricFamily("tasks", "gauge", "Tasks."), STATS)
    assert sum(sample.value for sample in family.samples) == STATS.seen


def test_a_run_whose_dead_letters_are_gone_is_still_not_complete() -> None:
    gone = Stats(seen=2, done=1, discarded=1)
    assert not Result(load({}, env={}), "r1", 1, gone).complete
    assert Result(load({}, env={}), "r1", 1, Stats(seen=1, done=1)).complete


def test_a_removal_is_nothing_that_happened_to_a_page() -> None:
    """Neither a step back in the history, nor progress of a run that stalls."""
    before, after = Stats(seen=9, ready=5, dead=4), Stats(seen=9, ready=4, dead=2, discarded=3)
    _, base = measure(Baseline(), Observation(10_000_000, [(RUN, before)], (), {}))
    sample, _ = measure(base, Observation(20_000_000, [(RUN, after)], (), {}))
    assert sample.dead == 1, "one died; that three others were removed meanwhile is not seen here"
    assert progress_of(Stats(seen=3, dead=3)) == progress_of(Stats(seen=3, discarded=3))


def test_a_page_limit_is_as_near_with_what_was_removed() -> None:
    kept, removed = Stats(seen=100, ready=90, dead=10), Stats(seen=100, ready=90, discarded=10)
    found = [forecast(stats, [], rate=1.0, now=0, max_pages=20).seconds for stats in (kept, removed)]
    assert found[0] == found[1]


def test_why_says_what_became_of_a_removed_dead_letter() -> None:
    task = TaskView(id=1, run=1, url="", lane="", state="dead", cause=DISCARDED)
    words = waiting_reason(RUN, task, None, 0, 0, "")
    assert "removed" in words
    assert "revive" not in words, "it cannot be"
