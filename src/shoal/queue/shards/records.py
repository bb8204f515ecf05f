"""Records over shards, in one order for all readers.

Each shard numbers its own. Whoever comes to the end of what is known asks all shards for more, and writes into a
document on the home shard in which order it found them: from then on that is their order, and the place of a record in
it is its `seq`. So whoever goes on after a `seq` misses none, however unequally shards make progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator

import msgspec
from msgspec.structs import replace

from shoal.errors import QueueRefused
from shoal.queue.base import Queue, StoredRecord
from shoal.queue.document_kinds import RECORD_ORDER
from shoal.queue.shards.numbers import in_run, of_run
from shoal.queue.shards.shard_set import ShardSet

PAGE = 1000
MAX_CACHED = 1_000


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Records of a shard that follow one another."""

    shard: int
    after: int  # the seq on the shard before the first of them
    count: int


class RecordOrder(msgspec.Struct, frozen=True):
    segments: tuple[Segment, ...] = ()
    start: int = 0  # of the order, so many at the beginning are gone
    frontier: dict[int, int] = {}  # by shard: up to which seq its records are in here
    imported: int = 0  # so many came from another queue
    version: int = 0  # of the document

    def placed(self) -> Iterator[tuple[int, Segment]]:
        """Segments with the seq before their first record."""
        at = self.start
        for segment in self.segments:
            yield at, segment
            at += segment.count

    @property
    def end(self) -> int:
        return self.start + sum(segment.count for segment in self.segments)

    def with_records(self, shard: int, upto: int) -> RecordOrder:
        before = self.frontier.get(shard, 0)
        segments = self.segments
        last = segments[-1] if segments else None
        if last is not None and last.shard == shard and last.after + last.count == before:
            segments = (*segments[:-1], replace(last, count=last.count + upto - before))
        else:
            segments = (*segments, Segment(shard, before, upto - before))
        return replace(self, segments=segments, frontier=self.frontier | {shard: upto})


async def _read_order(shards: ShardSet, run: int) -> RecordOrder:
    found = await shards.home.ask(lambda it: it.document(RECORD_ORDER, str(run)))
    if found is None:
        return RecordOrder()
    try:
        return replace(msgspec.json.decode(found.text, type=RecordOrder), version=found.version)
    except msgspec.MsgspecError as error:
        raise QueueRefused(f"the order of the records of run {run} cannot be read: {error}") from error


async def _save_order(shards: ShardSet, run: int, order: RecordOrder) -> RecordOrder | None:
    text = msgspec.json.encode(replace(order, version=0)).decode()
    saved = await shards.home.ask(lambda it: it.compare_and_swap(RECORD_ORDER, str(run), text, order.version))
    if saved is None:
        shards.record_orders.pop(run, None)
        return None
    order = replace(order, version=saved.version)
    if len(shards.record_orders) > MAX_CACHED:
        shards.record_orders.clear()
    shards.record_orders[run] = order
    return order


async def _order(shards: ShardSet, run: int) -> RecordOrder:
    return shards.record_orders.get(run) or await _read_order(shards, run)


async def _extend(shards: ShardSet, run: int, limit: int) -> RecordOrder:
    """Put into the order what the shards have beyond it, as far as they answer."""
    while True:
        order = extended = await _order(shards, run)
        parts = await shards.gather_runs(run, _reader(shards, order, limit), whole=False)
        for shard, _, upto in parts:
            if upto > extended.frontier.get(shard.index, 0):
                extended = extended.with_records(shard.index, upto)
        if extended is order:
            return order
        if (saved := await _save_order(shards, run, extended)) is not None:
            return saved


def _reader(shards: ShardSet, order: RecordOrder, limit: int) -> Callable[[Queue, int], Awaitable[int]]:
    async def last_new(queue: Queue, local: int) -> int:
        """The seq of the last of the next records of a shard; 0: there are none."""
        index = next(shard.index for shard in shards.shards if shard.queue is queue)
        found = await queue.records(local, after=order.frontier.get(index, 0), limit=min(limit, PAGE))
        return found[-1].seq if found else 0

    return last_new


async def page(
    shards: ShardSet, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
) -> list[StoredRecord]:
    if tasks:
        return await _of_tasks(shards, run, after, limit, tasks)
    order = await _order(shards, run)
    if order.end < after + limit:
        order = await _extend(shards, run, limit)
    found: list[StoredRecord] = []
    for at, segment in order.placed():
        if at + segment.count > after and len(found) < limit:
            found += await _of_segment(shards, run, at, segment, max(after, at), limit - len(found))
    if not found and shards.away:
        await _refuse_unread(shards, run)
    return found


async def _of_segment(
    shards: ShardSet, run: int, at: int, segment: Segment, after: int, limit: int
) -> list[StoredRecord]:
    shard = shards.shards[segment.shard]
    local = await shards.runs.find(shard, run)
    start, end = segment.after + after - at, segment.after + segment.count
    some = await shard.ask(lambda it: it.records(local, after=start, limit=min(limit, end - start)))
    shift = at - segment.after
    return [StoredRecord(it.seq + shift, in_run(it.task, run), it.data) for it in some if it.seq <= end]


async def _of_tasks(shards: ShardSet, run: int, after: int, limit: int, tasks: Collection[int]) -> list[StoredRecord]:
    """Those of some tasks, wherever they are; what nobody has read yet gets its place first."""
    order = await whole_order(shards, run)
    parts = await shards.gather_runs(
        run, lambda it, local: _all_of_tasks(it, local, of_run(tasks, run, local), after + limit)
    )
    if order.imported:
        return await _of_imported(shards, run, after, limit, frozenset(tasks))
    found = [
        StoredRecord(place_of(order, shard.index, it.seq), in_run(it.task, run), it.data)
        for shard, _, part in parts
        for it in part
    ]
    return sorted((it for it in found if it.seq > after), key=lambda it: it.seq)[:limit]


async def _of_imported(shards: ShardSet, run: int, after: int, limit: int, tasks: frozenset[int]) -> list[StoredRecord]:
    """Of tasks that came from another queue: their records are at home, whatever shard they are on."""
    found: list[StoredRecord] = []
    while len(found) < limit and (some := await page(shards, run, after=after, limit=PAGE)):
        found += [record for record in some if record.task in tasks]
        after = some[-1].seq
    return found[:limit]


async def _all_of_tasks(queue: Queue, local: int, tasks: Collection[int], most: int) -> list[StoredRecord]:
    """A shard's order is that of all, as far as it goes: beyond so many of it none can be among the next."""
    found: list[StoredRecord] = []
    while len(found) < most:
        after, left = found[-1].seq if found else 0, min(PAGE, most - len(found))
        some = await queue.records(local, after=after, limit=left, tasks=tasks)
        found += some
        if len(some) < left:
            break
    return found


async def _refuse_unread(shards: ShardSet, run: int) -> None:
    """A run that has ended is read as a whole or not at all; of one that goes on, more comes later anyway."""
    about = await shards.run(run)
    if about is not None and about.state in ("running", "paused"):
        return
    for shard in shards.shards:
        if shard.is_away:
            raise shard.away_error()


async def trim(shards: ShardSet, run: int, upto: int) -> int:
    gone = 0
    order = await _order(shards, run)
    if order.end < upto:
        order = await whole_order(shards, run)
    left: list[Segment] = []
    start = order.start
    for at, segment in order.placed():
        if at < upto:
            shard = shards.shards[segment.shard]
            local = await shards.runs.find(shard, run)
            last = segment.after + min(segment.count, upto - at)
            gone += await shard.ask(lambda it, local=local, last=last: it.trim(local, last))  # type: ignore[misc]
        if at + segment.count <= upto and not left:
            start = at + segment.count
        else:
            left.append(segment)
    if start > order.start:
        await _save_order(shards, run, replace(order, segments=tuple(left), start=start))
    return gone


async def whole_order(shards: ShardSet, run: int) -> RecordOrder:
    """The order with all that there is now."""
    order = await _extend(shards, run, PAGE)
    while (further := await _extend(shards, run, PAGE)).end > order.end:
        order = further
    return order


def place_of(order: RecordOrder, shard: int, seq: int) -> int:
    """The place of a shard's record in the order."""
    for at, segment in order.placed():
        if segment.shard == shard and segment.after < seq <= segment.after + segment.count:
            return seq - segment.after + at
    return seq


async def note_imported(shards: ShardSet, run: int, upto: int) -> None:
    """Records that were imported keep their seq, and are on the home shard; new ones come after them."""
    while True:
        order = await _read_order(shards, run)
        if upto <= order.frontier.get(0, 0) or (order.segments and order.segments[0].shard):
            return
        if await _save_order(shards, run, replace(order.with_records(0, upto), imported=upto)) is not None:
            return
