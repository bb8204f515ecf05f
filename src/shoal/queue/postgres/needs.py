"""Needs: combinations of capabilities that tasks of a run ask for. Ready work is kept apart by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shoal.core.capability import Needs, capability_names
from shoal.core.needs import MAX_NEEDS_SETS, needs_of, shown, skip_refused, too_many_sets
from shoal.core.run import run_of
from shoal.core.task import Outcome, Task
from shoal.queue.postgres.engine import Engine

_NUMBER = "SELECT {s}.number_needs($1, $2, $3)"
_NAMES = "SELECT run, needs, names FROM {s}.run_needs WHERE run = ANY ($1::integer[])"

Numbers = Mapping[Needs, int]


async def _numbered(engine: Engine, run: int, wanted: Sequence[Needs]) -> tuple[dict[Needs, int], list[Needs]]:
    """Their numbers, and those that are too many."""
    if not wanted:
        return {}, []
    found = await engine.value(_NUMBER, run, [shown(needs) for needs in wanted], MAX_NEEDS_SETS)
    known = {needs: number for needs, number in zip(wanted, found, strict=True) if number is not None}
    return known, [needs for needs in wanted if needs not in known]


async def numbers_for(engine: Engine, run: int, tasks: Iterable[Task]) -> Numbers:
    """The numbers of what these tasks need; UsageError where they are too many."""
    known, refused = await _numbered(engine, run, needs_of(tasks))
    if refused:
        raise too_many_sets(refused)
    return known


async def of_outcomes(engine: Engine, outcomes: Sequence[Outcome]) -> tuple[Sequence[Outcome], Mapping[int, Numbers]]:
    """The outcomes without found tasks that are refused, and by run the numbers of what the others need."""
    if not any(task.needs for outcome in outcomes for task in outcome.found):
        return outcomes, {}
    kept, by_run = list(outcomes), dict[int, Numbers]()
    for run in {run_of(outcome.task) for outcome in outcomes}:
        found = (task for outcome in outcomes if run_of(outcome.task) == run for task in outcome.found)
        by_run[run], refused = await _numbered(engine, run, needs_of(found))
        kept = [skip_refused(it, refused) if run_of(it.task) == run else it for it in kept]
    return kept, by_run


def number_of(task: Task, numbers: Numbers | None) -> int:
    return numbers[capability_names(task.needs)] if task.needs and numbers else 0


async def names(engine: Engine, runs: Iterable[int]) -> dict[tuple[int, int], Needs]:
    """What the numbers of these runs stand for."""
    rows = await engine.rows(_NAMES, list(set(runs)))
    return {(run, number): tuple(found) for run, number, found in rows}
