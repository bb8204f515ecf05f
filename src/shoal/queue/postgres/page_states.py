"""Page states: what a run remembers of its pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shoal.core.run import TASK_BITS
from shoal.queue.base import PageState
from shoal.queue.page_state_limits import answer_size, check_page_states, chosen_tasks
from shoal.queue.postgres.engine import Engine

# In the order of ids: two that save the same ones do not wait for each other in a circle.
_SAVE = """INSERT INTO {s}.page_states (id, head, body)
    SELECT x.id, x.head, x.body FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS x(id, head, body)
    WHERE EXISTS (SELECT 1 FROM {s}.runs WHERE id = $1) ORDER BY x.id
    ON CONFLICT (id) DO UPDATE SET head = excluded.head, body = excluded.body"""
_OF_TASKS = "SELECT id, head, {body} FROM {{s}}.page_states WHERE id = ANY ($1::bigint[]) ORDER BY id LIMIT $2"
_PAGE = "SELECT id, head, {body} FROM {{s}}.page_states WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3"


async def save(engine: Engine, run: int, states: Sequence[PageState]) -> None:
    check_page_states(run, states)
    last = {state.task: state for state in states}  # one statement changes a row once
    await engine.rows(
        _SAVE, run, list(last), [state.head for state in last.values()], [state.body for state in last.values()]
    )


async def listing(
    engine: Engine, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
) -> list[PageState]:
    body, most = "body" if whole else "''::bytea", answer_size(limit, whole)
    if tasks:
        rows = await engine.rows(_OF_TASKS.format(body=body), chosen_tasks(run, tasks, after), most)
    else:
        first, last = max(after, run << TASK_BITS), (run + 1) << TASK_BITS
        rows = await engine.rows(_PAGE.format(body=body), first, last, most)
    return [PageState(*row) for row in rows]
