"""Settle: outcomes as one call; what each makes true is in schema/0001/05_settle.sql."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import SHORT_DIGEST, LaneChange, Outcome, Verdict
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.postgres import columns, needs, record_keys
from shoal.queue.postgres.columns import micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul

RESULTS = {"done": 0, "retry": 1, "dead": 2, "released": 3, "cancelled": 4, "part": 5}
VERDICTS: tuple[Verdict, ...] = ("ok", "already", "stale")

_WORDS = ", ".join(f"${n}" for n in range(1, 41))
_SETTLE = f"SELECT {{s}}.settle({_WORDS})"
_SETTLE_EARLY = f"CALL {{s}}.settle_early({_WORDS}, NULL)"


async def settle(engine: Engine, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
    paces = paces or {}
    check_outbox(outcomes)
    if not outcomes:
        return []
    outcomes, numbers = await needs.of_outcomes(engine, outcomes)
    parts = _split_duplicates(outcomes)
    if len(parts) == 1 and not any(map(record_keys.has_keys, outcomes)):
        statement = _SETTLE if engine.server_url.is_pooled else _SETTLE_EARLY
        found = [await engine.value(statement, engine.now(), *_arguments(outcomes, paces, numbers))]
    else:
        statement = _SETTLE.replace("{s}", engine.schema)

        async def settle_all(db: asyncpg.Connection) -> list[Any]:
            answers = []
            for part in parts:
                each: Sequence[Outcome] = [outcomes[n] for n in part]
                if any(map(record_keys.has_keys, each)):
                    each = await record_keys.without_known_records(db, engine.schema, each)
                answers.append(await db.fetchval(statement, engine.now(), *_arguments(each, paces, numbers)))
            return answers

        found = await engine.transact(settle_all)
    verdicts: dict[int, Verdict] = {}
    for part, answers in zip(parts, found, strict=True):
        verdicts.update({n: VERDICTS[answer] for n, answer in zip(part, answers, strict=True)})
    return [verdicts[n] for n in range(len(outcomes))]


def _split_duplicates(outcomes: Sequence[Outcome]) -> list[list[int]]:
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


def lane_change_values(item: LaneChange) -> list[Any]:
    """lane, hold_for, spacing, park_for, reason, rule, limit."""
    hold, spacing, park, rule = (
        None if it is None else micros(it) for it in (item.hold_for, item.spacing, item.park_for, item.spacing_override)
    )
    return [escape_nul(item.lane), hold, spacing, park, escape_nul(item.reason), rule, item.limit]


def is_plain(outcome: Outcome) -> bool:
    """Whether it is done and brought nothing but records."""
    return outcome.result == "done" and not (
        outcome.found or outcome.skipped or outcome.lanes or outcome.redirect_digest or outcome.cause or outcome.outbox
    )


def _arguments(
    outcomes: Sequence[Outcome], paces: Mapping[str, Pace], numbers: Mapping[int, needs.Numbers]
) -> list[Any]:
    plain = all(map(is_plain, outcomes))
    return [
        plain,
        list({run_of(outcome.task) for outcome in outcomes}),
        [outcome.task for outcome in outcomes],
        [outcome.lease for outcome in outcomes],
        [text(outcome.attempt) for outcome in outcomes],
        [0 if outcome.attempt is None else outcome.attempt.size for outcome in outcomes],
        [len(outcome.records) for outcome in outcomes],
        *_details(() if plain else outcomes),
        *_consequences(list(enumerate(outcomes, 1)), paces, numbers),
        *_counters(outcomes),
    ]


def _counters(outcomes: Sequence[Outcome]) -> list[str | None]:
    """What all count together, and what each of them does, in case that not all are taken."""
    totals = counter_totals(outcomes)
    if not totals:
        return [None, None]
    together = [(run, {escape_nul(name): number for name, number in total.items()}) for run, total in totals.items()]
    each = [
        (n, [(escape_nul(name), number) for name, number in outcome.counters.items()])
        for n, outcome in enumerate(outcomes, 1)
        if outcome.counters
    ]
    return [text(together), text(each)]


def _details(outcomes: Sequence[Outcome]) -> list[Any]:
    return [
        [RESULTS[outcome.result] for outcome in outcomes],
        [micros(outcome.after) for outcome in outcomes],
        [escape_nul(outcome.cause) for outcome in outcomes],
        [text(outcome.evidence) for outcome in outcomes],
        [outcome.redirect_digest and outcome.redirect_digest[:SHORT_DIGEST] for outcome in outcomes],
    ]


def _consequences(
    numbered: Sequence[tuple[int, Outcome]], paces: Mapping[str, Pace], numbers: Mapping[int, needs.Numbers]
) -> list[Any]:
    """Records, new tasks, what was learned of hosts, links that were skipped, and the outbox."""
    records = [(n, data) for n, outcome in numbered if outcome.result == "done" for data in outcome.records]
    found = [(n, task) for n, outcome in numbered for task in outcome.found]
    given = (
        [needs.number_of(task, numbers.get(run_of(it.task))) for _, it in numbered for task in it.found]
        if numbers
        else ()
    )
    lanes = {task.lane for _, task in found} & paces.keys()
    changes = [[n, *lane_change_values(item)] for n, outcome in numbered for item in outcome.lanes]
    skips = [[n, escape_nul(reason), escape_nul(url)] for n, outcome in numbered for reason, url in outcome.skipped]
    # msgspec writes bytes as base64.
    entries = [
        [n, escape_nul(it.kind), escape_nul(it.key), it.data] for n, outcome in numbered for it in outcome.outbox
    ]
    return [
        [n for n, _ in records],
        [data.decode() for _, data in records],
        [n for n, _ in found],
        *(columns.short_task_columns([task for _, task in found], given) if found else columns.EMPTY),
        *(columns.pace_columns(lanes, paces) if found else columns.EMPTY_PACES),
        *columns.DEFAULTS,
        text(changes or None),
        text(skips or None),
        text(entries or None),
    ]
