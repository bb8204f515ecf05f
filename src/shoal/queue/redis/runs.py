"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task_kind import is_aside
from shoal.errors import RunNameTaken, UsageError
from shoal.queue import undo
from shoal.queue.base import RunAction, TaskFilter
from shoal.queue.cells import read_run
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.page_limit import limit_refused
from shoal.queue.redis import inspect
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.overdue import end_overdue
from shoal.queue.redis.packing import SECOND, ended_state, micros, unpack_ended

SLICE = 1000
LANES = 200  # of a run that are looked at for what is claimable
ALL_LANES, FEWEST_LANES = 2500, 4  # of all runs that are asked for together, and of each at least
CALL_LANES, CALL_RUNS = 1600, 64  # that one call looks at
REVIVED = 200  # dead letters per call
_FIELDS = (
    "name", "scraper", "key", "state", "seen_set", "created_at", "changed_at", "finished_at",
    "weight", "priority", "max_pages",
)  # fmt: skip
_NUMBERS = frozenset(_FIELDS[5:])
# As lua/stats.lua tells them.
_COUNTERS = (
    "seen", "ready", "leased", "done", "dead", "cancelled", "records", "trimmed", "retries", "lost", "stale",
    "bytes", "discarded", "aside", "outbox",
)  # fmt: skip


async def start(engine: Engine, new: NewRun) -> Run:
    spec = msgspec.json.encode(new.spec)
    number = await engine.run(
        "start_run",
        new.name,
        new.scraper,
        new.key,
        new.weight,
        new.priority,
        new.max_pages,
        spec,
        int(new.once),
        new.seen_set,
        micros(new.seen_for),
        micros(new.keeps_dead),
    )
    if number == b"taken":
        raise RunNameTaken(f"there is a run called {new.name} already", hint="choose another name")
    return await get(engine, number)


async def _read(engine: Engine, number: int) -> Run | None:
    values = await engine.read("HMGET", f"run:{number}", *_FIELDS, "dead_retention", "seen_for", "spec")
    if values[0] is None:
        return None
    known: dict[str, Any] = {
        "id": number,
        "seen_for": int(values[-2]) / SECOND,
        "dead_retention": int(values[-3] or 0) / SECOND,
    }
    for field, value in zip(_FIELDS, values, strict=False):
        known[field] = int(value or 0) if field in _NUMBERS else value.decode()
    return read_run(known, values[-1])


async def get(engine: Engine, number: int) -> Run:
    run = await _read(engine, number)
    if run is None:
        raise unknown(number)
    return run


def unknown(number: int) -> UsageError:
    return UsageError(f"there is no run with number {number}", hint="`shoal runs` lists them")


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
    top = f"({before}" if before else "+inf"

    def fits(run: Run) -> bool:
        return _fits(run, key, name, states, scraper)

    if name:
        exact = await engine.read("HGET", "names", name)
        if exact is not None:
            found = [await _read(engine, int(exact))]
            return [run for run in found if run and fits(run) and (not before or run.id < before)]
    listed: list[Run] = []
    slice_ = min(SLICE, limit)
    while len(listed) < limit:
        numbers = await engine.read("ZREVRANGEBYSCORE", "runs", top, "-inf", "LIMIT", 0, slice_)
        if not numbers:
            break
        top, slice_ = f"({int(numbers[-1])}", SLICE
        read = await asyncio.gather(*(_read(engine, int(number)) for number in numbers))
        listed += [run for run in read if run and fits(run)]
    return listed[:limit]


def _fits(run: Run, key: str, name: str, states: Collection[str], scraper: str) -> bool:
    return (
        key in ("", run.key)
        and run.name.startswith(name)
        and scraper in ("", run.scraper)
        and (not states or run.state in states)
    )


async def set_state(engine: Engine, run: int, action: RunAction) -> Run:
    word, *about = await engine.run("set_run", run, action)
    if word == b"unknown":
        raise unknown(run)
    if word in (b"ended", b"late", b"replaced") and action == "undo":
        raise _undo_refusal(word, *(text.decode() for text in about))
    if word == b"ended":
        name, state = (text.decode() for text in about)
        raise UsageError(f"cannot {action} run {name}: it is already {state}", hint="start a new one with --fresh")
    if word == b"open":
        raise UsageError(
            f"run {about[0].decode()} has open tasks ({about[1]}): it cannot finish",
            hint="wait for them, or cancel the run",
        )
    if word == b"outbox":
        raise outbox_pending(about[0].decode(), about[1], "it cannot finish")
    await _sweep(engine, run, about[0])
    return await get(engine, run)


async def set_max_pages(engine: Engine, run: int, max_pages: int) -> Run:
    word, *about = await engine.run("set_max_pages", run, max(0, max_pages))
    if word == b"unknown":
        raise unknown(run)
    if word != b"ok":
        what = about[0].decode() if word == b"replaced" else about[0] if about else ""
        raise limit_refused(word.decode(), await get(engine, run), what)
    await _sweep(engine, run, about[0])
    return await get(engine, run)


def _undo_refusal(word: bytes, name: str, about: str = "") -> UsageError:
    if word == b"late":
        return undo.too_late(name)
    return undo.replaced(name, about) if word == b"replaced" else undo.not_cancelled(name, about)


async def _sweep(engine: Engine, number: int, left: int) -> None:
    while left:
        left = await engine.run("sweep", number)


async def stats(engine: Engine, run: int) -> Stats:
    await end_overdue(engine, [run])
    (answer,) = await engine.run("stats", LANES, run)
    if answer is None:
        raise unknown(run)
    return _stats(answer)


async def stats_of(engine: Engine, runs: Sequence[int]) -> list[Stats]:
    """All at once, but in several calls, so that none takes long."""
    await end_overdue(engine, runs)
    lanes = max(FEWEST_LANES, min(LANES, ALL_LANES // max(1, len(runs))))
    size = min(CALL_RUNS, CALL_LANES // lanes)
    parts = [runs[at : at + size] for at in range(0, len(runs), size)]
    told = await asyncio.gather(*(engine.run("stats", lanes, *part) for part in parts))
    return [Stats() if answer is None else _stats(answer) for answers in told for answer in answers]


def _stats(answer: Any) -> Stats:
    claimable, delayed, counters, skips, needed = answer
    skipped = {skips[at].decode(): int(skips[at + 1]) for at in range(0, len(skips), 2)}
    known = dict(zip(_COUNTERS, counters, strict=True))
    needs = {name.decode(): count for name, count in zip(needed[::2], needed[1::2], strict=True) if count}
    return Stats(**known, claimable=claimable, delayed=delayed, skipped=skipped, needs=needs)


async def recount(engine: Engine, run: int) -> Stats:
    known, about = await stats(engine, run), await get(engine, run)
    ended = await _count_ended(engine, run)
    ready = delayed = leased = 0
    by_number = Counter[int]()
    if about.state in ("running", "paused"):
        async for counts in inspect.count_tasks(engine, run):
            ready, delayed, leased = ready + counts[0], delayed + counts[1], leased + counts[2]
            by_number.update(counts[4])
    sets = await engine.read("HGETALL", f"needs:{run}")
    names = {int(number): name.decode() for name, number in zip(sets[::2], sets[1::2], strict=True)}
    seen = await _count_seen(engine, run)
    dead = await engine.read("HLEN", f"dead:{run}")
    discarded = await inspect.count_discarded(engine, run)
    # Tasks cancelled with their run leave nothing behind: what the seen-set knows and nothing else holds.
    gone = seen - ended["done"] - dead - discarded - ready - delayed - leased if known.cancelled else ended["cancelled"]
    return msgspec.structs.replace(
        known,
        seen=seen,
        ready=ready + delayed,
        delayed=delayed,
        leased=leased,
        done=ended["done"],
        dead=dead,
        discarded=discarded,
        aside=ended["aside"] + await _count_dead_aside(engine, run),
        cancelled=gone,
        records=known.trimmed + await engine.read("LLEN", f"records:{run}"),
        needs={names[number]: count for number, count in by_number.items() if number},
        outbox=await engine.read("HLEN", f"outbox_of:{run}"),
    )


async def _count_ended(engine: Engine, number: int) -> dict[str, int]:
    counts, first = {"done": 0, "cancelled": 0, "aside": 0}, 0
    while rows := await engine.read("LRANGE", f"ended:{number}", first, first + SLICE - 1):
        for row in rows:
            counts[ended_state(row)] += 1
            counts["aside"] += ended_state(row) == "done" and is_aside(unpack_ended(row).item.view[1])
        first += SLICE
    return counts


async def _count_dead_aside(engine: Engine, number: int) -> int:
    rows = await engine.read("HVALS", f"dead:{number}")
    return sum(is_aside(unpack_ended(row).item.view[1]) for row in rows)


async def _count_seen(engine: Engine, number: int) -> int:
    level, split = (int(value or 0) for value in await engine.read("HMGET", f"run:{number}", "level", "split"))
    count = 0
    for bucket in range(2**level + split):
        count += sum(not task.startswith(b"-") for task in await engine.read("HVALS", f"seen:{number}:{bucket}"))
    return count


async def run_counters(engine: Engine, run: int) -> dict[str, int]:
    await get(engine, run)
    found = await engine.read("HGETALL", f"counted:{run}")
    return {found[at].decode(): int(found[at + 1]) for at in range(0, len(found), 2)}


async def orphans(engine: Engine, run: int, limit: int = 20) -> list[int]:
    about, cleared = await get(engine, run), await engine.read("HGET", f"run:{run}", "cleared")
    if about.state == "cancelled" or cleared:  # what was cancelled with its run is not there
        return []
    found: list[int] = []
    async for _, _, _, gone, _ in inspect.count_tasks(engine, run):
        found += [(run << TASK_BITS) | task for task in gone]
        if len(found) >= limit:
            break
    return found[:limit]


async def revive(engine: Engine, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
    await get(engine, run)
    back, some = await _revive(engine, run, []), list[int]()  # it says whether the run may be revived
    async for view in inspect.dead(engine, run, where):
        if back + len(some) >= limit:
            break
        some.append(view.id & ((1 << TASK_BITS) - 1))
        if len(some) == REVIVED:
            back, some = back + await _revive(engine, run, some), []
    return back + await _revive(engine, run, some)


async def _revive(engine: Engine, number: int, tasks: list[int]) -> int:
    while True:
        word, *about = await engine.run_cached("revive", number, *tasks)
        if word == b"unknown":
            raise unknown(number)
        if word == b"cancelled":
            raise UsageError(
                f"run {about[0].decode()} was cancelled: its dead letters stay", hint="start a new one with --fresh"
            )
        await _sweep(engine, number, about[1])
        if word == b"ok":
            return int(about[0])


async def purge(engine: Engine, *, run: int | None = None, older_than: float | None = None) -> int:
    chosen: list[int] = []
    if run is not None:
        chosen = [run]
    elif older_than is not None:
        limit = await engine.now() - micros(older_than)
        ended = await listing(engine, states=("finished", "cancelled"), limit=1 << 30)
        chosen = [item.id for item in ended if item.finished_at <= limit]
        await engine.run("forget", "", micros(older_than))
    for number in chosen:
        await _remove(engine, number, ask=run is not None)
    for number in await engine.read("SMEMBERS", "purging"):  # what somebody else left half done
        await _remove(engine, int(number), ask=False)
    return len(chosen)


async def _remove(engine: Engine, number: int, *, ask: bool) -> None:
    word: bytes = b"more"
    while word == b"more":
        word, *about = await engine.run_cached("purge", number)
    if word == b"unknown" and ask:
        raise unknown(number)
    if word == b"open" and ask:
        name, state = (text.decode() for text in about)
        raise UsageError(f"run {name} is {state}: only ended runs can be removed", hint="cancel it first")
