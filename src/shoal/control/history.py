"""History: what the fleet did in the last day, kept in the queue by whoever does the upkeep.

One sample for every slot of ten seconds, however many try: a sample is added to its chunk by swap, together
with what the next one is measured against. Before a new chunk is begun the last one is closed, so that nobody
can still add to it what the new one counts, too. An hour later chunks become minutes of an hour.

What workers leave when they end is counted with a sample, which remembers whose it was, and then removed.

Documents of kind "history": `index` (which there are), `fine/<start>` (five minutes), `hour/<start>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec

from shoal.control.registry import STALE_AFTER, by_state
from shoal.control.runs import HERE
from shoal.control.sample import BASE_ENDED, HOSTS, Base, RunBase, Sample, Sight, measure, merge
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Paper, Queue
from shoal.worker.farewell import Farewell, Left, left, take_away

KIND = "history"
INDEX = "index"
SLOT, CHUNK, MINUTE, HOUR = 10, 300, 60, 3600  # seconds
FINE_FOR = HOUR  # so long chunks are kept as they are
KEPT_FOR = 25 * HOUR
RUNS_SEEN = 500  # unfinished ones that are sampled
LATELY = 20  # of those that ended, so many are looked at
TRIES = 5  # to change the index against others, or to add the last sample
ROLLED_AT_ONCE = 24  # chunks


class Index(msgspec.Struct, frozen=True):
    """The starts of what is kept."""

    fine: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()


class Chunk(msgspec.Struct):
    """Samples in a row; only in the newest chunk does `base` count."""

    samples: list[Sample] = []
    base: Base = msgspec.field(default_factory=Base)
    closed: bool = False


class Hour(msgspec.Struct):
    """One sample a minute, and the chunks they came from."""

    samples: list[Sample] = []
    chunks: list[int] = []


class Series(msgspec.Struct, frozen=True):
    """Samples by time, the oldest first."""

    now: float  # seconds
    samples: tuple[Sample, ...] = ()

    def last(self, seconds: float) -> list[Sample]:
        return [one for one in self.samples if one.at > self.now - seconds]


class Ledger(msgspec.Struct, frozen=True):
    """What was counted up to the last sample, and the farewells that may not be in it."""

    base: Base = msgspec.field(default_factory=Base)
    farewells: tuple[Farewell, ...] = ()


D = TypeVar("D", Index, Chunk, Hour)


class History:
    def __init__(self, queue: Queue, *, stale_after: float = STALE_AFTER) -> None:
        self._queue = queue
        self._stale_after = stale_after
        self._slot = 0  # of the last sample that is known here
        self._whole: dict[str, tuple[Sample, ...]] = {}  # of documents that will not change any more
        self._hours: dict[int, Hour] = {}

    async def note(self, *, final: bool = False) -> bool:
        """Add the sample of this slot unless somebody has; whether it was us.

        final: also where there is one, with what happened since; for whoever looks for the last time.
        """
        for _ in range(TRIES if final else 1):
            if await self._note(final):
                return True
        return False

    async def _note(self, final: bool) -> bool:
        now = await self._queue.now()
        slot = now // (SLOT * 1_000_000)
        if slot <= self._slot and not final:
            return False
        start = slot * SLOT // CHUNK * CHUNK
        index, _ = await self._read(INDEX, Index)
        name, chunk, version = await self._newest(index, start)
        last = chunk.samples[-1].at // SLOT if chunk.samples else 0
        if last >= slot and not (final and last == slot):
            self._slot = last
            return False
        if name == _fine(start):
            return await self._add(name, chunk, version, slot, now)
        # A closed one keeps its base: whoever closed it may not live to begin the next.
        if name and not (chunk.closed or await self._close(name, chunk, version)):
            return False
        await self._index(lambda known: Index(_with(known.fine, start), known.hours))
        added = await self._add(_fine(start), Chunk(base=chunk.base), 0, slot, now)
        if added:
            await self._tidy(now // 1_000_000)
        return added

    async def _close(self, name: str, chunk: Chunk, version: int) -> bool:
        return bool(await self._swap(name, msgspec.structs.replace(chunk, closed=True), version))

    async def _add(self, name: str, chunk: Chunk, version: int, slot: int, now: int) -> bool:
        farewells: list[Left] = []
        sample, base = measure(chunk.base, await self._sight(chunk.base, now, farewells))
        samples = list(chunk.samples)
        if samples and samples[-1].at // SLOT == sample.at // SLOT:
            samples[-1] = merge([samples[-1], sample])
        else:
            samples.append(sample)
        if not await self._swap(name, Chunk(samples, base), version):
            return False
        self._slot = max(self._slot, slot, sample.at // SLOT)
        await take_away(self._queue, farewells)
        return True

    async def _sight(self, base: Base, now: int, farewells: list[Left]) -> Sight:
        queue = self._queue
        runs = await queue.runs(states=("running", "paused"), limit=RUNS_SEEN)
        ended = await queue.runs(states=("finished", "cancelled"), limit=LATELY)
        known = {run.id for run in runs}
        # What ended since the last look still has to be counted, and what ended may go on again.
        runs += [run for run in ended if run.id in base.runs or run.changed_at / 1e6 >= base.at]
        listed = {run.id for run in runs}
        gone = [number for number, was in base.runs.items() if number not in listed and was.open][:BASE_ENDED]
        stats = await queue.stats_of([*(run.id for run in runs), *gone])
        pairs: list[tuple[Run, Stats]] = list(zip(runs, stats, strict=False))
        for number, found in zip(gone, stats[len(runs) :], strict=True):
            pairs.append((_ended(number, base.runs[number]), found))
        marks = await queue.workers()
        farewells += await left(queue)  # after the marks: whoever is not among these has said it by now
        alive = [mark for mark in marks if now - mark.seen_at <= self._stale_after * 1e6]
        return Sight(
            now=now,
            runs=sorted(pairs, key=lambda pair: (pair[0].id not in known, -pair[0].id)),
            marks=alive,
            states=by_state((mark for mark in marks if HERE not in mark.serves), now, self._stale_after),
            lanes=await queue.lanes(limit=HOSTS),
            farewells=[one for papers in farewells for one in papers.farewells],
            silent=[mark.id for mark in marks if now - mark.seen_at > self._stale_after * 1e6],
        )

    async def ledger(self) -> Ledger:
        """For sums over all that workers have done. To be asked for after the marks they go with."""
        farewells = tuple(one for papers in await left(self._queue) for one in papers.farewells)
        index, _ = await self._read(INDEX, Index)
        _, chunk, _ = await self._newest(index, await self._queue.now() // 1_000_000)
        return Ledger(chunk.base, farewells)

    async def read(self, seconds: float) -> Series:
        """What is known of the last so many seconds: of the last hour by slots, before that by minutes."""
        now = await self._queue.now() / 1e6
        index, _ = await self._read(INDEX, Index)
        since = now - seconds
        samples: list[Sample] = []
        rolled: set[int] = set()
        for start in index.hours:
            if start + HOUR > since:
                hour = await self._hour(start, now)
                samples += hour.samples
                rolled.update(hour.chunks)
        for start in index.fine:
            if start + CHUNK > since and start not in rolled:
                samples += await self._chunk(start)
        keep = {_fine(start) for start in index.fine}
        self._whole = {name: kept for name, kept in self._whole.items() if name in keep}
        self._hours = {start: kept for start, kept in self._hours.items() if start in index.hours}
        kept = sorted((one for one in samples if since < one.at <= now), key=lambda one: one.at)
        return Series(now, tuple(kept))

    async def _chunk(self, start: int) -> Sequence[Sample]:
        name = _fine(start)
        if name not in self._whole:
            chunk, _ = await self._read(name, Chunk)
            if not chunk.closed:
                return chunk.samples
            self._whole[name] = tuple(chunk.samples)
        return self._whole[name]

    async def _hour(self, start: int, now: float) -> Hour:
        if start not in self._hours:
            hour, _ = await self._read(f"hour/{start}", Hour)
            if now < start + HOUR + FINE_FOR + 2 * CHUNK:
                return hour
            self._hours[start] = hour
        return self._hours[start]

    async def _newest(self, index: Index, start: int) -> tuple[str, Chunk, int]:
        """The newest chunk there is up to now; one that was announced may never have come."""
        for begun in sorted((one for one in index.fine if one <= start), reverse=True):
            chunk, version = await self._read(_fine(begun), Chunk)
            if version:
                return _fine(begun), chunk, version
        return "", Chunk(), 0

    async def _tidy(self, now: int) -> None:
        """Roll up what is old, remove what is too old; what is left undone here the next one does."""
        index, _ = await self._read(INDEX, Index)
        old = [start for start in index.fine if start + CHUNK + FINE_FOR <= now]
        for start in sorted(old)[:ROLLED_AT_ONCE]:
            await self._roll(start)
        for start in [start for start in index.hours if start + HOUR + KEPT_FOR <= now]:
            await self._drop_hour(start)

    async def _drop_hour(self, start: int) -> None:
        await self._remove(f"hour/{start}")
        await self._index(lambda known: Index(known.fine, _without(known.hours, start)))

    async def _roll(self, start: int) -> None:
        """Five minutes become five samples of their hour. The hour says which it has: none counts twice."""
        beginning = start // HOUR * HOUR
        await self._index(lambda known: Index(known.fine, _with(known.hours, beginning)))
        chunk, version = await self._read(_fine(start), Chunk)
        hour, there = await self._read(f"hour/{beginning}", Hour)
        if version and start not in hour.chunks:
            samples = sorted((*hour.samples, *minutes(chunk.samples)), key=lambda one: one.at)
            if not await self._swap(f"hour/{beginning}", Hour(samples, [*hour.chunks, start]), there):
                return  # somebody else is at it
        if version:
            await self._remove(_fine(start))
        await self._index(lambda known: Index(_without(known.fine, start), known.hours))

    async def _index(self, change: Callable[[Index], Index]) -> None:
        for _ in range(TRIES):
            known, version = await self._read(INDEX, Index)
            wanted = change(known)
            if wanted == known or await self._swap(INDEX, wanted, version):
                return

    async def _read(self, name: str, kind: type[D]) -> tuple[D, int]:
        paper = await self._queue.paper(KIND, name)
        if paper is None:
            return kind(), 0
        try:
            return msgspec.json.decode(paper.text, type=kind), paper.version
        except msgspec.DecodeError:
            return kind(), paper.version  # of another version of ours: it is written anew

    async def _swap(self, name: str, document: Index | Chunk | Hour, version: int) -> Paper | None:
        return await self._queue.swap(KIND, name, msgspec.json.encode(document).decode(), version)

    async def _remove(self, name: str) -> None:
        paper = await self._queue.paper(KIND, name)
        if paper is not None:
            await self._queue.swap(KIND, name, None, paper.version)


def minutes(samples: Iterable[Sample]) -> list[Sample]:
    """One sample a minute."""
    return [merge(list(group)) for _, group in groupby(samples, key=lambda one: one.at // MINUTE)]


def _fine(start: int) -> str:
    return f"fine/{start}"


def _with(starts: tuple[int, ...], one: int) -> tuple[int, ...]:
    return starts if one in starts else tuple(sorted((*starts, one)))


def _without(starts: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(start for start in starts if start != one)


def _ended(number: int, was: RunBase) -> Run:
    """A run of which only its number is left to ask by."""
    spec = {"mode": HERE} if was.own else {}
    return Run(number, was.name, scraper="", key="", state="finished", created_at=0, changed_at=0, spec=spec)
