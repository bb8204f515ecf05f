"""Seeding: brings a list into a run, line by line, each once, whatever is killed and whenever.

The list is never held: a thousand entries are read, added, and forgotten. Before each batch a position
is written that says what came of everything before it and when the batch began. After a crash the list
is read again from its beginning, past what the position covers, and the one batch that may have been
added already is added once more: what the queue then calls known was added by the crashed attempt if it
is no younger than the batch's beginning.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from shoal.control.patience import patiently
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.core.url import Rewrite
from shoal.errors import InvalidUrl, QueueReadOnly, Usage
from shoal.extract.links import start_task
from shoal.queue.base import Queue
from shoal.sources.address import completed
from shoal.sources.base import Entry, Source

BATCH = 1_000
DUPLICATE = "the same address as another line"
BEYOND = "past the page limit"

T = TypeVar("T")
Said = Literal["added", "known", "rejected", "beyond"]


class Rejects(Protocol):
    """Where lines go that lead to no request, with the reason."""

    def add(self, line: int, text: str, reason: str) -> None: ...

    def flush(self) -> int:
        """Make it durable; says its size."""
        ...

    def close(self) -> None: ...


class Report(msgspec.Struct, frozen=True):
    """What became of the lines read so far; read == added + aside."""

    read: int = 0
    added: int = 0
    duplicates: int = 0
    rejected: int = 0
    completed: int = 0  # of those added: the scheme was put in front
    beyond: int = 0  # past the run's page limit, so that nothing would be fetched for them

    @property
    def aside(self) -> int:
        """Lines that lead to no request."""
        return self.duplicates + self.rejected + self.beyond


class Position(msgspec.Struct, frozen=True):
    """How far a run's list was read, kept beside the state."""

    run: str
    started: int  # when the run was created: names may come again
    report: Report = Report()
    print: str = ""  # of everything read so far
    size: int = 0  # of the file of rejected lines
    pending: int = 0  # entries of the batch that may or may not have been added
    began: int = 0  # when that was tried first, by the store's clock
    done: bool = False


class Seeding:
    """One list on its way into one run. `folder` is the state's, `rejects` opens the file at a size."""

    def __init__(
        self,
        queue: Queue,
        run: Run,
        source: Source,
        folder: Path,
        *,
        pace: Callable[[str], Pace],
        rejects: Callable[[int], Rejects],
        rewrite: Rewrite | None = None,
        priority: int = 0,
        patience: float = 0.0,
    ) -> None:
        """patience: seconds that the queue may be out of reach."""
        self.done = False
        self.stopped = False
        self.paces = frozenset[Pace]()  # of the hosts met so far
        self._queue = queue
        self._run = run
        self._source = source
        self._pace = pace
        self._rewrite = rewrite
        self._priority = priority
        self._patience = patience
        self._place = place_of(folder, run)
        self._open_rejects = rejects
        self._rejects: Rejects | None = None
        self._print = _new_print()
        self._entries: Iterator[Entry] | None = None
        self._at = Position(run.name, run.began_at)

    @property
    def report(self) -> Report:
        return self._at.report

    def stop(self) -> None:
        """End after the batch under way; the same command goes on from there."""
        self.stopped = True

    async def prepare(self) -> None:
        """Find out where to go on; refuses a list whose beginning is not what was read before."""
        self._at = held(self._place, self._run) or self._at
        entries = iter(self._source)
        left = self.report.read
        while left:
            passed = list(islice(entries, min(BATCH, left)))
            _imprint(self._print, passed)
            left -= len(passed)
            if not passed or (not left and self._print.hexdigest() != self._at.print):
                self.close()
                raise Usage(
                    f"{self._source.name} was changed since run {self._run.name} read its first"
                    f" {self.report.read:,} {self._source.unit}s",
                    hint="--fresh starts over with it as it is now; lines added at its end are no problem",
                )
            await asyncio.sleep(0)
        self._entries, self._rejects = entries, self._open_rejects(self._at.size)

    async def run(self) -> Report:
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
        while batch := list(islice(self._entries, self._at.pending or BATCH)):
            if self.stopped or not await self._take(batch):
                self.stopped = True
                return
        await self._keep(msgspec.structs.replace(self._at, done=True))
        self.done = True

    async def _take(self, batch: Sequence[Entry]) -> bool:
        """Bring one batch into the run; False if the run takes no more work."""
        again = bool(self._at.pending)
        began = self._at.began if again else await self._patiently(self._queue.now)
        if not again:
            await self._keep(msgspec.structs.replace(self._at, pending=len(batch), began=began))
        made = [self._made(entry) for entry in batch]
        tasks = [task for task in made if isinstance(task, Task)]
        answers = iter(await self._added(tasks, began, again))
        report = self.report
        for entry, task in zip(batch, made, strict=True):
            if isinstance(task, str):
                self._reject(entry, task)
                report = _more(report, rejected=1)
                continue
            answer = next(answers)
            if answer == "rejected":
                return False
            if answer == "added":
                report = _more(report, added=1, completed=int(completed(entry.text) != entry.text))
            elif answer == "beyond":
                self._reject(entry, f"{BEYOND} of {self._run.max_pages:,}")
                report = _more(report, beyond=1)
            else:
                self._reject(entry, DUPLICATE)
                report = _more(report, duplicates=1)
        _imprint(self._print, batch)
        # Made durable with the next position, before the next batch begins.
        self._at = msgspec.structs.replace(
            self._at, report=report, print=self._print.hexdigest(), pending=0, began=0
        )
        return True

    async def _added(self, tasks: Sequence[Task], began: int, again: bool) -> list[Said]:
        async def add() -> list[Said]:
            nonlocal again
            crashed, again = again, True  # an answer that was lost is like a crash
            return await self._add(tasks, began if crashed else 0)

        return await self._patiently(add)

    async def _patiently(self, verb: Callable[[], Awaitable[T]]) -> T:
        return await patiently(verb, self._patience)

    async def _add(self, tasks: Sequence[Task], began: int) -> list[Said]:
        """What became of each; `began` is not 0 where an attempt that crashed may have added some."""
        said, met = list[Said](), set[bytes]()
        room = self._run.max_pages - self.report.added if self._run.max_pages else len(tasks)
        while room > 0 and (some := tasks[len(said) : len(said) + room]):
            paces = {lane: self._pace(lane) for lane in {task.lane for task in some}}
            self.paces |= frozenset(paces.values())
            for task, answer in zip(some, await self._queue.add(self._run.id, some, paces), strict=True):
                ours = answer == "known" and began and task.digest not in met
                if ours and await self._ours(task, began):
                    answer = "added"
                met.add(task.digest)
                said.append(answer)
                room -= answer == "added"
        return said + ["beyond"] * (len(tasks) - len(said))

    async def _ours(self, task: Task, began: int) -> bool:
        """Whether a known address was added by the attempt that crashed, not by another line or a page."""
        view = await self._queue.find(self._run.id, task.digest)
        return view is not None and view.parent is None and view.added_at >= began

    def _made(self, entry: Entry) -> Task | str:
        return task_of(entry, self._rewrite, self._priority)

    def _reject(self, entry: Entry, reason: str) -> None:
        assert self._rejects is not None
        self._rejects.add(entry.line, entry.text, reason)

    async def _keep(self, position: Position) -> None:
        """Write a position, after the rejected lines it speaks of; also if we are cancelled meanwhile."""
        work = asyncio.ensure_future(asyncio.to_thread(self._write, position))
        try:
            await asyncio.shield(work)
        finally:
            await work

    def _write(self, position: Position) -> None:
        if self._rejects is not None:
            position = msgspec.structs.replace(position, size=self._rejects.flush())
        temporary = self._place.with_suffix(".tmp")
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(position))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._place)
        except OSError as error:
            raise QueueReadOnly(
                f"{self._place} cannot be written: {error.strerror}",
                hint="make room, or check its owner and mode",
            ) from error
        self._at = position


def task_of(entry: Entry, rewrite: Rewrite | None, priority: int = 0) -> Task | str:
    """The task of an entry, or why there is none."""
    if entry.problem:
        return entry.problem
    meta: dict[str, Any] = {"line": entry.line}
    try:
        task = start_task(completed(entry.text), rewrite=rewrite, meta=meta)
    except InvalidUrl as error:
        return str(error)
    if entry.text != task.url:
        meta["input"] = entry.text
    if entry.extra:
        meta["row"] = entry.extra
    return msgspec.structs.replace(task, priority=priority) if priority else task


def place_of(folder: Path, run: Run) -> Path:
    return folder / "inputs" / f"{run.name}.json"


def held(place: Path, run: Run) -> Position | None:
    """The position kept for a run, None if it has none."""
    try:
        position = msgspec.json.decode(place.read_bytes(), type=Position)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return position if position.started == run.began_at else None


async def refuse_changed(source: Source, folder: Path, run: Run) -> None:
    """Refuse a list that is not what a run, which has ended, read of it."""
    position = held(place_of(folder, run), run)
    if position is None or not position.done:
        return
    entries, print_ = iter(source), _new_print()
    while batch := list(islice(entries, BATCH)):
        _imprint(print_, batch)
        await asyncio.sleep(0)
    source.close()
    if print_.hexdigest() != position.print:
        raise Usage(
            f"{source.name} was changed since run {run.name} read it to its end",
            hint="--fresh starts over with it as it is now",
        )


def report_of(folder: Path, run: Run) -> Report:
    """What became of a run's list, as far as it was read; also long after it ended."""
    position = held(place_of(folder, run), run)
    return position.report if position else Report()


def _new_print() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def _imprint(print_: hashlib.blake2b, entries: Sequence[Entry]) -> None:
    for entry in entries:
        print_.update(f"{entry.line}\0{entry.text}\n".encode("utf-8", "surrogatepass"))


def _more(report: Report, **counts: int) -> Report:
    return msgspec.structs.replace(
        report, read=report.read + 1, **{name: getattr(report, name) + n for name, n in counts.items()}
    )


def words(report: Report, source: Source, rejected: str = "") -> str:
    """One line for people: "Read 500 lines of urls.txt: 488 to fetch, 9 duplicates …"."""
    unit = source.unit if report.read == 1 else f"{source.unit}{'es' if source.unit == 'address' else 's'}"
    parts = [f"{report.added:,} to fetch", *_aside(report)]
    aside = f" (→ {rejected})" if rejected and len(parts) > 1 else ""
    text = f"Read {report.read:,} {unit} of {source.name}: {', '.join(parts)}{aside}"
    if report.completed:
        text += f"; {report.completed:,} had no http:// or https:// in front"
    return text


def rejected_words(report: Report) -> str:
    """What is in the file of rejected lines: "9 duplicates · 3 not web addresses"."""
    return " · ".join(_aside(report))


def _aside(report: Report) -> Iterator[str]:
    if report.duplicates:
        yield f"{report.duplicates:,} duplicate{'s' if report.duplicates > 1 else ''}"
    if report.rejected:
        yield f"{report.rejected:,} not {'web addresses' if report.rejected > 1 else 'a web address'}"
    if report.beyond:
        yield f"{report.beyond:,} {BEYOND}"
