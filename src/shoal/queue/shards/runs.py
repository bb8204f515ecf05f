"""The life of runs over shards: the home shard has the run, the others have parts of it that follow."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from msgspec.structs import replace

from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue, RunAction
from shoal.queue.shards.account import stats
from shoal.queue.shards.quota import limit_pages
from shoal.queue.shards.reopen import end_part, end_run
from shoal.queue.shards.run_numbers import KEY, is_part
from shoal.queue.shards.shard import LONG_TIMEOUT
from shoal.queue.shards.shard_set import ShardSet

OPEN: tuple[RunState, ...] = ("running", "paused")


async def start(shards: ShardSet, new: NewRun) -> Run:
    run = await shards.home.ask(lambda it: it.start_run(new))
    shards.note_run(run)
    if run.max_pages and run.state in OPEN:
        await limit_pages(shards, run)
    return run


async def listing(
    shards: ShardSet,
    *,
    key: str = "",
    name: str = "",
    states: Collection[RunState] = (),
    scraper: str = "",
    before: int = 0,
    limit: int = 100,
) -> list[Run]:
    """As the home shard has them; while that is away, as the others do, which know of those that they have parts of."""
    found: list[Run] = []
    try:
        while len(found) < limit:
            page = await shards.home.ask(
                lambda it, before=before: it.runs(  # type: ignore[misc]
                    key=key, name=name, states=states, scraper=scraper, before=before, limit=2 * limit
                )
            )
            found += [run for run in page if not is_part(run)]
            if len(page) < 2 * limit:
                break
            before = page[-1].id
    except QueueUnavailable:
        found = await _listed_elsewhere(shards, name, states, scraper, limit)
    for run in found[:limit]:
        shards.note_run(run)
    return found[:limit]


async def _listed_elsewhere(
    shards: ShardSet, name: str, states: Collection[RunState], scraper: str, limit: int
) -> list[Run]:
    others = [shard for shard in shards.shards[1:] if not shard.is_away]
    if not others:
        raise shards.home.away_error()
    parts = await shards.gather(lambda it: it.runs(name=name, states=states, scraper=scraper, limit=limit), others)
    runs: dict[int, Run] = {}
    for part in parts:
        for run in part or ():
            number = run.key.removeprefix(KEY)
            if number.isdecimal():
                known = shards.known_run(int(number))
                if known is None or known.state not in ("finished", "cancelled"):
                    runs.setdefault(int(number), replace(run, id=int(number), key=known.key if known else ""))
    return [runs[number] for number in sorted(runs, reverse=True)][:limit]


async def set_state(shards: ShardSet, run: int, action: RunAction) -> Run:
    if action == "finish" and await _refuse_unfinished(shards, run):
        return await end_run(shards, run)
    changed = await shards.home.ask(lambda it: it.set_run(run, action), LONG_TIMEOUT)
    shards.note_run(changed)
    await follow(shards, run, action)
    return changed


async def follow(shards: ShardSet, run: int, action: RunAction) -> None:
    """Do with the parts of a run what was done with the run; what cannot be told now is told by upkeep."""

    async def act(queue: Queue, local: int) -> None:
        with contextlib.suppress(UsageError):  # it is in that state already, or what was cancelled there is gone
            await queue.set_run(local, action)

    await shards.gather_runs(run, act, whole=False, timeout=LONG_TIMEOUT)


async def _refuse_unfinished(shards: ShardSet, run: int) -> bool:
    """UsageError if there is work anywhere; whether the run is open.

    Two looks in a row: what was on its way between two shards at the first is found by the second, since nothing can
    be done without more being seen by somebody.
    """
    about = await shards.run(run, fresh=True)
    if about is None or about.state not in OPEN:
        return False
    looks = [await _look(shards, run) for _ in range(2)]
    if looks[0] == looks[1] and all(over for _, _, over in looks[0]):
        return True
    now = await stats(shards, run)
    raise UsageError(
        f"run {about.name} has {now.open:,} open tasks and {now.outbox:,} entries in its outbox: it is not finished",
        hint="wait for them, or cancel it",
    )


async def _look(shards: ShardSet, run: int) -> list[tuple[int, int, bool]]:
    from shoal.queue.shards.account import part_of

    async def look(queue: Queue, local: int) -> Stats:
        return await queue.stats(local)

    parts = await shards.gather_runs(run, look)
    found = [(shard.index, await part_of(shards, shard, run, local, part)) for shard, local, part in parts]
    return [(index, part.seen, part.is_over) for index, part in found]


async def reconcile(shards: ShardSet) -> None:
    """Parts that missed what became of their run are told; while lanes are moved they are left as they are."""
    if shards.map.joining or shards.map.moving:
        return
    for shard in shards.shards:
        for part in await shard.hint(lambda it: it.runs(states=OPEN, limit=1000), ()):
            number = part.key.removeprefix(KEY)
            run = await shards.run(int(number), fresh=True) if is_part(part) and number.isdecimal() else None
            if run is not None and run.state == "finished":
                await shard.hint(lambda it, part=part: end_part(it, part.id), None)  # type: ignore[misc]
            action = _ACTIONS.get((part.state, run.state)) if run is not None else None
            if action is not None:
                with contextlib.suppress(UsageError, QueueUnavailable):
                    await shard.ask(lambda it, part=part, action=action: it.set_run(part.id, action))  # type: ignore[misc]


_ACTIONS: dict[tuple[RunState, RunState], RunAction] = {
    ("paused", "running"): "resume",
    ("running", "paused"): "pause",
    ("running", "cancelled"): "cancel",
    ("paused", "cancelled"): "cancel",
}
