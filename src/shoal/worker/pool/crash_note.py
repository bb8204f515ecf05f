"""CrashNote: what a worker is executing right now, readable by others even after it was killed.

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

from shoal.files import flock

SIZE = 12_288
# executing task, its lease, since (monotonic ns), pages done, leases, message, claimed, failed, leases lost
_HEAD = struct.Struct("<qqqqIIqqq")
_COUNTS = struct.Struct("<qqq")
_STEP = struct.Struct("<qqq")
_INT64 = struct.Struct("<q")
_UINT32 = struct.Struct("<I")
_PAGES_AT, _LEASE_COUNT_AT, _MESSAGE_SIZE_AT = 24, 32, 36
_COUNTS_AT, _LEASE_TABLE_AT, _MESSAGE_AT = 40, 64, 2112
_THREAD_TASKS_AT, _COUNTERS_AT = 4096, 8192
_LOAD = struct.Struct("<qqqq")  # tasks held, places, batches taken over, when (monotonic ns)
_LOAD_AT = _THREAD_TASKS_AT - _LOAD.size
_COUNTER_HEADER = struct.Struct("<qII")  # which writing, its length and checksum
_COUNTER_SLOTS = (_COUNTERS_AT, _COUNTERS_AT + (SIZE - _COUNTERS_AT) // 2)
MAX_COUNTER_BYTES = _COUNTER_SLOTS[1] - _COUNTER_SLOTS[0] - _COUNTER_HEADER.size  # that a note has room for
MAX_LEASES = (_MESSAGE_AT - _LEASE_TABLE_AT) // 8  # as many leases as a note has room for
MAX_THREAD_TASKS = (_COUNTERS_AT - _THREAD_TASKS_AT) // 8 - 1  # likewise tasks in threads

_pack_step, _pack_task = _STEP.pack_into, _INT64.pack_into
_now = time.monotonic_ns


class CrashNoteSnapshot(msgspec.Struct, frozen=True):
    """A crash note as others read it."""

    task: int = 0  # 0: no user code or parser was running
    lease: int = 0
    since: int = 0
    pages: int = 0
    leases: tuple[int, ...] = ()  # held by the worker, so that others can renew them while it is stuck
    exit_message: str = ""
    claimed: int = 0
    failed: int = 0
    lost: int = 0  # leases that were taken from it
    thread_tasks: tuple[int, ...] = ()  # tasks whose code runs in threads
    counters: bytes = b""  # what it has counted, as core.counters encodes it
    held: int = 0  # tasks that it has and has not settled
    places: int = 0  # how many it may work on at once; 0: it takes nothing now
    batches: int = 0  # that were pushed to it and that it has taken over
    load_at: int = 0  # when it last said so; monotonic ns

    @property
    def step(self) -> tuple[int, int, int]:
        return self.task, self.lease, self.since

    @property
    def executing(self) -> tuple[int, ...]:
        """The tasks that a sudden end may be the fault of."""
        return (self.task, *self.thread_tasks) if self.task else self.thread_tasks

    def seconds(self) -> float:
        """How long the step that is executing has taken so far."""
        return (time.monotonic_ns() - self.since) / 1e9 if self.task else 0.0


class CrashNote:
    """The writer's side. `enter` and `leave` cost a few hundred nanoseconds and never fail."""

    __slots__ = ("_counts", "_map", "_pages", "_thread_tasks", "_written", "file", "path", "worker")

    def __init__(self, worker: str, memory: mmap.mmap, path: Path | None = None, file: int = -1) -> None:
        self.worker = worker
        self.path = path
        self.file = file
        self._map = memory
        self._pages = 0
        self._counts = (0, 0, 0)
        self._thread_tasks: dict[int, None] = {}
        self._written = 0

    @classmethod
    def create(cls, folder: Path, worker: str) -> CrashNote:
        """Make and lock the note; it appears under its name only once it is locked."""
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{worker}"
        file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        flock.try_lock(file)
        # Not a hole: on a full disk, writing into the map would kill the process.
        os.pwrite(file, bytes(SIZE), 0)
        # Mapped through an opening of its own: the map keeps its file open, also in forked children.
        mapped = os.open(hidden, os.O_RDWR | os.O_CLOEXEC)
        memory = mmap.mmap(mapped, SIZE)
        os.close(mapped)
        path = folder / worker
        hidden.rename(path)
        return cls(worker, memory, path, file)

    @classmethod
    def in_memory(cls, worker: str = "") -> CrashNote:
        """A note nobody else can read."""
        return cls(worker, mmap.mmap(-1, SIZE))

    def enter(self, task: int, lease: int) -> None:
        # The task number is written last by its own store: a reader never sees it with an older `since`.
        _pack_step(self._map, 0, 0, lease, _now())
        _pack_task(self._map, 0, task)

    def leave(self) -> None:
        _pack_task(self._map, 0, 0)

    def add_done(self, pages: int) -> None:
        self._pages += pages
        _INT64.pack_into(self._map, _PAGES_AT, self._pages)

    def add_counts(self, *, claimed: int = 0, failed: int = 0, lost: int = 0) -> None:
        """What else is worth counting, for whoever shows it."""
        before = self._counts
        self._counts = (before[0] + claimed, before[1] + failed, before[2] + lost)
        _COUNTS.pack_into(self._map, _COUNTS_AT, *self._counts)

    def write_counters(self, data: bytes) -> None:
        """Two slots in turn: whoever reads meanwhile, or after a death meanwhile, finds the one before."""
        if len(data) > MAX_COUNTER_BYTES:
            return
        self._written += 1
        at = _COUNTER_SLOTS[self._written % 2]
        _COUNTER_HEADER.pack_into(self._map, at, self._written, len(data), zlib.crc32(data))
        self._map[at + _COUNTER_HEADER.size : at + _COUNTER_HEADER.size + len(data)] = data

    def write_leases(self, leases: Iterable[int]) -> None:
        numbers = tuple(leases)[-MAX_LEASES:]
        struct.pack_into(f"<{len(numbers)}q", self._map, _LEASE_TABLE_AT, *numbers)
        _UINT32.pack_into(self._map, _LEASE_COUNT_AT, len(numbers))

    @contextlib.contextmanager
    def thread_task(self, task: int) -> Iterator[None]:
        """Around code of a task that runs in a thread."""
        self._thread_tasks[task] = None
        self._write_thread_tasks()
        try:
            yield
        finally:
            del self._thread_tasks[task]
            self._write_thread_tasks()

    def _write_thread_tasks(self) -> None:
        if self._map.closed:
            return
        numbers = tuple(self._thread_tasks)[:MAX_THREAD_TASKS]
        struct.pack_into(f"<q{len(numbers)}q", self._map, _THREAD_TASKS_AT, len(numbers), *numbers)

    def write_load(self, held: int, places: int, batches: int) -> None:
        """Say how busy the worker is, for whoever pushes tasks to it."""
        _LOAD.pack_into(self._map, _LOAD_AT, held, places, batches, _now())

    def write_exit_message(self, text: str) -> None:
        """Leave a message for whoever finds this worker ended."""
        data = text.encode("utf-8", "replace")[: _LOAD_AT - _MESSAGE_AT]
        self._map[_MESSAGE_AT : _MESSAGE_AT + len(data)] = data
        _UINT32.pack_into(self._map, _MESSAGE_SIZE_AT, len(data))

    def snapshot(self) -> CrashNoteSnapshot:
        return _parse(self._map[:])

    def close(self) -> None:
        """End of life in good order: the note goes with the worker."""
        self._map.close()
        if self.path is not None:
            delete_note(self.path)
            flock.release(self.file)
            self.path = None


def _parse(data: bytes) -> CrashNoteSnapshot:
    if len(data) < _COUNTERS_AT:
        return CrashNoteSnapshot()
    task, lease, since, pages, held, length, claimed, failed, lost = _HEAD.unpack_from(data)
    leases = struct.unpack_from(f"<{min(held, MAX_LEASES)}q", data, _LEASE_TABLE_AT)
    exit_message = data[_MESSAGE_AT : _MESSAGE_AT + min(length, _LOAD_AT - _MESSAGE_AT)].decode("utf-8", "replace")
    (thread_task_count,) = _INT64.unpack_from(data, _THREAD_TASKS_AT)
    thread_tasks = struct.unpack_from(f"<{min(thread_task_count, MAX_THREAD_TASKS)}q", data, _THREAD_TASKS_AT + 8)
    return CrashNoteSnapshot(
        task,
        lease,
        since,
        pages,
        leases,
        exit_message,
        claimed,
        failed,
        lost,
        thread_tasks,
        _newest_counters(data),
        *_LOAD.unpack_from(data, _LOAD_AT),
    )


def _newest_counters(data: bytes) -> bytes:
    """The newer of the two that is whole."""
    newest, found = 0, b""
    for at in _COUNTER_SLOTS if len(data) >= SIZE else ():
        written, length, checksum = _COUNTER_HEADER.unpack_from(data, at)
        payload = data[at + _COUNTER_HEADER.size : at + _COUNTER_HEADER.size + min(length, MAX_COUNTER_BYTES)]
        if written > newest and zlib.crc32(payload) == checksum:
            newest, found = written, payload
    return found


def read_note(path: Path) -> CrashNoteSnapshot | None:
    """The note at `path`, whether its worker lives or not."""
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return None


class CrashNoteReader:
    """Reads one crash note repeatedly, also after its worker has ended and deleted it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def read(self) -> CrashNoteSnapshot | None:
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


def find_dead_workers(folder: Path) -> dict[str, tuple[int, ...]]:
    """Workers of this folder that have crashed, with the tasks they were executing."""
    return {path.name: _executing(path) for path in _notes(folder) if not is_alive(path)}


def _executing(path: Path) -> tuple[int, ...]:
    snapshot = read_note(path)
    return snapshot.executing if snapshot else ()


def _notes(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(folder.iterdir()):
            if not entry.name.startswith("."):
                yield entry


def delete_note(path: Path) -> None:
    path.unlink(missing_ok=True)
