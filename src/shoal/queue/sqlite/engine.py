"""One connection to the state file, its transactions, and its errors as ours.

SQL runs on the calling thread. A helper thread would have to win the interpreter lock back after
every single step while the event loop is busy parsing pages, holding the file's write lock all the
while; waiting for another process's write lock, which can take long, is done without blocking the
event loop instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from shoal.errors import ActionRequired, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.files.file_system import NETWORK_FILE_SYSTEMS, file_system
from shoal.files.sqlite import error_code, make_private, use_wal
from shoal.queue.sqlite import lanes, schema

P = ParamSpec("P")
T = TypeVar("T")

Synchronous = Literal["full", "normal"]
LOCK_TIMEOUT = 30.0  # seconds to wait for other processes before saying that the file is locked
OPEN_TIMEOUT = 5.0  # a new file that others are making just now
TURN_TIMEOUT = 2.0
POLL_INTERVAL = 0.05  # seconds, who waits for work looks for it
CHECKPOINT = 2000  # pages of the log
CACHE, SMALL_CACHE = 8_000, 3_000  # KB; the kernel keeps the file in memory too
CLOCK_STEP_TOLERANCE = 1_000_000  # microseconds; less than this no lane notices
MIN_SQLITE_VERSION = (3, 35, 0)  # RETURNING and UPDATE … FROM


def wall_clock() -> int:
    return time.time_ns() // 1000


class Engine:
    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], int] | None = None,
        synchronous: Synchronous = "full",
        cache: int = CACHE,
    ) -> None:
        self.path = path
        self._cache = cache
        self.clock = clock or wall_clock
        self._durable_level = {"full": 2, "normal": 1}[synchronous]
        self._mode: bool | None = None  # what the connection is set to: durable commits or not
        self._latest = 0  # the clock as last read, to notice when it steps back
        self._closed = False
        self._prepare_file()
        try:
            self.db = sqlite3.connect(
                path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            self._configure()
            self._turn = WriteTurn(path)
            # The last lease was numbered by the clock of its day: who knows an earlier one stepped back.
            (self._latest,) = self.db.execute("SELECT value FROM meta WHERE key = 'last_lease'").fetchone()
        except sqlite3.Error as error:
            raise self.translate_error(error) from error

    def _prepare_file(self) -> None:
        if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
            raise QueueRefused(
                f"this Python carries SQLite {sqlite3.sqlite_version}, shoal needs 3.35 or newer",
                hint="use a newer Python, or another queue (--queue)",
            )
        if self.path == ":memory:":
            return
        folder = Path(self.path).absolute().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise QueueReadOnly(
                f"cannot make the folder {folder}: {error.strerror}",
                hint="run from a folder you may write to, or name one with --queue",
            ) from error
        kind = file_system(folder)
        if kind in NETWORK_FILE_SYSTEMS:
            raise QueueRefused(
                f"{self.path} lies on a network file system ({kind}), where SQLite's locks cannot be trusted",
                hint="put the file on a local disk (--queue sqlite:///local/path.db), or use a server for several machines",
            )
        # Who can read it could make sessions of the server: the key that signs them is in it.
        make_private(self.path)

    def _configure(self) -> None:
        db = self.db
        if self.path != ":memory:":
            use_wal(db, OPEN_TIMEOUT)
        db.execute(f"PRAGMA busy_timeout = {OPEN_TIMEOUT * 1000:.0f}")
        schema.prepare(db, self.path)
        db.execute("PRAGMA busy_timeout = 0")
        db.execute(f"PRAGMA cache_size = -{self._cache}")
        db.execute("PRAGMA journal_size_limit = 33554432")
        db.execute("PRAGMA temp_store = memory")
        db.execute("PRAGMA foreign_keys = off")

    async def write(
        self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `step(db, now, …)` in one transaction that is on disk when this returns."""
        return await self._transact(True, step, *args, **kwargs)

    async def write_relaxed(
        self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like write, but a power loss may undo it: for leases and slots, whose holders die with it."""
        return await self._transact(False, step, *args, **kwargs)

    async def _transact(
        self,
        durable: bool,
        step: Callable[Concatenate[sqlite3.Connection, int, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        await self._begin(durable)
        # From here to the commit there is no await: two coroutines cannot mix their transactions.
        try:
            now = self.clock()
            if now < self._latest - CLOCK_STEP_TOLERANCE:
                lanes.clamp_future_slots(self.db, now)
            answer = step(self.db, now, *args, **kwargs)
            self.db.execute("COMMIT")
            self._latest = now  # only now: a step back must not be forgotten with a verb that failed
        except sqlite3.Error as error:
            self._rollback()
            raise self.translate_error(error) from error
        except BaseException:
            self._rollback()
            raise
        return answer

    def read(self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `step` on one consistent view, without any lock."""
        self._check_open()
        retries_left = 300
        while True:
            try:
                self.db.execute("BEGIN")
                try:
                    return step(self.db, self.clock(), *args, **kwargs)
                finally:
                    self._rollback()
            except sqlite3.Error as error:
                # Readers wait for nobody but a process that recovers the log after a crash, which is short.
                retries_left -= 1
                if error_code(error) != sqlite3.SQLITE_BUSY or not retries_left:
                    raise self.translate_error(error) from error
            time.sleep(0.01)

    async def read_in_thread(
        self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As read, for what takes long: on a thread and a connection of its own, so that others go on."""
        if self.path == ":memory:":
            return self.read(step, *args, **kwargs)
        self._check_open()

        def read_copy() -> T:
            place = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(place, uri=True, timeout=5.0, isolation_level=None)) as db:
                db.execute("BEGIN")
                return step(db, now, *args, **kwargs)

        now = self.clock()
        try:
            return await asyncio.to_thread(read_copy)
        except sqlite3.Error as error:
            raise self.translate_error(error) from error

    async def wait(self, is_news: Callable[[sqlite3.Connection, int], bool], seconds: float) -> None:
        """Return when somebody has changed the file and it is news, or when the time is over."""
        end, before = time.monotonic() + seconds, self._version()
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, POLL_INTERVAL))
            if self._version() != before:
                if self.read(is_news):
                    return
                before = self._version()

    def _version(self) -> tuple[int, int]:
        """Changes with every commit: of other processes, or our own."""
        self._check_open()
        try:
            return self.db.execute("PRAGMA data_version").fetchone()[0], self.db.total_changes
        except sqlite3.Error as error:
            raise self.translate_error(error) from error

    async def _begin(self, durable: bool) -> None:
        self._check_open()
        if self._turn.acquire() and self._try_begin(durable):
            self._turn.release()
            return
        began = time.monotonic()
        try:
            while True:
                waited = time.monotonic() - began
                # Whoever has the turn may have been stopped: after a while the lock alone decides.
                mine = self._turn.acquire() or waited > TURN_TIMEOUT
                if mine and self._try_begin(durable, last=waited > LOCK_TIMEOUT):
                    return
                # Who may look looks often, the others seldom: SQLite's own ladder of sleeps, up to 100 ms
                # long, starves the unlucky while a busy process takes the lock again and again.
                await asyncio.sleep(0.0002 if mine else 0.0005 + 0.001 * random.random())
                self._check_open()
        finally:
            self._turn.release()

    def _try_begin(self, durable: bool, *, last: bool = False) -> bool:
        try:
            # Set here and not earlier: another verb may have set it while this one waited.
            if durable is not self._mode:
                self.db.execute(f"PRAGMA synchronous = {self._durable_level if durable else 1}")
                # Folding the log into the file takes milliseconds: a worker that asks for work is spared it.
                self.db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT if durable else 0}").fetchone()
                self._mode = durable
            self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or last:
                raise self.translate_error(error) from error
            return False
        return True

    @property
    def durable(self) -> bool:
        return self._durable_level == 2

    def _rollback(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def _check_open(self) -> None:
        if self._closed:
            raise QueueUnavailable("the queue was closed", hint="open it again")

    def translate_error(self, error: sqlite3.Error) -> ActionRequired:
        """The one mapping from SQLite's errors to ours."""
        code = error_code(error)
        where = self.path
        if code == sqlite3.SQLITE_FULL:
            return QueueFull(
                f"no space left on the disk of {where}",
                hint="free some space and run the same command again; nothing is lost",
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or (
            code == sqlite3.SQLITE_CANTOPEN and not _writable(where)
        ):
            return QueueReadOnly(
                f"{where} cannot be written",
                hint="check its owner and mode, and that the disk is not mounted read-only; nothing is lost",
            )
        if code == sqlite3.SQLITE_BUSY or code == sqlite3.SQLITE_LOCKED:
            return QueueUnavailable(
                f"{where} has been locked by another process for {LOCK_TIMEOUT:.0f} s",
                hint="look for a suspended shoal process (`shoal doctor`)",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return QueueRefused(
                f"{where} is damaged or not a shoal state file ({error})",
                hint="restore a backup, or start over with another --queue",
            )
        if code == sqlite3.SQLITE_IOERR and _disk_full(where):
            return QueueFull(
                f"no space left on the disk of {where}",
                hint="free some space and run the same command again; nothing is lost",
            )
        return QueueUnavailable(f"{where}: {error}", hint="see `shoal doctor`")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._turn.close()
            self.db.close()


def _open_turn_file(place: str) -> int:
    try:
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise QueueReadOnly(
            f"{place} cannot be written: {error.strerror}",
            hint="check its owner and mode, and that the disk is not mounted read-only; nothing is lost",
        ) from error


class WriteTurn:
    """A fair queue for the write lock: whoever holds the turn begins the next transaction, so that nobody barges in."""

    def __init__(self, path: str) -> None:
        self._file = -1 if path == ":memory:" else _open_turn_file(f"{path}-turn")
        self.is_held = False

    def acquire(self) -> bool:
        if not self.is_held and self._file >= 0:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        self.is_held = True
        return True

    def release(self) -> None:
        if self.is_held and self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.is_held = False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _writable(path: str) -> bool:
    target = Path(path)
    return os.access(target if target.exists() else target.absolute().parent, os.W_OK)


def _disk_full(path: str) -> bool:
    try:
        return os.statvfs(Path(path).absolute().parent).f_bavail == 0
    except OSError:
        return False
