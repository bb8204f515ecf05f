"""Settle: outcomes as one call; what each makes true is in schema/0005_settle.sql."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import SHORT_DIGEST, LaneChange, Outcome, Verdict
from shoal.queue.postgres import columns
from shoal.queue.postgres.columns import micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.words import kept

RESULTS = {"done": 0, "retry": 1, "dead": 2, "released": 3, "cancelled": 4, "part": 5}
VERDICTS: tuple[Verdict, ...] = ("ok", "already", "stale")

_SETTLE = f"SELECT {{s}}.settle({', '.join(f'${n}' for n in range(1, 36))})"


async def settle(engine: Engine, outcomes: Sequence[Outcome], paces: Mapping[str, Pace]) -> list[Verdict]:
    if not outcomes:
        return []
    parts = _apart(outcomes)
    arguments = [_arguments([outcomes[n] for n in part], paces) for part in parts]
    if len(parts) == 1:
        found = [await engine.value(_SETTLE, engine.now(), *arguments[0])]
    else:
        statement = _SETTLE.replace("{s}", engine.schema)

        async def all_of_them(db: asyncpg.Connection) -> list[Any]:
            return [await db.fetchval(statement, engine.now(), *each) for each in arguments]

        found = await engine.together(all_of_them)
    verdicts: dict[int, Verdict] = {}
    for part, answers in zip(parts, found, strict=True):
        verdicts.update({n: VERDICTS[answer] for n, answer in zip(part, answers, strict=True)})
    return [verdicts[n] for n in range(len(outcomes))]


def _apart(outcomes: Sequence[Outcome]) -> list[list[int]]:
    """Positions in calls that each name a task at most once: what comes twice is answered one after the other."""
    parts: list[list[int]] = [[]]
    seen: set[int] = set()
    for number, outcome in enumerate(outcomes):
        if outcome.task in seen:
            parts.append([])
            seen.clear()
        seen.add(outcome.task)
        parts[-1].append(number)
    return parts


def change(item: LaneChange) -> list[Any]:
    """lane, hold_for, spacing, park_for, reason, rule, limit."""
    hold, spacing, park, rule = (
        None if it is None else micros(it) for it in (item.hold_for, item.spacing, item.park_for, item.rule)
    )
    return [kept(item.lane), hold, spacing, park, kept(item.reason), rule, item.limit]


def is_plain(outcome: Outcome) -> bool:
    """Whether it is done and brought nothing but records."""
    return outcome.result == "done" and not (
        outcome.found or outcome.skipped or outcome.lanes or outcome.same_as or outcome.cause
    )


def _arguments(outcomes: Sequence[Outcome], paces: Mapping[str, Pace]) -> list[Any]:
    numbered = list(enumerate(outcomes, 1))
    found = [(n, task) for n, outcome in numbered for task in outcome.found]
    changes = [[n, *change(item)] for n, outcome in numbered for item in outcome.lanes]
    skips = [[n, kept(reason), kept(url)] for n, outcome in numbered for reason, url in outcome.skipped]
    records = [(n, data) for n, outcome in numbered if outcome.result == "done" for data in outcome.records]
    plain = all(map(is_plain, outcomes))
    told = () if plain else outcomes
    return [
        plain,
        list({run_of(outcome.task) for outcome in outcomes}),
        [outcome.task for outcome in outcomes],
        [outcome.lease for outcome in outcomes],
        [text(outcome.attempt) for outcome in outcomes],
        [0 if outcome.attempt is None else outcome.attempt.size for outcome in outcomes],
        [len(outcome.records) for outcome in outcomes],
        [RESULTS[outcome.result] for outcome in told],
        [micros(outcome.after) for outcome in told],
        [kept(outcome.cause) for outcome in told],
        [text(outcome.evidence) for outcome in told],
        [outcome.same_as and outcome.same_as[:SHORT_DIGEST] for outcome in told],
        [n for n, _ in records],
        [data.decode() for _, data in records],
        [n for n, _ in found],
        *(columns.of([task for _, task in found]) if found else columns.EMPTY),
        *(
            columns.asked({task.lane for _, task in found} & paces.keys(), paces)
            if found
            else columns.EMPTY_PACES
        ),
        *columns.DEFAULTS,
        text(changes or None),
        text(skips or None),
    ]
