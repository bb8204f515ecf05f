"""Limits of page states, which every backend checks before anything is saved."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shoal.core.run import run_of
from shoal.queue.base import MAX_PAGE_STATE_BYTES, MAX_PAGE_STATES, MAX_WHOLE_PAGE_STATES, PageState


def check_page_states(run: int, states: Sequence[PageState]) -> None:
    if len(states) > MAX_PAGE_STATES:
        raise ValueError(f"at most {MAX_PAGE_STATES:,} page states are saved at once, not {len(states):,}")
    for state in states:
        if run_of(state.task) != run:
            raise ValueError(f"task {state.task} is not one of run {run}")
        if len(state.head) + len(state.body) > MAX_PAGE_STATE_BYTES:
            raise ValueError(f"the state of task {state.task} has more than {MAX_PAGE_STATE_BYTES:,} bytes")


def answer_size(limit: int, whole: bool) -> int:
    """How many states one answer may hold."""
    return max(0, min(limit, MAX_WHOLE_PAGE_STATES) if whole else limit)


def chosen_tasks(run: int, tasks: Collection[int], after: int) -> list[int]:
    """Those of the run that are still to be told of, in order."""
    return sorted({task for task in tasks if task > after and run_of(task) == run})
