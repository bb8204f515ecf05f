"""Note: what a worker is executing right now, readable by others even after it was killed.

A note is a small memory-mapped file `<folder>/<worker id>` on which its worker holds a file lock for
life. A free lock means the worker is dead, and the note still says what it was executing. Ownership on
one machine is by this lock, never by pid: pids are reused, locks are not.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from shoal import locks

SIZE = 12_288
# executing task, its lease, since (monotonic ns), pages done, leases, words, claimed, failed, leases lost
_HEAD = struct.Struct("<qqqqIIqqq")
_TOTALS = struct.Struct("<qqq")
_STEP = struct.Struct("<qqq")
_TASK = struct.Struct("<q")
_COUNT = struct.Struct("<I")
_PAGES_AT, _LEASES_AT, _WORDS_AT, _TOTALS_AT, _TABLE_AT, _TEXT_AT = 24, 32, 36, 40, 64, 2112
_BESIDE_AT, _FIGURES_AT = 4096, 8192
_SLOT = struct.Struct("<qII")  # which writing, its length and checksum
_SLOTS = (_FIGURES_AT, _FIGURES_AT + (SIZE - _FIGURES_AT) // 2)
FIGURES = _SLOTS[1] - _SLOTS[0] - _SLOT.size  # bytes of them that a note has room for
LEASES = (_TEXT_AT - _TABLE_AT) // 8  # as many leases as a note has room for
BESIDE = (_FIGURES_AT - _BESIDE_AT) // 8 - 1  # likewise tasks in threads

_enter, _leave = _STEP.pack_into, _TASK.pack_into
_now = time.monotonic_ns


class Seen(msgspec.Struct, frozen=True):
    """A note as somebody else reads it."""

    task: int = 0  # 0: no user code or parser was running
    lease: int = 0
    since: int = 0
    pages: int = 0
    leases: tuple[int, ...] = ()  # held by the worker, so that others can renew them while it is stuck
    words: str = ""
    claimed: int = 0
    failed: int = 0
    lost: int = 0  # leases that were taken from it
    beside: tuple[int, ...] = ()  # tasks whose code runs in threads
    figures: bytes = b""  # what it has counted, as core.figures packs it

    @property
    def executing(self) -> tuple[int, ...]:
        """The tasks that a sudden end may be the fault of."""
        return (self.task, *self.beside) if self.task else self.beside

    def seconds(self) -> float:
        """How long the step that is executing has taken so far."""
        return (time.monotonic_ns() - self.since) / 1e9 if self.task else 0.0


class Note:
    """The writer's side. `enter` and `leave` cost a few hundred nanoseconds and never fail."""

    __slots__ = ("_beside", "_map", "_pages", "_totals", "_written", "file", "path", "worker")

    def __init__(self, worker: str, memory: mmap.mmap, path: Path | None = None, file: int = -1) -> None:
        self.worker = worker
        self.path = path
        self.file = file
        self._map = memory
        self._pages = 0
        self._totals = (0, 0, 0)
        self._beside: dict[int, None] = {}
        self._written = 0

    @classmethod
    def create(cls, folder: Path, worker: str) -> Note:
        """Make and lock the note; it appears under its name only once it is locked."""
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{worker}"
        file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        locks.take(file)
        os.pwrite(
            file, bytes(SIZE), 0
        )  # not a hole: on a full disk, writing into the map would kill the process
        # Mapped through an opening of its own: the map keeps its file open, also in forked children.
        mapped = os.open(hidden, os.O_RDWR | os.O_CLOEXEC)
        memory = mmap.mmap(mapped, SIZE)
        os.close(mapped)
        path = folder / worker
        hidden.rename(path)
        return cls(worker, memory, path, file)

    @classmethod
    def unwritten(cls, worker: str = "") -> Note:
        """A note nobody else can read."""
        return cls(worker, mmap.mmap(-1, SIZE))

    def enter(self, task: int, lease: int) -> None:
        # The task number is written last by its own store: a reader never sees it with an older `since`.
        _enter(self._map, 0, 0, lease, _now())
        _leave(self._map, 0, task)

    def leave(self) -> None:
        _leave(self._map, 0, 0)

    def count(self, pages: int) -> None:
        self._pages += pages
        _TASK.pack_into(self._map, _PAGES_AT, self._pages)

    def add(self, *, claimed: int = 0, failed: int = 0, lost: int = 0) -> None:
        """What else is worth counting, for whoever shows it."""
        before = self._totals
        self._totals = (before[0] + claimed, before[1] + failed, before[2] + lost)
        _TOTALS.pack_into(self._map, _TOTALS_AT, *self._totals)

    def figures(self, data: bytes) -> None:
        """Two places in turn: whoever reads meanwhile, or after a death meanwhile, finds the one before."""
        if len(data) > FIGURES:
            return
        self._written += 1
        at = _SLOTS[self._written % 2]
        _SLOT.pack_into(self._map, at, self._written, len(data), zlib.crc32(data))
        self._map[at + _SLOT.size : at + _SLOT.size + len(data)] = data

    def hold(self, leases: Iterable[int]) -> None:
        numbers = tuple(leases)[-LEASES:]
        struct.pack_into(f"<{len(numbers)}q", self._map, _TABLE_AT, *numbers)
        _COUNT.pack_into(self._map, _LEASES_AT, len(numbers))

    @contextlib.contextmanager
    def beside(self, task: int) -> Iterator[None]:
        """Around code of a task that runs in a thread."""
        self._beside[task] = None
        self._write_beside()
        try:
            yield
        finally:
            del self._beside[task]
            self._write_beside()

    def _write_beside(self) -> None:
        if self._map.closed:
            return
        numbers = tuple(self._beside)[:BESIDE]
        struct.pack_into(f"<q{len(numbers)}q", self._map, _BESIDE_AT, len(numbers), *numbers)

    def last_words(self, text: str) -> None:
        """Leave a message for whoever finds this worker ended."""
        data = text.encode("utf-8", "replace")[: _BESIDE_AT - _TEXT_AT]
        self._map[_TEXT_AT : _TEXT_AT + len(data)] = data
        _COUNT.pack_into(self._map, _WORDS_AT, len(data))

    def seen(self) -> Seen:
        return _parse(self._map[:])

    def close(self) -> None:
        """End of life in good order: the note goes with the worker."""
        self._map.close()
        if self.path is not None:
            discard(self.path)
            locks.release(self.file)
            self.path = None


def _parse(data: bytes) -> Seen:
    if len(data) < _FIGURES_AT:
        return Seen()
    task, lease, since, pages, held, length, claimed, failed, lost = _HEAD.unpack_from(data)
    leases = struct.unpack_from(f"<{min(held, LEASES)}q", data, _TABLE_AT)
    words = data[_TEXT_AT : _TEXT_AT + min(length, _BESIDE_AT - _TEXT_AT)].decode("utf-8", "replace")
    (several,) = _TASK.unpack_from(data, _BESIDE_AT)
    beside = struct.unpack_from(f"<{min(several, BESIDE)}q", data, _BESIDE_AT + 8)
    return Seen(task, lease, since, pages, leases, words, claimed, failed, lost, beside, _figures(data))


def _figures(data: bytes) -> bytes:
    """The newer of the two that is whole."""
    newest, found = 0, b""
    for at in _SLOTS if len(data) >= SIZE else ():
        written, length, sum = _SLOT.unpack_from(data, at)
        said = data[at + _SLOT.size : at + _SLOT.size + min(length, FIGURES)]
        if written > newest and zlib.crc32(said) == sum:
            newest, found = written, said
    return found


def read(path: Path) -> Seen | None:
    """The note at `path`, whether its worker lives or not."""
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return None


class Reader:
    """A note that is looked at again and again, also when its worker has ended and taken it away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def read(self) -> Seen | None:
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        return _parse(os.pread(self._file, SIZE, 0))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_alive(path: Path) -> bool:
    """Whether the note's lock is held by a living worker."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not mislead each other
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def dead_notes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Workers of this folder that died without a word, with the tasks they were executing."""
    return {path.name: _executing(path) for path in _notes(folder) if not is_alive(path)}


def _executing(path: Path) -> tuple[int, ...]:
    seen = read(path)
    return seen.executing if seen else ()


def _notes(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(folder.iterdir()):
            if not entry.name.startswith("."):
                yield entry


def discard(path: Path) -> None:
    path.unlink(missing_ok=True)
