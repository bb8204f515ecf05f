"""Outcomes for a part of the queue that is away: what is kept, in which order, and for how long."""

from __future__ import annotations

from shoal.core.task import Outcome
from shoal.worker.deferred import DeferredOutcomes


def outcome(task: int, result: str = "done") -> Outcome:
    return Outcome(task=task, lease=7, result=result)  # type: ignore[arg-type]


def test_an_outcome_does_not_overtake_its_own_parts() -> None:
    deferred = DeferredOutcomes(lambda: 0.0, 60.0)
    assert deferred.keep(outcome(1, "part"))
    assert deferred.keep_in_order([outcome(2), outcome(1)]) == [outcome(2)]
    assert deferred.take() == [outcome(1, "part"), outcome(1)]
    assert len(deferred) == 0 and deferred.keep_in_order([outcome(1)]) == [outcome(1)]


def test_an_outcome_is_given_up_when_the_outage_has_lasted_too_long() -> None:
    times = iter((0.0, 30.0, 60.0, 61.0, 62.0))
    deferred = DeferredOutcomes(lambda: next(times), 60.0)
    for _ in range(3):
        assert deferred.keep(outcome(1))
        deferred.take()
    assert not deferred.keep(outcome(1))
    deferred.forget(outcome(1))
    assert deferred.keep(outcome(1)), "another outage begins anew"
