"""What a batch of outcomes counts, summed up before it is sent: most of them are taken as they are."""

from __future__ import annotations

from collections.abc import Container, Sequence

from shoal.core.run import run_of
from shoal.core.run_counters import FIELD_PREFIX
from shoal.core.task import Outcome

MAX_NAME = 100  # letters
MAX_NUMBER = 2**53  # what every store keeps exactly
MAX_NAMES = 20_000  # of one batch

Totals = dict[int, dict[str, int]]  # by run


def counter_totals(outcomes: Sequence[Outcome], dropped: Container[int] = ()) -> Totals:
    """What they count together if all are taken; `dropped` are tasks whose records were not.

    Raises ValueError for what cannot be kept.
    """
    totals: Totals = {}
    for outcome in outcomes:
        if outcome.counters and outcome.result != "part":
            total = totals.get(run := run_of(outcome.task))
            if total is None:
                total = totals[run] = {}
            with_records = outcome.result == "done" and outcome.task not in dropped
            for name, number in outcome.counters.items():
                if not with_records and name.startswith(FIELD_PREFIX):
                    continue
                if name in total:
                    total[name] += number
                else:
                    total[name] = number
    for total in totals.values():
        _check(total)
    return totals


def _check(total: dict[str, int]) -> None:
    if len(total) > MAX_NAMES or max(map(len, total), default=0) > MAX_NAME:
        raise ValueError(f"counters have at most {MAX_NAMES:,} names of {MAX_NAME} letters in one batch")
    if min(total.values(), default=0) < 0 or max(total.values(), default=0) > MAX_NUMBER:
        raise ValueError(f"counters are numbers from 0 to {MAX_NUMBER:,}")
