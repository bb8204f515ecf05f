"""Runs: their registry, their account, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import Usage
from shoal.queue.base import RunAction, Where
from shoal.queue.redis import look
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import micros, row_state

SLICE = 1000
LANES = 200  # of a run that are looked at for what is claimable
ALL_LANES, FEWEST_LANES = 2500, 4  # of all runs that are asked for together, and of each at least
CALL_LANES, CALL_RUNS = 1600, 64  # that one call looks at
REVIVED = 200  # dead letters per call
_FIELDS = (
    "name",
    "scraper",
    "key",
    "state",
    "created_at",
    "changed_at",
    "finished_at",
    "weight",
    "max_pages",
)
_NUMBERS = frozenset(_FIELDS[4:])
# As lua/stats.lua tells them.
_COUNTERS = (
    "seen", "ready", "leased", "done", "dead", "cancelled", "records", "trimmed", "retries", "lost", "stale",
    "bytes",
)  # fmt: skip


async def start(engine: Engine, new: NewRun) -> Run:
    spec = msgspec.json.encode(new.spec)
    number = await engine.run(
        "start_run", new.name, new.scraper, new.key, new.weight, new.max_pages, spec, int(new.once)
    )
    if number == b"taken":
        raise Usage(f"there is a run called {new.name} already", hint="choose another name")
    return await get(engine, number)


async def _read(engine: Engine, number: int) -> Run | None:
    values = await engine.read("HMGET", f"run:{number}", *_FIELDS, "spec")
    if values[0] is None:
        return None
    known: dict[str, Any] = {"id": number, "spec": msgspec.json.decode(values[-1])}
    for field, value in zip(_FIELDS, values, strict=False):
        known[field] = int(value or 0) if field in _NUMBERS else value.decode()
    return msgspec.convert(known, Run)


async def get(engine: Engine, number: int) -> Run:
    run = await _read(engine, number)
    if run is None:
        raise unknown(number)
    return run


def unknown(number: int) -> Usage:
    return Usage(f"there is no run with number {number}", hint="`shoal runs` lists them")


async def listing(
    engine: Engine, key: str, name: str, states: Collection[str], scraper: str, before: int, limit: int
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


async def act(engine: Engine, number: int, action: RunAction) -> Run:
    word, *about = await engine.run("set_run", number, action)
    if word == b"unknown":
        raise unknown(number)
    if word == b"ended":
        name, state = (text.decode() for text in about)
        raise Usage(
            f"run {name} is {state} already: it is too late to {action} it", hint="start it anew with --fresh"
        )
    if word == b"open":
        raise Usage(
            f"run {about[0].decode()} has {about[1]} open tasks: it cannot finish",
            hint="wait for them, or cancel the run",
        )
    await _sweep(engine, number, about[0])
    return await get(engine, number)


async def _sweep(engine: Engine, number: int, left: int) -> None:
    while left:
        left = await engine.run("sweep", number)


async def stats(engine: Engine, number: int) -> Stats:
    (answer,) = await engine.run("stats", LANES, number)
    if answer is None:
        raise unknown(number)
    return _stats(answer)


async def stats_of(engine: Engine, numbers: Sequence[int]) -> list[Stats]:
    """All at once, but in several calls, so that none takes long."""
    lanes = max(FEWEST_LANES, min(LANES, ALL_LANES // max(1, len(numbers))))
    size = min(CALL_RUNS, CALL_LANES // lanes)
    parts = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    told = await asyncio.gather(*(engine.run("stats", lanes, *part) for part in parts))
    return [Stats() if answer is None else _stats(answer) for answers in told for answer in answers]


def _stats(answer: Any) -> Stats:
    claimable, delayed, counters, skips = answer
    skipped = {skips[at].decode(): int(skips[at + 1]) for at in range(0, len(skips), 2)}
    known = dict(zip(_COUNTERS, counters, strict=True))
    return Stats(**known, claimable=claimable, delayed=delayed, skipped=skipped)


async def recount(engine: Engine, number: int) -> Stats:
    known, run = await stats(engine, number), await get(engine, number)
    ended = await _count_ended(engine, number)
    ready = delayed = leased = 0
    if run.state in ("running", "paused"):
        async for counts in look.census(engine, number):
            ready, delayed, leased = ready + counts[0], delayed + counts[1], leased + counts[2]
    seen = await _count_seen(engine, number)
    dead = await engine.read("HLEN", f"dead:{number}")
    # Tasks cancelled with their run leave nothing behind: what the seen-set knows and nothing else holds.
    gone = seen - ended["done"] - dead - ready - delayed - leased if known.cancelled else ended["cancelled"]
    return msgspec.structs.replace(
        known,
        seen=seen,
        ready=ready + delayed,
        delayed=delayed,
        leased=leased,
        done=ended["done"],
        dead=dead,
        cancelled=gone,
        records=known.trimmed + await engine.read("LLEN", f"records:{number}"),
    )


async def _count_ended(engine: Engine, number: int) -> dict[str, int]:
    counts, first = {"done": 0, "cancelled": 0}, 0
    while rows := await engine.read("LRANGE", f"ended:{number}", first, first + SLICE - 1):
        for row in rows:
            counts[row_state(row)] += 1
        first += SLICE
    return counts


async def _count_seen(engine: Engine, number: int) -> int:
    level, split = (
        int(value or 0) for value in await engine.read("HMGET", f"run:{number}", "level", "split")
    )
    count = 0
    for bucket in range(2**level + split):
        count += sum(
            not task.startswith(b"-") for task in await engine.read("HVALS", f"seen:{number}:{bucket}")
        )
    return count


async def strays(engine: Engine, number: int, limit: int) -> list[int]:
    run, cut = await get(engine, number), await engine.read("HGET", f"run:{number}", "cut")
    if run.state == "cancelled" or int(cut or 0):  # what was cancelled with its run is not there
        return []
    found: list[int] = []
    async for *_, gone in look.census(engine, number):
        found += [(number << TASK_BITS) | task for task in gone]
        if len(found) >= limit:
            break
    return found[:limit]


async def revive(engine: Engine, number: int, where: Where, limit: int) -> int:
    await get(engine, number)
    back, some = await _revive(engine, number, []), list[int]()  # it says whether the run may be revived
    async for view in look.dead(engine, number, where):
        if back + len(some) >= limit:
            break
        some.append(view.id & ((1 << TASK_BITS) - 1))
        if len(some) == REVIVED:
            back, some = back + await _revive(engine, number, some), []
    return back + await _revive(engine, number, some)


async def _revive(engine: Engine, number: int, tasks: list[int]) -> int:
    while True:
        word, *about = await engine.once("revive", number, *tasks)
        if word == b"unknown":
            raise unknown(number)
        if word == b"cancelled":
            raise Usage(
                f"run {about[0].decode()} was cancelled: its dead letters stay",
                hint="start it anew with --fresh",
            )
        await _sweep(engine, number, about[1])
        if word == b"ok":
            return int(about[0])


async def purge(engine: Engine, run: int | None, older_than: float | None) -> int:
    chosen: list[int] = []
    if run is not None:
        chosen = [run]
    elif older_than is not None:
        limit = await engine.now() - micros(older_than)
        ended = await listing(engine, "", "", ("finished", "cancelled"), "", 0, 1 << 30)
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
        word, *about = await engine.once("purge", number)
    if word == b"unknown" and ask:
        raise unknown(number)
    if word == b"open" and ask:
        name, state = (text.decode() for text in about)
        raise Usage(f"run {name} is {state}: only ended runs can be removed", hint="cancel it first")
