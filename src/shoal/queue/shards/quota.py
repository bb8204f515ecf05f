"""Quota: what each shard may hand out of a run that has a page limit.

A document at home says how many pages each part has been given; together never more than the limit. A part is given
some when it has work and none left: what nobody has yet, else what others do not use. Pages are taken from a part
before that is written down, and written down before they are given to another, so that a crash loses some for a while
and never makes more of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from shoal.core.run import Run
from shoal.errors import QueueRefused, QueueUnavailable
from shoal.queue.document_kinds import PAGE_QUOTA
from shoal.queue.page_limit import limit_refused
from shoal.queue.shards.filler import filler, push_filler, settle_filler, without_ends
from shoal.queue.shards.reopen import finish_at_home, reopen
from shoal.queue.shards.shard import Shard
from shoal.queue.shards.shard_set import ShardSet

PORTIONS = 4  # of what is left, a part gets so small a share at once


class PageQuota(msgspec.Struct, frozen=True):
    limit: int  # 0: there is none any more
    given: dict[int, int] = {}  # by shard: pages of the limit
    fillers: dict[int, int] = {}  # by shard: the number of the last filler, if it is not the first
    ended: str = ""  # the state in which the run was when all its pages had ended, and it with them
    version: int = 0

    def filler(self, shard: int) -> int:
        return self.fillers.get(shard, 1)

    @property
    def free(self) -> int:
        return max(0, self.limit - sum(self.given.values()))


class PartUse(msgspec.Struct, frozen=True):
    """What a part does with its pages."""

    shard: Shard
    local: int
    ready: int
    leased: int
    ended: int
    cancelled: int = 0

    @property
    def used(self) -> int:
        return self.leased + self.ended


async def read_quota(shards: ShardSet, run: int) -> PageQuota | None:
    found = await shards.home.ask(lambda it: it.document(PAGE_QUOTA, str(run)))
    if found is None:
        return None
    try:
        return replace(msgspec.json.decode(found.text, type=PageQuota), version=found.version)
    except msgspec.MsgspecError as error:
        raise QueueRefused(f"the page quota of run {run} cannot be read: {error}", hint="shoal doctor") from error


async def _save(shards: ShardSet, run: int, quota: PageQuota) -> PageQuota | None:
    text = msgspec.json.encode(replace(quota, version=0)).decode()
    saved = await shards.home.ask(lambda it: it.compare_and_swap(PAGE_QUOTA, str(run), text, quota.version))
    return replace(quota, version=saved.version) if saved is not None else None


async def limit_pages(shards: ShardSet, run: Run) -> None:
    """See that a run with a limit has a quota."""
    shards.limited.add(run.id)
    if await read_quota(shards, run.id) is None:
        await _save(shards, run.id, PageQuota(run.max_pages))


async def load_limited(shards: ShardSet) -> None:
    """Which runs have one, as the documents at home say."""
    for document in await shards.home.hint(lambda it: it.documents(PAGE_QUOTA), ()):
        if document.name.isdecimal():
            shards.limited.add(int(document.name))


async def _uses(shards: ShardSet, run: int, quota: PageQuota, *, whole: bool = True) -> list[PartUse]:
    """whole: also of shards that are away, which are refused; else only of those that answer."""
    parts = await shards.gather_runs(run, lambda it, local: it.stats(local), whole=whole)
    uses = []
    for shard, local, part in parts:
        name = filler(quota.filler(shard.index)).digest
        last = await shard.ask(lambda it, local=local, name=name: it.find(local, name))  # type: ignore[misc]
        held = last is not None and last.state == "leased"
        # All fillers before the last are done, and so is the last once the part has been let go.
        done = quota.filler(shard.index) - (last is None or last.state != "done")
        part = without_ends(part)
        uses.append(PartUse(shard, local, part.ready, part.leased - held, part.ended_pages - done, part.cancelled - 1))
    return uses


async def share_pages(
    shards: ShardSet, runs: Iterable[int] | None = None, wanted: Mapping[int, int] | None = None
) -> bool:
    """Give pages to parts that have work and none left; says whether any got some. `wanted`: work yet to come."""
    gave = False
    for run in tuple(shards.limited if runs is None else runs):
        try:
            gave |= await _share(shards, run, wanted or {})
        except QueueUnavailable:
            continue  # it goes on with what it has
    return gave


async def _share(shards: ShardSet, run: int, wanted: Mapping[int, int]) -> bool:
    quota = await read_quota(shards, run)
    if quota is None or not quota.limit or quota.ended:
        return False
    # What a shard that is away has been given stays its own; what nobody has is there for the others.
    uses = await _uses(shards, run, quota, whole=False)
    gave = False
    for use in uses:
        index = use.shard.index
        given = quota.given.get(index, 0)
        work = use.ready + wanted.get(index, 0)
        if not work or use.used + wanted.get(index, 1) - 1 < given:
            continue
        if not quota.free:
            taken = await _take(shards, run, quota, uses, index)
            if taken is None:
                return gave
            quota = taken
        some = min(
            work,
            max(wanted.get(index, 1), 1, quota.free // PORTIONS) if quota.free > len(uses) else wanted.get(index, 1),
            quota.free,
        )
        if some:
            saved = await _save(shards, run, replace(quota, given=quota.given | {index: given + some}))
            if saved is None:
                return gave
            quota = saved
            await _set_limit(use, quota)
            gave = True
    return gave


async def _take(shards: ShardSet, run: int, quota: PageQuota, uses: list[PartUse], wanting: int) -> PageQuota | None:
    """Take back what a part does not use: all of it where there is no work, else half."""
    for use in uses:
        index = use.shard.index
        spare = quota.given.get(index, 0) - use.used
        spare = spare if not use.ready else spare // 2
        if index == wanting or spare <= 0:
            continue
        lowered = replace(quota, given=quota.given | {index: quota.given[index] - spare})
        await _set_limit(use, lowered)
        # Only now: what was handed out before the limit was lowered is used.
        answering = await _uses(shards, run, quota, whole=False)
        now = next((it for it in answering if it.shard.index == index), None)
        if now is None:
            return None
        lowered = replace(quota, given=quota.given | {index: max(lowered.given[index], now.used)})
        if lowered.given[index] < quota.given[index]:
            return await _save(shards, run, lowered)
    return quota


async def _set_limit(use: PartUse, quota: PageQuota) -> None:
    pages = quota.given.get(use.shard.index, 0) + quota.filler(use.shard.index)
    await use.shard.ask(lambda it: it.set_max_pages(use.local, pages))


async def end_at_limit(shards: ShardSet, runs: Collection[int]) -> None:
    """End runs of which so many pages have ended as may: what is left is cancelled, on every shard."""
    for run in shards.limited.intersection(runs):
        try:
            quota = await read_quota(shards, run)
            if quota is None or not quota.limit or quota.ended:
                continue
            uses = await _uses(shards, run, quota)
            if sum(use.ended for use in uses) >= quota.limit:
                await _end(shards, run, quota, uses)
        except QueueUnavailable:
            continue  # whoever reaps does it


async def _end(shards: ShardSet, run: int, quota: PageQuota, uses: Iterable[PartUse]) -> None:
    for use in uses:
        number = quota.filler(use.shard.index)
        await use.shard.ask(lambda it, use=use, pages=use.ended + number: it.set_max_pages(use.local, pages))  # type: ignore[misc]
        await use.shard.ask(lambda it, use=use, number=number: settle_filler(it, use.local, number))  # type: ignore[misc]
    about = await shards.run(run, fresh=True)
    await finish_at_home(shards, run)
    await _save(shards, run, replace(quota, ended=about.state if about else "running"))


async def set_max_pages(shards: ShardSet, run: int, max_pages: int) -> Run:
    about = await shards.require(run)
    max_pages = max(0, max_pages)
    quota = await read_quota(shards, run) or PageQuota(0)
    if about.state not in ("running", "paused"):
        await _check_ended(shards, about, quota, max_pages)
    if not quota.version and not max_pages:  # there are no fillers, and none must be counted
        return about
    shards.limited.add(run)
    given: dict[int, int] = {}
    fillers: dict[int, int] = {}
    for use in await _uses(shards, run, quota) if quota.version else await _unlimited_uses(shards, run):
        index = use.shard.index
        given[index] = use.used
        number = quota.filler(index) + bool(quota.ended or not quota.limit) if quota.version else 1
        fillers[index] = number
        if max_pages:
            given[index] = await _limit_part(shards, run, quota, use, number)
        else:  # the part may end now
            await use.shard.ask(lambda it, use=use: it.set_max_pages(use.local, 0))  # type: ignore[misc]
            number = fillers[index] = quota.filler(index)
            await use.shard.ask(lambda it, use=use, number=number: settle_filler(it, use.local, number))  # type: ignore[misc]
    await _save(shards, run, PageQuota(max_pages, given, fillers, version=quota.version))
    await reopen(shards, run)
    changed = await shards.home.ask(lambda it: it.set_max_pages(run, max_pages))
    if quota.ended == "paused":
        changed = await shards.home.ask(lambda it: it.set_run(run, "pause"))
        await shards.gather_runs(run, lambda it, local: it.set_run(local, "pause"), whole=False)
    shards.note_run(changed)
    return changed


async def _limit_part(shards: ShardSet, run: int, quota: PageQuota, use: PartUse, number: int, more: int = 0) -> int:
    """Give a part the pages that it has used and so many more, and a filler; says how many it has then."""
    given = use.used + more
    await use.shard.ask(lambda it: it.set_max_pages(use.local, given + number))
    if quota.ended:
        # What was in progress when the limit ended it is so again, and counts.
        now = next(it for it in await _uses(shards, run, quota) if it.shard is use.shard)
        if now.used > use.used:
            given = now.used + more
            await use.shard.ask(lambda it: it.set_max_pages(use.local, given + number))
    await use.shard.ask(lambda it: push_filler(it, use.local, number))
    return given


async def reopen_at_limit(shards: ShardSet, run: int, revived: Mapping[int, int]) -> None:
    """A run that its limit ended goes on with what was left, and the pages that the revived gave back are their own."""
    # Until it is written down that it has not ended, by whomever.
    while (quota := await read_quota(shards, run)) is not None and quota.ended:
        given, fillers = dict(quota.given), dict(quota.fillers)
        for use in await _uses(shards, run, quota):
            index = use.shard.index
            fillers[index] = quota.filler(index) + 1
            own = min(use.ready, revived.get(index, 0))
            given[index] = await _limit_part(shards, run, quota, use, fillers[index], own)
        await _save(shards, run, PageQuota(quota.limit, given, fillers, version=quota.version))


async def _unlimited_uses(shards: ShardSet, run: int) -> list[PartUse]:
    parts = await shards.gather_runs(run, lambda it, local: it.stats(local))
    return [PartUse(shard, local, part.ready, part.leased, part.ended_pages) for shard, local, part in parts]


async def _check_ended(shards: ShardSet, run: Run, quota: PageQuota, max_pages: int) -> None:
    """UsageError if a run that has ended cannot go on with another limit."""
    if run.state != "finished" or not quota.ended:
        raise limit_refused("ended", run)
    uses = await _uses(shards, run.id, quota)
    ended = sum(use.ended for use in uses)
    if not any(use.cancelled for use in uses):
        raise limit_refused("ended", run)
    if 0 < max_pages <= ended:
        raise limit_refused("reached", run, ended)
    others = await shards.home.ask(lambda it: it.runs(key=run.key, states=("running", "paused"), limit=1))
    if others:
        raise limit_refused("replaced", run, others[0].name)
