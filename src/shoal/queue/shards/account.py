"""The account of a run over shards: the sum of what each has, and what is on its way between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from shoal.core.stats import Stats, sum_stats
from shoal.errors import QueueUnavailable
from shoal.queue.shards.filler import NEEDS, filler, without_ends
from shoal.queue.shards.moved_tasks import without_moved
from shoal.queue.shards.numbers import in_run
from shoal.queue.shards.quota import read_quota
from shoal.queue.shards.shard import LONG_TIMEOUT, Shard
from shoal.queue.shards.shard_set import ShardSet
from shoal.queue.shards.transit import count_links

MAX_KEPT = 10_000


async def stats(shards: ShardSet, run: int) -> Stats:
    await shards.require(run)
    return await _with_free_pages(shards, run, await _account(shards, run))


async def _with_free_pages(shards: ShardSet, run: int, account: Stats) -> Stats:
    """Pages of a limit that no shard has yet can be claimed by whoever comes."""
    quota = await read_quota(shards, run) if run in shards.limited and account.ready and not account.away else None
    if quota is None or quota.ended or (about := await shards.run(run)) is None or about.state != "running":
        return account
    waiting = account.ready - account.delayed - account.claimable
    return replace(account, claimable=account.claimable + max(0, min(quota.free, waiting)))


async def recount(shards: ShardSet, run: int) -> Stats:
    parts = await shards.gather_runs(run, lambda it, local: it.recount(local), timeout=LONG_TIMEOUT)
    counted = sum_stats([await part_of(shards, shard, run, local, part) for shard, local, part in parts])
    return await _with_free_pages(shards, run, counted)


async def stats_of(shards: ShardSet, runs: Sequence[int]) -> list[Stats]:
    """One question per shard; of a run that is unknown at home there is nothing."""

    async def ask(shard: Shard) -> dict[int, Stats] | None:
        try:
            locals_ = {run: await shards.runs.find(shard, run) for run in runs}
            asked = [(run, local) for run, local in locals_.items() if local]
            parts = await shard.ask(lambda it: it.stats_of([local for _, local in asked]))
            return {
                run: await part_of(shards, shard, run, local, part)
                for (run, local), part in zip(asked, parts, strict=True)
            }
        except QueueUnavailable:
            return None

    answers = [await ask(shard) for shard in shards.shards]
    if all(answer is None for answer in answers):
        raise shards.home.away_error()
    totals = [
        sum_stats(
            [
                _known(shards, shard, run) if answer is None else answer.get(run, Stats())
                for shard, answer in zip(shards.shards, answers, strict=True)
            ]
        )
        for run in runs
    ]
    return [await _with_free_pages(shards, run, account) for run, account in zip(runs, totals, strict=True)]


async def _account(shards: ShardSet, run: int) -> Stats:
    parts: list[Stats] = []
    for shard in shards.shards:
        try:
            local = await shards.runs.find(shard, run)
            if local:
                part = await shard.ask(lambda it, local=local: it.stats(local))  # type: ignore[misc]
                parts.append(await part_of(shards, shard, run, local, part))
        except QueueUnavailable:
            parts.append(_known(shards, shard, run))
    if len(shards.away) == len(shards.shards):
        raise shards.home.away_error()
    return sum_stats(parts)


async def part_of(shards: ShardSet, shard: Shard, run: int, local: int, part: Stats) -> Stats:
    """What a shard has of a run, without what is the queue's own, and with what is on its way from it."""
    part = without_ends(await without_moved(shards, shard, run, part))
    part = replace(part, seen=part.seen - 1, cancelled=part.cancelled - 1)  # see run_numbers.FIRST
    if run in shards.limited:
        part = await _without_fillers(shards, shard, run, local, part)
    if part.outbox:
        part = replace(part, in_transit=await count_links(shards, shard, local, part.outbox))
    if len(shards.last_stats) > MAX_KEPT:
        shards.last_stats.clear()
    shards.last_stats[shard.index, run] = part
    return part


async def _without_fillers(shards: ShardSet, shard: Shard, run: int, local: int, part: Stats) -> Stats:
    quota = await read_quota(shards, run)
    for number in range(1, (quota.filler(shard.index) if quota else 0) + 1):
        view = await shard.ask(lambda it, number=number: it.find(local, filler(number).digest))  # type: ignore[misc]
        if view is not None:
            state = "ready" if view.state == "delayed" else view.state
            part = replace(part, seen=part.seen - 1, **{state: getattr(part, state) - 1})
    return replace(part, needs={name: count for name, count in part.needs.items() if name != "+".join(NEEDS)})


def _known(shards: ShardSet, shard: Shard, run: int) -> Stats:
    """What was last known of a shard that is away; nothing of it can be claimed now."""
    return replace(shards.last_stats.get((shard.index, run), Stats()), claimable=0, away=(shard.name,))


async def run_counters(shards: ShardSet, run: int) -> dict[str, int]:
    await shards.require(run)
    parts = await shards.gather_runs(run, lambda it, local: it.run_counters(local), whole=False)
    counted = Counter[str]()
    for _, _, part in parts:
        counted.update(part)
    return dict(counted)


async def orphans(shards: ShardSet, run: int, limit: int = 20) -> list[int]:
    parts = await shards.gather_runs(run, lambda it, local: it.orphans(local, limit), timeout=LONG_TIMEOUT)
    return sorted(in_run(task, run) for _, _, part in parts for task in part)[:limit]
