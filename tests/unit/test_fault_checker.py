"""The checker of the fault runs notices every kind of broken promise, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from faults.checker import Event, check_history

A, B = 101, 102
FIRST, SECOND = 1000, 2000


def claim(began: float, lease: int, *tasks: int, worker: str = "w1", request: str = "") -> Event:
    times = {"began": began, "at": began + 0.01}
    return {
        "what": "claim",
        "worker": worker,
        "lease": lease,
        "tasks": tasks,
        "request": request or f"r{lease}",
        **times,
    }


def start(at: float, task: int, lease: int, worker: str = "w1") -> Event:
    return {"what": "start", "worker": worker, "at": at, "task": task, "lease": lease}


def settle(began: float, task: int, lease: int, verdict: str = "ok", worker: str = "w1", result: str = "done") -> Event:
    outcomes = [[task, lease, result, verdict]]
    return {"what": "settle", "worker": worker, "began": began, "at": began + 0.01, "outcomes": outcomes}


def kill(at: float, worker: str = "w1", how: str = "child") -> Event:
    return {"what": "kill", "worker": "hand", "at": at, "workers": [worker], "how": how}


GOOD = [
    claim(0.0, FIRST, A, B),
    start(0.1, A, FIRST),
    start(0.1, B, FIRST),
    settle(0.2, A, FIRST),
    kill(0.3),
    claim(0.9, SECOND, B, worker="w2"),
    start(1.0, B, SECOND, worker="w2"),
    settle(1.1, B, SECOND, worker="w2"),
]


def violations_of(events: list[Event], records: tuple[int, ...] = (A, B), **words: Any) -> list[str]:
    return check_history(
        [dict(event) for event in sorted(events, key=lambda event: event["at"])], [A, B], records, **words
    ).violations


def test_a_good_history_is_found_good() -> None:
    verdict = check_history([dict(event) for event in GOOD], [A, B], [A, B])
    assert not verdict.violations
    assert (verdict.executions, verdict.extra, verdict.in_flight) == (3, 1, 1)
    assert verdict.rerun_delays["child"] == [pytest.approx(0.7)]


BROKEN: dict[str, tuple[list[Event], tuple[int, ...], str]] = {
    "a record is missing": (GOOD, (A,), "lost"),
    "a record is there twice": (GOOD, (A, B, B), "duplicated"),
    "a record of nobody's": (GOOD, (A, B, 999), "nobody added"),
    "a stale settle is accepted": ([*GOOD, settle(1.5, B, FIRST)], (A, B), "stale accepted"),
    "a task ends twice": ([*GOOD, settle(1.5, B, FIRST, "already")], (A, B), "ended under 2 leases"),
    "a lease number is used twice": ([*GOOD, claim(2.0, SECOND, A, request="x")], (A, B), "two claims"),
    "lease numbers shrink": ([*GOOD, claim(2.0, 1500, A)], (A, B), "came after"),
    "an execution too many": ([*GOOD, start(1.2, A, SECOND), start(1.3, A, SECOND)], (A, B), "extra"),
    "a task nobody executed": ([e for e in GOOD if e["what"] != "start"], (A, B), "never executed"),
    "settled without a claim": ([*GOOD, settle(1.5, A, 3000)], (A, B), "no claim answered"),
    "its turn came too late": (
        [*GOOD[:5], claim(3.0, SECOND, B), start(3.1, B, SECOND), settle(3.2, B, SECOND)],
        (A, B),
        "ran again only",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_every_broken_promise_is_noticed(what: str) -> None:
    events, records, words = BROKEN[what]
    violations = violations_of(events, records)
    assert any(words in line for line in violations), violations


def test_an_answer_asked_for_again_is_not_a_second_claim() -> None:
    again = claim(0.05, FIRST, A, B, request=f"r{FIRST}")
    assert not violations_of([*GOOD, again])


def test_a_stale_answer_that_was_refused_is_counted_and_harmless() -> None:
    verdict = check_history([dict(event) for event in [*GOOD, settle(1.5, B, FIRST, "stale")]], [A, B], [A, B])
    assert (verdict.violations, verdict.stale) == ([], 1)
