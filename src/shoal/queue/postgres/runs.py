"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable, RunNameTaken, UsageError
from shoal.queue import undo
from shoal.queue.base import SLOT_HORIZON_SECONDS, RunAction, TaskFilter
from shoal.queue.cells import read_run
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.page_limit import limit_refused
from shoal.queue.postgres.columns import SECOND, micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.inspect import condition
from shoal.queue.postgres.lanes import move_lanes
from shoal.queue.postgres.overdue import end_overdue
from shoal.queue.postgres.text import escape_nul, unescape_nul

CLEAR_SLICE, CLEAR_TRIES = 20_000, 3
REVIVED, PURGED = 1_000, 5_000  # tasks per step
LAST_RUN = 2**31 - 1  # that there can be

_COLUMNS = "id, name, scraper, key, state, created_at, changed_at, finished_at, weight, priority, max_pages, spec, seen_set, seen_for, dead_retention"
_WANTED = {"pause": "paused", "resume": "running", "cancel": "cancelled", "finish": "finished"}
_ORPHANS = """
SELECT s.task FROM {s}.seen s JOIN {s}.runs r ON r.id = s.run AND r.state <> 'cancelled'
WHERE s.run = $1 AND s.task > 0
  AND NOT EXISTS (SELECT 1 FROM {s}.ready WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.delayed WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.leased WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.ended WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.dead WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.discarded WHERE id = s.task) AND NOT r.identity_only AND NOT r.leftovers
ORDER BY s.task LIMIT $2"""


class Recount(msgspec.Struct, frozen=True):
    open: bool
    seen: int
    ready: int
    due_delayed: int
    delayed: int
    leased: int
    done: int
    cancelled: int
    dead: int
    discarded: int
    aside: int
    records: int
    needs: dict[str, int]
    outbox: int


_decode_counters = msgspec.json.Decoder(dict[str, int]).decode
_decode_stats = msgspec.json.Decoder(Stats).decode
_decode_recount = msgspec.json.Decoder(Recount).decode


def _run(row: Any) -> Run:
    (
        id,
        name,
        scraper,
        key,
        state,
        created_at,
        changed_at,
        finished_at,
        weight,
        priority,
        max_pages,
        spec,
        seen_set,
        seen_for,
        dead_retention,
    ) = row
    values = {
        "id": id, "name": unescape_nul(name), "scraper": unescape_nul(scraper), "key": unescape_nul(key), "state": state,
        "created_at": created_at, "changed_at": changed_at, "finished_at": finished_at, "weight": weight,
        "priority": priority, "max_pages": max_pages, "seen_set": unescape_nul(seen_set), "seen_for": seen_for / SECOND,
        "dead_retention": dead_retention / SECOND,
    }  # fmt: skip
    return read_run(values, spec)


async def start(engine: Engine, new: NewRun) -> Run:
    words = [escape_nul(word) for word in (new.name, new.scraper, new.key)]
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.start_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        engine.now(), *words, new.weight, new.priority, new.max_pages, text(new.spec), new.once, escape_nul(new.seen_set), micros(new.seen_for),
        micros(new.keeps_dead),
    )  # fmt: skip
    if not rows:
        raise RunNameTaken(f"there is a run called {new.name} already", hint="choose another name")
    return _run(rows[0])


async def listing(
    engine: Engine,
    *,
    key: str = "",
    name: str = "",
    states: Collection[str] = (),
    scraper: str = "",
    before: int = 0,
    limit: int = 100,
) -> list[Run]:
    terms: list[str] = []
    values: list[Any] = [limit]
    for term, value in (
        ("key = ?", escape_nul(key)),
        ("starts_with(name, ?)", escape_nul(name)),
        ("state = ANY (?::text[])", list(states)),
        ("scraper = ?", escape_nul(scraper)),
        ("id < ?::bigint", before),
    ):
        if value:
            values.append(value)
            terms.append(term.replace("?", f"${len(values)}"))
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.runs WHERE {' AND '.join(terms) or 'true'} ORDER BY id DESC LIMIT $1", *values
    )
    found = [_run(row) for row in rows]
    return [run for run in found if run.name == name] or found


async def get(engine: Engine, run: int) -> Run:
    rows = await engine.rows(f"SELECT {_COLUMNS} FROM {{s}}.runs WHERE id = $1", run)
    if not rows:
        raise UsageError(f"there is no run with number {run}", hint="`shoal runs` lists them")
    return _run(rows[0])


async def set_state(engine: Engine, run: int, action: RunAction) -> Run:
    if action == "undo":
        return await _undo(engine, run)
    refused = await engine.value("SELECT {s}.set_run($1, $2, $3)", engine.now(), run, _WANTED[action])
    about = await get(engine, run)
    if refused == "ended":
        raise UsageError(
            f"cannot {action} run {about.name}: it is already {about.state}", hint="start a new one with --fresh"
        )
    if refused:
        what, _, left = refused.partition(":")
        if what == "outbox":
            raise outbox_pending(about.name, int(left), "it cannot finish")
        raise UsageError(
            f"run {about.name} has open tasks ({left}): it cannot finish", hint="wait for them, or cancel the run"
        )
    await move_lanes(engine, run)
    return about


async def _undo(engine: Engine, run: int) -> Run:
    refused = await engine.value("SELECT {s}.undo_run($1, $2)", engine.now(), _number(run))
    about = await get(engine, run)
    if refused == "late":
        raise undo.too_late(about.name)
    if refused.startswith("replaced:"):
        raise undo.replaced(about.name, unescape_nul(refused.removeprefix("replaced:")))
    if refused:
        raise undo.not_cancelled(about.name, about.state)
    await move_lanes(engine, run)
    return about


async def set_max_pages(engine: Engine, run: int, max_pages: int) -> Run:
    refused = await engine.value("SELECT {s}.set_max_pages($1, $2, $3)", engine.now(), _number(run), max(0, max_pages))
    about = await get(engine, run)
    if refused:
        why, _, what = refused.partition(":")
        raise limit_refused(why, about, int(what) if why == "reached" else unescape_nul(what))
    await move_lanes(engine, run)
    return about


async def stats(engine: Engine, run: int) -> Stats:
    await end_overdue(engine, [_number(run)])
    found = await engine.value(
        "SELECT {s}.stats_of($1, $2, $3)", engine.now(), [_number(run)], micros(SLOT_HORIZON_SECONDS)
    )
    if found is None:
        await get(engine, run)
    return _stats(found)


async def stats_of(engine: Engine, runs: Sequence[int]) -> list[Stats]:
    if not runs:
        return []
    numbers = [_number(run) for run in runs]
    await end_overdue(engine, numbers)
    rows = await engine.rows("SELECT {s}.stats_of($1, $2, $3)", engine.now(), numbers, micros(SLOT_HORIZON_SECONDS))
    return [_stats(row[0]) if row[0] else Stats() for row in rows]


def _number(run: int) -> int:
    return run if 0 < run <= LAST_RUN else 0


def _stats(text: str) -> Stats:
    known = _decode_stats(text)
    if known.skipped:
        words = {unescape_nul(reason): count for reason, count in known.skipped.items()}
        known = msgspec.structs.replace(known, skipped=words)
    return known


async def recount(engine: Engine, run: int) -> Stats:
    known = await stats(engine, run)
    found = _decode_recount(await engine.value("SELECT {s}.recount($1, $2)", engine.now(), run))
    ready, delayed, leased = (found.ready + found.due_delayed, found.delayed, found.leased) if found.open else (0, 0, 0)
    # Tasks cancelled with their run leave no row behind: what the seen-set knows and no table holds.
    gone = found.seen - found.done - found.dead - found.discarded - ready - delayed - leased
    return msgspec.structs.replace(
        known, seen=found.seen, ready=ready + delayed, delayed=delayed, leased=leased, done=found.done, dead=found.dead, discarded=found.discarded, aside=found.aside,
        cancelled=gone if known.cancelled else found.cancelled, records=found.records,
        needs=found.needs if found.open else {},
        outbox=found.outbox,
    )  # fmt: skip


async def run_counters(engine: Engine, run: int) -> dict[str, int]:
    found = await engine.value("SELECT {s}.read_counters($1)", _number(run))
    if found is None:
        await get(engine, run)
    return {unescape_nul(name): number for name, number in _decode_counters(found or "{}").items()}


async def orphans(engine: Engine, run: int, limit: int = 20) -> list[int]:
    await get(engine, run)
    return [row[0] for row in await engine.rows(_ORPHANS, run, limit)]


async def revive(engine: Engine, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
    about = await get(engine, run)
    if about.state == "cancelled":
        raise UsageError(f"run {about.name} was cancelled: its dead letters stay", hint="start a new one with --fresh")
    back, after = 0, run << TASK_BITS
    while back < limit and (ids := await _dead(engine, run, where, after, min(REVIVED, limit - back))):
        count = await engine.value("SELECT {s}.revive($1, $2, $3, $4)", engine.now(), run, ids, "requeued")
        if count >= 0:
            back, after = back + count, ids[-1]
    if about.state == "finished":
        await move_lanes(engine, run)
    return back


async def _dead(engine: Engine, run: int, where: TaskFilter, after: int, limit: int) -> list[int]:
    term, values = condition(where, 4, "dead", run)
    rows = await engine.rows(
        f"SELECT t.id FROM {{s}}.dead t WHERE t.id > $1 AND t.id < $2 AND {term} ORDER BY t.id LIMIT $3",
        after, (run + 1) << TASK_BITS, limit, *values,
    )  # fmt: skip
    return [row[0] for row in rows]


async def purge(engine: Engine, *, run: int | None = None, older_than: float | None = None) -> int:
    """Registry and live tasks go at once; history with its partition, when no other run of that is left.

    A run that was named leaves nothing behind. What retention removes can no longer be found, and its
    history is dropped with that of the runs started about the same time, instead of row by row.
    """
    if run is not None:
        chosen = await get(engine, run)
        if chosen.state not in ("finished", "cancelled"):
            raise UsageError(
                f"run {chosen.name} is {chosen.state}: only ended runs can be removed", hint="cancel it first"
            )
        numbers = [run]
    elif older_than is not None:
        before = (engine.now(), micros(older_than))
        rows = await engine.rows(
            "SELECT id FROM {s}.runs WHERE state IN ('finished', 'cancelled') AND finished_at <= {s}.clock_micros($1) - $2",
            *before,
        )
        numbers = [row[0] for row in rows]
        await engine.rows("DELETE FROM {s}.workers WHERE seen_at < {s}.clock_micros($1) - $2", *before)
    else:
        numbers = []
    gone = [await _remove(engine, number) for number in numbers]
    await _clear(engine, run)
    return sum(gone)


async def _remove(engine: Engine, number: int) -> bool:
    while await engine.value("SELECT {s}.purge_slice($1, $2)", number, PURGED):
        pass
    return bool(await engine.value("SELECT {s}.purge($1)", number))


async def _clear(engine: Engine, run: int | None) -> None:
    for _ in range(CLEAR_TRIES):
        try:
            while await engine.value("SELECT {s}.drop_partitions()") is not None:
                pass
            break
        # Somebody reads or writes there just now: it goes a little later, or next time.
        except QueueUnavailable:
            await asyncio.sleep(0.05)
    if run is not None:
        while await engine.value("SELECT {s}.clear_run($1, $2)", run, CLEAR_SLICE):
            pass
