"""Reads a list into a run, adding each line exactly once, even across crashes.

The list is never held: a thousand entries are read, added, and forgotten. Before each batch a position
is written that says what came of everything before it and when the batch began. After a crash the list
is read again from its beginning, past what the position covers, and the one batch that may have been
added already is added once more: what the queue then calls known was added by the crashed attempt if it
is no younger than the batch's beginning.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from shoal import app
from shoal.core.lane import Pace
from shoal.core.name_format import file_name_of
from shoal.core.routes import Routes
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.core.url import UrlNormalizer
from shoal.errors import InvalidUrl, QueueReadOnly, UsageError
from shoal.queue.base import Queue
from shoal.queue.failing import failing_tasks
from shoal.queue.reconnect import reconnecting
from shoal.runs.cached_starts import FreeCached
from shoal.runs.list_report import BEYOND_REASON, FAILING_REASON, SEEN_REASON, ListReport
from shoal.sources.base import Source, UrlEntry
from shoal.sources.start_task import start_task
from shoal.sources.url_text import with_scheme
from shoal.store.sidecars import RejectedFile

T = TypeVar("T")

BATCH = 1_000
SLOW_ANSWER = 3.0  # seconds
MAX_TOLD_LANES = 100_000  # remembered, so that a lane is not told with every line
DUPLICATE_REASON = "the same URL as another line"

AddResult = Literal["added", "known", "seen", "rejected", "beyond", "failing"]


class ListPosition(msgspec.Struct, frozen=True):
    """How far a run's list was read, kept beside the state."""

    run: str
    started: int  # when the run was created: names may come again
    report: ListReport = ListReport()
    print: str = ""  # of everything read so far
    size: int = 0  # of the file of rejected lines
    pending: int = 0  # entries of the batch that may or may not have been added
    began: int = 0  # when that was tried first, by the store's clock
    limit: int = 0  # the page limit of the run
    again_at: int = 0  # when it began to be read a second time, because that limit is higher now
    done: bool = False
    settings: dict[str, Any] | None = None  # of the last command that worked on it (remembered_settings)
    counts_empty: bool = False  # whether empty lines are among what was read: once they were not


class ListReader:
    """Reads one list into one run. `folder` is the state folder; `rejects` opens a file at a size."""

    def __init__(
        self,
        queue: Queue,
        run: Run,
        source: Source,
        folder: Path,
        *,
        pace: Callable[[str], Pace],
        rejects: Callable[[int], RejectedFile],
        rewrite: UrlNormalizer | None = None,
        routes: Routes | None = None,
        outage_timeout: float = 0.0,
        settings: dict[str, Any] | None = None,
        skip_failing: int = 0,
        free_cached: FreeCached | None = None,
    ) -> None:
        """outage_timeout: seconds that the queue may be out of reach. skip_failing: what failed so often is left out.

        settings: to be remembered; where they differ from the last ones, lanes are told of their paces again.
        free_cached: lets what is in the cache wait for no host.
        """
        self.done = False
        self.stopped = False
        self._asked_at = math.inf  # when the queue was asked for what it has not answered yet
        self._problem = ""  # and what it said last
        self.paces = frozenset[Pace]()  # of the hosts met so far
        self._queue = queue
        self._run = run
        self._source = source
        self._pace = pace
        self._rewrite = rewrite
        self._routes = routes
        self._outage_timeout = outage_timeout
        self._position_file = position_path(folder, run)
        self._open_rejects = rejects
        self._rejects: RejectedFile | None = None
        self._fingerprint = _new_fingerprint()
        self._entries: Iterator[UrlEntry] | None = None
        self._settings = settings
        self._skip_failing = skip_failing
        self._position = ListPosition(run.name, run.began_at)
        self._free_cached = free_cached
        self._told_lanes: set[str] = set()
        self._met_again: set[bytes] = set()  # added by the first reading, and read once by the second
        self._left_one = False  # the first line past the page limit is in the run

    @property
    def report(self) -> ListReport:
        return self._position.report

    @property
    def waits_for(self) -> str:
        """Why nothing can be added for now; a queue may try for a while before it says so itself."""
        waited = time.monotonic() - self._asked_at
        return self._problem or (f"the queue has not answered for {waited:.0f} s" if waited >= SLOW_ANSWER else "")

    def stop(self) -> None:
        """End after the batch in progress; run it again to resume from there."""
        self.stopped = True

    async def prepare(self) -> None:
        """Find out where to go on; refuses a list whose beginning is not what was read before."""
        self._position = load_position(self._position_file, self._run) or self._position
        has_room = not self._run.max_pages or self._run.max_pages > self._position.limit
        if self.report.beyond and has_room:  # for lines that were left out
            again_at = await self._reconnecting(self._queue.now)
            settings = self._position.settings
            self._position = ListPosition(self._run.name, self._run.began_at, settings=settings, again_at=again_at)
        self._position = msgspec.structs.replace(self._position, limit=self._run.max_pages)
        has_changed = self._position.settings != self._settings
        entries = iter(self._source)
        if self.report.read and not self._position.counts_empty:
            entries = (entry for entry in entries if not entry.is_empty)
        else:
            self._position = msgspec.structs.replace(self._position, counts_empty=True)
        left = self.report.read
        while left:
            passed = list(islice(entries, min(BATCH, left)))
            if has_changed or not self.paces:
                await self._meet_lanes(passed, tell=has_changed)
            _update_fingerprint(self._fingerprint, passed)
            left -= len(passed)
            if not passed or (not left and self._fingerprint.hexdigest() != self._position.print):
                self.close()
                raise UsageError(
                    f"{self._source.name} was changed in the part that run {self._run.name} has read",
                    hint="--fresh starts over with it as it is now; appending lines is fine",
                )
            await asyncio.sleep(0)
        self._entries, self._rejects = entries, self._open_rejects(self._position.size)
        if has_changed:
            self._position = msgspec.structs.replace(self._position, settings=self._settings)

    async def _meet_lanes(self, passed: Sequence[UrlEntry], *, tell: bool) -> None:
        """Learn the paces of lines that are in the run already; tell: their lanes get them from now on."""
        made = [task_from_entry(entry, self._rewrite, self._routes) for entry in passed]
        tasks = [task for task in made if isinstance(task, Task) and task.lane not in self._told_lanes]
        self.paces |= {self._pace(task.lane) for task in tasks}
        if not tell:
            return
        await app.give_paces(self._queue, self._run, tasks, self._pace)
        if len(self._told_lanes) > MAX_TOLD_LANES:
            self._told_lanes.clear()
        self._told_lanes |= {task.lane for task in tasks}

    async def run(self) -> ListReport:
        """Read to the end; lines added to the list since the last time are taken as well."""
        if self._entries is None:
            await self.prepare()
        try:
            await self._read_all()
        finally:
            self.close()
        return self.report

    def close(self) -> None:
        self._source.close()
        if self._rejects is not None:
            self._rejects.close()

    async def _read_all(self) -> None:
        assert self._entries is not None
        while batch := list(islice(self._entries, self._position.pending or BATCH)):
            if self.stopped or not await self._add_batch(batch):
                self.stopped = True
                return
        await self._save_position(msgspec.structs.replace(self._position, done=True))
        self.done = True

    async def _add_batch(self, batch: Sequence[UrlEntry]) -> bool:
        """Bring one batch into the run; False if the run takes no more work."""
        is_retry = bool(self._position.pending)
        began = self._position.began
        if not is_retry:
            began = await self._reconnecting(self._queue.now)
            await self._save_position(msgspec.structs.replace(self._position, pending=len(batch), began=began))
        made = [task_from_entry(entry, self._rewrite, self._routes) for entry in batch]
        tasks = [task for task in made if isinstance(task, Task)]
        tasks = await self._free_cached(tasks) if self._free_cached is not None else tasks
        answers = iter(await self._add_reconnecting(tasks, began, is_retry))
        report = self.report
        for entry, task in zip(batch, made, strict=True):
            if isinstance(task, str):
                if not entry.is_empty:
                    self._reject(entry, task)
                kind = "blank" if entry.is_blank else "rejected"
                report = _add_counts(report, **{kind: 1}, empty=int(entry.is_empty))
                continue
            answer = next(answers)
            if answer == "rejected":
                return False
            if answer == "added":
                report = _add_counts(report, added=1, completed=int(with_scheme(entry.text) != entry.text))
            elif answer == "seen":
                self._reject(entry, f"{SEEN_REASON} ({self._run.seen_set})")
                report = _add_counts(report, seen=1)
            elif answer == "failing":
                self._reject(entry, FAILING_REASON)
                report = _add_counts(report, failing=1)
            elif answer == "beyond":
                self._reject(entry, f"{BEYOND_REASON} of {self._run.max_pages:,}")
                report = _add_counts(report, beyond=1)
            else:
                self._reject(entry, DUPLICATE_REASON)
                report = _add_counts(report, duplicates=1)
        _update_fingerprint(self._fingerprint, batch)
        # Made durable with the next position, before the next batch begins.
        self._position = msgspec.structs.replace(
            self._position, report=report, print=self._fingerprint.hexdigest(), pending=0, began=0
        )
        return True

    async def _add_reconnecting(self, tasks: Sequence[Task], began: int, is_retry: bool) -> list[AddResult]:
        async def add() -> list[AddResult]:
            nonlocal is_retry
            crashed, is_retry = is_retry, True  # an answer that was lost is like a crash
            return await self._add(tasks, began if crashed else 0)

        return await self._reconnecting(add)

    async def _reconnecting(self, verb: Callable[[], Awaitable[T]]) -> T:
        def note(error: Exception, tries: int) -> None:
            self._problem = str(error)

        self._asked_at = time.monotonic()
        try:
            return await reconnecting(verb, self._outage_timeout, on_failure=note)
        finally:
            self._asked_at, self._problem = math.inf, ""

    async def _add(self, tasks: Sequence[Task], began: int) -> list[AddResult]:
        """What became of each; `began` is not 0 where an attempt that crashed may have added some."""
        results, seen_digests = list[AddResult](), set[bytes]()
        room = self._run.max_pages - self.report.added if self._run.max_pages else len(tasks)
        failing = await self._failing(tasks, is_retry=bool(began)) if self._skip_failing else {}
        if failing:
            kept = iter(await self._add([task for task in tasks if task.digest not in failing], began))
            return ["failing" if task.digest in failing else next(kept) for task in tasks]
        # One line past the limit waits in the run, which its limit ends therefore: a higher one goes on with the rest.
        # Not where other runs would skip it for having been here.
        self._left_one = self._left_one or self.report.beyond > 0 or bool(self._run.seen_set)
        while (room > 0 or not self._left_one) and (chunk := tasks[len(results) : len(results) + max(1, room)]):
            paces = {lane: self._pace(lane) for lane in {task.lane for task in chunk}}
            self.paces |= frozenset(paces.values())
            for task, answer in zip(chunk, await self._queue.add(self._run.id, chunk, paces), strict=True):
                is_first = answer == "known" and task.digest not in seen_digests
                if is_first and (began or self._position.again_at) and await self._was_added_by_us(task, began):
                    answer = "added"
                seen_digests.add(task.digest)
                if answer == "added" and room <= 0:
                    self._left_one = True
                    results.append("beyond")
                    break
                results.append(answer)
                room -= answer == "added"
        return results + ["beyond"] * (len(tasks) - len(results))

    async def _failing(self, tasks: Sequence[Task], *, is_retry: bool) -> Collection[bytes]:
        """Those that failed too often before; not one that an attempt that crashed has added, to fail since."""
        failing = await failing_tasks(self._queue, tasks, self._skip_failing)
        if not is_retry or not failing:
            return failing
        ids = await self._queue.ids(self._run.id, list(failing))
        return {digest for digest, number in zip(failing, ids, strict=True) if not number}

    async def _was_added_by_us(self, task: Task, began: int) -> bool:
        """Whether a known URL was added by the attempt that crashed, or by the first reading, not by another line."""
        view = await self._queue.find(self._run.id, task.digest)
        crashed = bool(began) and view is not None and view.parent is None and view.added_at >= began
        if crashed or view is None or view.parent is not None:
            return crashed
        is_met = view.added_at < self._position.again_at and task.digest not in self._met_again
        self._met_again |= {task.digest} if is_met else set()
        return is_met

    def _reject(self, entry: UrlEntry, reason: str) -> None:
        assert self._rejects is not None
        self._rejects.add(entry.line, entry.text, reason, entry.extra)

    async def _save_position(self, position: ListPosition) -> None:
        """Write a position, after the rejected lines it speaks of; also if we are cancelled meanwhile."""
        work = asyncio.ensure_future(asyncio.to_thread(self._write_position, position))
        try:
            await asyncio.shield(work)
        finally:
            await work

    def _write_position(self, position: ListPosition) -> None:
        if self._rejects is not None:
            position = msgspec.structs.replace(position, size=self._rejects.flush())
        temporary = self._position_file.with_suffix(".tmp")
        try:
            self._position_file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(position))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._position_file)
        except OSError as error:
            raise QueueReadOnly(
                f"{self._position_file} cannot be written: {error.strerror}",
                hint="free some space, or check its owner and mode",
            ) from error
        self._position = position


def task_from_entry(entry: UrlEntry, rewrite: UrlNormalizer | None, routes: Routes | None = None) -> Task | str:
    """The task of an entry, or why there is none."""
    if entry.problem:
        return entry.problem
    meta: dict[str, Any] = {"line": entry.line}
    try:
        task = start_task(with_scheme(entry.text), rewrite=rewrite, meta=meta, routes=routes)
    except InvalidUrl as error:
        return str(error)
    if entry.text != task.url:
        meta["input"] = entry.text
    if entry.extra:
        meta["row"] = entry.extra
    return task


def position_path(folder: Path, run: Run) -> Path:
    return folder / "inputs" / f"{file_name_of(run.name)}.json"


def load_position(place: Path, run: Run) -> ListPosition | None:
    """The position kept for a run, None if it has none."""
    try:
        position = msgspec.json.decode(place.read_bytes(), type=ListPosition)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return position if position.started == run.began_at else None


async def refuse_changed_list(source: Source, folder: Path, run: Run) -> None:
    """Refuse a list that is not what a run, which has ended, read of it."""
    position = load_position(position_path(folder, run), run)
    if position is None or not position.done:
        return
    entries, fingerprint = iter(source), _new_fingerprint()
    if not position.counts_empty:
        entries = (entry for entry in entries if not entry.is_empty)
    while batch := list(islice(entries, BATCH)):
        _update_fingerprint(fingerprint, batch)
        await asyncio.sleep(0)
    source.close()
    if fingerprint.hexdigest() != position.print:
        raise UsageError(
            f"{source.name} was changed since run {run.name} read it to its end",
            hint="--fresh starts over with it as it is now",
        )


def load_report(folder: Path, run: Run) -> ListReport:
    """What became of a run's list, as far as it was read; also long after it ended."""
    position = load_position(position_path(folder, run), run)
    return position.report if position else ListReport()


def _new_fingerprint() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def _update_fingerprint(fingerprint: hashlib.blake2b, entries: Sequence[UrlEntry]) -> None:
    for entry in entries:
        fingerprint.update(f"{entry.line}\0{entry.text}\n".encode("utf-8", "surrogatepass"))


def _add_counts(report: ListReport, **counts: int) -> ListReport:
    return msgspec.structs.replace(
        report, read=report.read + 1, **{name: getattr(report, name) + n for name, n in counts.items()}
    )
