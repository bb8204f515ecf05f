"""Needs: combinations of capabilities that tasks of a run ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from shoal.core.capability import Needs, capability_names
from shoal.core.task import Outcome, Task
from shoal.errors import UsageError

MAX_NEEDS_SETS = 16  # different combinations in one run: ready work is kept apart by them
REFUSED = "needs"  # why a found task was skipped whose combination is one too many


def needs_of(tasks: Iterable[Task]) -> list[Needs]:
    """The combinations that these tasks ask for, in the order of their coming."""
    return list(dict.fromkeys(capability_names(task.needs) for task in tasks if task.needs))


def shown(needs: Needs) -> str:
    """A combination as one word for people and counters."""
    return "+".join(needs)


def too_many_sets(needs: Sequence[Needs]) -> UsageError:
    """The error of a run whose tasks ask for one combination too many."""
    return UsageError(
        f"tasks of this run ask for {MAX_NEEDS_SETS} combinations of capabilities: {shown(needs[0])} is one too many",
        hint="use fewer combinations, or put such tasks into a run of their own",
    )


def skip_refused(outcome: Outcome, refused: Collection[Needs]) -> Outcome:
    """An outcome whose found tasks of combinations that are too many are skipped links instead."""
    if not refused or not any(task.needs for task in outcome.found):
        return outcome
    kept, links = [], []
    for task in outcome.found:
        if task.needs and capability_names(task.needs) in refused:
            links.append((REFUSED, task.url))
        else:
            kept.append(task)
    return replace(outcome, found=tuple(kept), skipped=(*outcome.skipped, *links))
