"""The history of the fleet over the last week, kept in the queue by whoever does the maintenance.

One sample for every slot of ten seconds (every third where there are many workers), however many try: a sample is
added to its chunk by swap, together with what the next one is measured against. Before a new chunk is begun the last
one is closed, so that nobody can still add to it what the new one counts, too. An hour later chunks become minutes of
an hour, and a day later these become stretches of ten minutes.

What workers leave when they end is counted with a sample, which remembers whose it was, and then removed.

Documents of kind "history": `index` (which there are), `fine/<start>` (five minutes), `hour/<start>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from shoal.control.history_baseline import pack_baseline, unpack_baseline
from shoal.control.history_sample import (
    BASELINE_ENDED_RUNS,
    MAX_HOSTS,
    Baseline,
    Observation,
    RunBaseline,
    Sample,
    measure,
    merge,
)
from shoal.control.worker_states import STALE_AFTER, count_by_state
from shoal.core.counters import WorkerCounters
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.identity import SERVER_MODE
from shoal.worker.pool.final_counts import FinalCountsDocument, delete_final_counts, list_final_counts

INDEX = "index"
SLOT, CHUNK, MINUTE, HOUR = 10, 300, 60, 3600  # seconds
COARSE = 600  # seconds that a sample stands for after a day
MAX_STRIDE = 3  # with many workers a sample is large, and comes every so many slots
WORKERS_PER_STRIDE = 400
FINE_RETENTION = HOUR  # so long chunks are kept as they are
MINUTE_RETENTION = 25 * HOUR  # so long hours are kept by the minute
RETENTION = (7 * 24 + 1) * HOUR
MAX_RUNS = 500  # unfinished ones that are sampled
MAX_ENDED_RUNS = 20  # of those that ended, so many are looked at
MAX_ATTEMPTS = 5  # to change the index against others, or to add the last sample
ROLL_UP_BATCH, COARSE_BATCH = 24, 6  # chunks, and hours


class Index(msgspec.Struct, frozen=True):
    """The starts of what is kept."""

    fine: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    coarse: tuple[int, ...] = ()  # of the hours, those that have one sample for ten minutes


class Chunk(msgspec.Struct):
    """Samples in a row; only in the newest chunk does `base` count, and only whoever adds to it looks into that."""

    samples: list[Sample] = []
    base: str = ""  # packed: it is by far the larger part
    closed: bool = False
    stride: int = 1  # slots from one sample to the next


class Hour(msgspec.Struct):
    """One sample a minute, or for ten, and the chunks they came from."""

    samples: list[Sample] = []
    chunks: list[int] = []


class Series(msgspec.Struct, frozen=True):
    """Samples by time, the oldest first."""

    now: float  # seconds
    samples: tuple[Sample, ...] = ()

    def last(self, seconds: float) -> list[Sample]:
        return [one for one in self.samples if one.at > self.now - seconds]


class LifetimeCounters(msgspec.Struct, frozen=True):
    """What was counted up to the last sample, and the final counts that may not be in it."""

    base: Baseline = msgspec.field(default_factory=Baseline)
    final_counts: tuple[WorkerCounters, ...] = ()


D = TypeVar("D", Index, Chunk, Hour)


class History:
    def __init__(self, queue: Queue, *, stale_after: float = STALE_AFTER) -> None:
        self._queue = queue
        self._stale_after = stale_after
        self._slot = 0  # of the last sample that is known here
        self._closed_chunks: dict[str, tuple[Sample, ...]] = {}  # of documents that will not change any more
        self._hours: dict[int, Hour] = {}

    async def add_sample(self, *, final: bool = False) -> bool:
        """Add the sample of this slot unless somebody has; whether it was us.

        final: also where there is one, with what happened since; for whoever looks for the last time.
        """
        for _ in range(MAX_ATTEMPTS if final else 1):
            if await self._add_sample(final):
                return True
        return False

    async def _add_sample(self, final: bool) -> bool:
        now = await self._queue.now()
        slot = now // (SLOT * 1_000_000)
        if slot <= self._slot and not final:
            return False
        start = slot * SLOT // CHUNK * CHUNK
        index, _ = await self._read(INDEX, Index)
        name, chunk, version = await self._newest_chunk(index, start)
        last = chunk.samples[-1].at // SLOT if chunk.samples else 0
        if last > slot or (slot - last < chunk.stride and not final):
            self._slot = last + chunk.stride - 1
            return False
        if name == _chunk_name(start):
            return await self._append_sample(name, chunk, version, slot, now)
        # A closed one keeps its base: whoever closed it may not live to begin the next.
        if name and not (chunk.closed or await self._close(name, chunk, version)):
            return False
        await self._update_index(lambda known: replace(known, fine=_including(known.fine, start)))
        added = await self._append_sample(_chunk_name(start), Chunk(base=chunk.base), 0, slot, now)
        if added:
            await self._compact(now // 1_000_000)
        return added

    async def _close(self, name: str, chunk: Chunk, version: int) -> bool:
        return bool(await self._write(name, replace(chunk, closed=True), version))

    async def _append_sample(self, name: str, chunk: Chunk, version: int, slot: int, now: int) -> bool:
        final_counts: list[FinalCountsDocument] = []
        before = unpack_baseline(chunk.base)
        sample, base = measure(before, await self._observe(before, now, final_counts))
        samples = list(chunk.samples)
        if samples and samples[-1].at // SLOT == sample.at // SLOT:
            samples[-1] = merge([samples[-1], sample])
        else:
            samples.append(sample)
        stride = min(MAX_STRIDE, 1 + len(base.workers) // WORKERS_PER_STRIDE)
        if not await self._write(name, Chunk(samples, pack_baseline(base), stride=stride), version):
            return False
        self._slot = max(self._slot, slot, sample.at // SLOT)
        await delete_final_counts(self._queue, final_counts)
        return True

    async def _observe(self, base: Baseline, now: int, final_counts: list[FinalCountsDocument]) -> Observation:
        queue = self._queue
        runs = await queue.runs(states=("running", "paused"), limit=MAX_RUNS)
        ended = await queue.runs(states=("finished", "cancelled"), limit=MAX_ENDED_RUNS)
        known = {run.id for run in runs}
        # What ended since the last look still has to be counted, and what ended may go on again.
        runs += [run for run in ended if run.id in base.runs or run.changed_at / 1e6 >= base.at]
        listed = {run.id for run in runs}
        gone = [number for number, was in base.runs.items() if number not in listed and was.open]
        del gone[BASELINE_ENDED_RUNS:]
        stats = await queue.stats_of([*(run.id for run in runs), *gone])
        pairs: list[tuple[Run, Stats]] = list(zip(runs, stats, strict=False))
        for number, found in zip(gone, stats[len(runs) :], strict=True):
            pairs.append((_ended_run(number, base.runs[number]), found))
        statuses = await queue.workers()
        # After the statuses: whoever is not among these has said it by now.
        final_counts += await list_final_counts(queue)
        alive = [status for status in statuses if now - status.seen_at <= self._stale_after * 1e6]
        return Observation(
            now=now,
            runs=sorted(pairs, key=lambda pair: (pair[0].id not in known, -pair[0].id)),
            statuses=alive,
            states=count_by_state(
                (status for status in statuses if SERVER_MODE not in status.serves), now, self._stale_after
            ),
            lanes=await queue.lanes(limit=MAX_HOSTS),
            final_counts=[one for documents in final_counts for one in documents.final_counts],
            silent=[status.id for status in statuses if now - status.seen_at > self._stale_after * 1e6],
        )

    async def baseline(self) -> Baseline:
        """What was counted up to the last sample."""
        index, _ = await self._read(INDEX, Index)
        _, chunk, _ = await self._newest_chunk(index, await self._queue.now() // 1_000_000)
        return unpack_baseline(chunk.base)

    async def lifetime_counters(self) -> LifetimeCounters:
        """For sums over all that workers have done. To be asked for after the statuses they go with."""
        final_counts = tuple(
            one for documents in await list_final_counts(self._queue) for one in documents.final_counts
        )
        return LifetimeCounters(await self.baseline(), final_counts)

    async def read(self, seconds: float) -> Series:
        """What is known of the last so many seconds: of the last hour by slots, then by minutes, then by ten."""
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
        keep = {_chunk_name(start) for start in index.fine}
        self._closed_chunks = {name: kept for name, kept in self._closed_chunks.items() if name in keep}
        self._hours = {start: kept for start, kept in self._hours.items() if start in index.hours}
        kept = sorted((one for one in samples if since < one.at <= now), key=lambda one: one.at)
        return Series(now, tuple(kept))

    async def _chunk(self, start: int) -> Sequence[Sample]:
        name = _chunk_name(start)
        if name not in self._closed_chunks:
            chunk, _ = await self._read(name, Chunk)
            if not chunk.closed:
                return chunk.samples
            self._closed_chunks[name] = tuple(chunk.samples)
        return self._closed_chunks[name]

    async def _hour(self, start: int, now: float) -> Hour:
        if start not in self._hours:
            hour, _ = await self._read(f"hour/{start}", Hour)
            if now < start + HOUR + FINE_RETENTION + 2 * CHUNK:
                return hour
            self._hours[start] = hour
        return self._hours[start]

    async def _newest_chunk(self, index: Index, start: int) -> tuple[str, Chunk, int]:
        """The newest chunk there is up to now; one that was announced may never have come."""
        for begun in sorted((one for one in index.fine if one <= start), reverse=True):
            chunk, version = await self._read(_chunk_name(begun), Chunk)
            if version:
                return _chunk_name(begun), chunk, version
        return "", Chunk(), 0

    async def _compact(self, now: int) -> None:
        """Roll up what is old, remove what is too old; what is left undone here the next one does."""
        index, _ = await self._read(INDEX, Index)
        old = [start for start in index.fine if start + CHUNK + FINE_RETENTION <= now]
        for start in sorted(old)[:ROLL_UP_BATCH]:
            await self._roll_up(start)
        by_minute = [start for start in index.hours if start not in index.coarse]
        for start in sorted(start for start in by_minute if start + HOUR + MINUTE_RETENTION <= now)[:COARSE_BATCH]:
            await self._coarsen(start)
        for start in [start for start in index.hours if start + HOUR + RETENTION <= now]:
            await self._drop_hour(start)

    async def _coarsen(self, start: int) -> None:
        """An hour that is a day old: done twice, it stays as it is."""
        hour, version = await self._read(f"hour/{start}", Hour)
        if version:
            merged = Hour(merge_by(hour.samples, COARSE), hour.chunks)
            if not await self._write(f"hour/{start}", merged, version):
                return  # somebody else is at it
            self._hours.pop(start, None)
        await self._update_index(lambda known: replace(known, coarse=_including(known.coarse, start)))

    async def _drop_hour(self, start: int) -> None:
        await self._remove(f"hour/{start}")

        def without(known: Index) -> Index:
            return replace(known, hours=_excluding(known.hours, start), coarse=_excluding(known.coarse, start))

        await self._update_index(without)

    async def _roll_up(self, start: int) -> None:
        """Five minutes become five samples of their hour. The hour says which it has: none counts twice."""
        beginning = start // HOUR * HOUR
        await self._update_index(lambda known: replace(known, hours=_including(known.hours, beginning)))
        chunk, version = await self._read(_chunk_name(start), Chunk)
        hour, there = await self._read(f"hour/{beginning}", Hour)
        if version and start not in hour.chunks:
            samples = sorted((*hour.samples, *merge_by(chunk.samples, MINUTE)), key=lambda one: one.at)
            if not await self._write(f"hour/{beginning}", Hour(samples, [*hour.chunks, start]), there):
                return  # somebody else is at it
        if version:
            await self._remove(_chunk_name(start))
        await self._update_index(lambda known: replace(known, fine=_excluding(known.fine, start)))

    async def _update_index(self, change: Callable[[Index], Index]) -> None:
        for _ in range(MAX_ATTEMPTS):
            known, version = await self._read(INDEX, Index)
            wanted = change(known)
            if wanted == known or await self._write(INDEX, wanted, version):
                return

    async def _read(self, name: str, kind: type[D]) -> tuple[D, int]:
        document = await self._queue.document(kinds.HISTORY, name)
        if document is None:
            return kind(), 0
        try:
            return msgspec.json.decode(document.text, type=kind), document.version
        except msgspec.DecodeError:
            return kind(), document.version  # of another version of ours: it is written anew

    async def _write(self, name: str, document: Index | Chunk | Hour, version: int) -> Document | None:
        return await self._queue.compare_and_swap(kinds.HISTORY, name, msgspec.json.encode(document).decode(), version)

    async def _remove(self, name: str) -> None:
        document = await self._queue.document(kinds.HISTORY, name)
        if document is not None:
            await self._queue.compare_and_swap(kinds.HISTORY, name, None, document.version)


def merge_by(samples: Iterable[Sample], seconds: int) -> list[Sample]:
    """One sample for so many seconds."""
    return [merge(list(group)) for _, group in groupby(samples, key=lambda one: one.at // seconds)]


def _chunk_name(start: int) -> str:
    return f"fine/{start}"


def _including(starts: tuple[int, ...], one: int) -> tuple[int, ...]:
    return starts if one in starts else tuple(sorted((*starts, one)))


def _excluding(starts: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(start for start in starts if start != one)


def _ended_run(number: int, was: RunBaseline) -> Run:
    """A run of which only its number is left to ask by."""
    spec = {"mode": SERVER_MODE} if was.own else {}
    return Run(number, was.name, scraper="", key="", state="finished", created_at=0, changed_at=0, spec=spec)
