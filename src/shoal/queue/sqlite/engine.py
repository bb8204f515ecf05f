"""Engine: one connection to the state file, its transactions, and its errors in our words.

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
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from shoal.errors import Act, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.sqlite import lanes, schema

P = ParamSpec("P")
T = TypeVar("T")

Synchronous = Literal["full", "normal"]
LOCK_PATIENCE = 30.0  # seconds to wait for other processes before saying that the file is locked
NETWORK_FILE_SYSTEMS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "afpfs",
        "webdav",
        "davfs",
        "9p",
        "fuse.sshfs",
        "ceph",
        "glusterfs",
        "lustre",
        "afs",
        "ncpfs",
    ]
)
TURN_PATIENCE = 2.0
LOOK_EVERY = 0.05  # seconds, who waits for work looks for it
CHECKPOINT = 2000  # pages of the log
CACHE, SMALL_CACHE = 8_000, 3_000  # KB; the kernel keeps the file in memory too
STEP_BACK = 1_000_000  # microseconds; less than this no lane notices
OLDEST = (3, 35, 0)  # RETURNING and UPDATE … FROM


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
        self._prepare_place()
        try:
            self.db = sqlite3.connect(
                path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            self._configure()
            self._turn = Turn(path)
            # The last lease was numbered by the clock of its day: who knows an earlier one stepped back.
            (self._latest,) = self.db.execute("SELECT value FROM meta WHERE key = 'last_lease'").fetchone()
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def _prepare_place(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
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
        # Who can read it could make sessions of the control room: the key that signs them is in it.
        with contextlib.suppress(OSError):  # it is there, or what is wrong is said when it is opened
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _configure(self) -> None:
        db = self.db
        if self.path != ":memory:" and db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA busy_timeout = 5000")
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

    async def hint(
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
            if now < self._latest - STEP_BACK:
                lanes.forget_future(self.db, now)
            answer = step(self.db, now, *args, **kwargs)
            self.db.execute("COMMIT")
            self._latest = now  # only now: a step back must not be forgotten with a verb that failed
        except sqlite3.Error as error:
            self._rollback()
            raise self.translated(error) from error
        except BaseException:
            self._rollback()
            raise
        return answer

    def read(
        self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `step` on one consistent view, without any lock."""
        self._check_open()
        patience = 300
        while True:
            try:
                self.db.execute("BEGIN")
                try:
                    return step(self.db, self.clock(), *args, **kwargs)
                finally:
                    self._rollback()
            except sqlite3.Error as error:
                # Readers wait for nobody but a process that recovers the log after a crash, which is short.
                patience -= 1
                if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or not patience:
                    raise self.translated(error) from error
            time.sleep(0.01)

    async def aside(
        self, step: Callable[Concatenate[sqlite3.Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As read, for what takes long: on a thread and a connection of its own, so that others go on."""
        if self.path == ":memory:":
            return self.read(step, *args, **kwargs)
        self._check_open()

        def look() -> T:
            place = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            with contextlib.closing(
                sqlite3.connect(place, uri=True, timeout=5.0, isolation_level=None)
            ) as db:
                db.execute("BEGIN")
                return step(db, now, *args, **kwargs)

        now = self.clock()
        try:
            return await asyncio.to_thread(look)
        except sqlite3.Error as error:
            raise self.translated(error) from error

    async def wait(self, is_news: Callable[[sqlite3.Connection, int], bool], seconds: float) -> None:
        """Return when somebody has changed the file and it is news, or when the time is over."""
        end, before = time.monotonic() + seconds, self._version()
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_EVERY))
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
            raise self.translated(error) from error

    async def _begin(self, durable: bool) -> None:
        self._check_open()
        if self._turn.take() and self._try_begin(durable):
            self._turn.give()
            return
        began = time.monotonic()
        try:
            while True:
                waited = time.monotonic() - began
                # Whoever has the turn may have been stopped: after a while the lock alone decides.
                mine = self._turn.take() or waited > TURN_PATIENCE
                if mine and self._try_begin(durable, last=waited > LOCK_PATIENCE):
                    return
                # Who may look looks often, the others seldom: SQLite's own ladder of sleeps, up to 100 ms
                # long, starves the unlucky while a busy process takes the lock again and again.
                await asyncio.sleep(0.0002 if mine else 0.0005 + 0.001 * random.random())
                self._check_open()
        finally:
            self._turn.give()

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
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or last:
                raise self.translated(error) from error
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

    def translated(self, error: sqlite3.Error) -> Act:
        """The one mapping from SQLite's errors to ours."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
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
                f"{where} has been locked by another process for {LOCK_PATIENCE:.0f} s",
                hint="look for a stopped shoal process (`shoal doctor`)",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return QueueRefused(
                f"{where} is damaged or not a shoal state file ({error})",
                hint="restore a backup, or start anew with another --queue",
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


def _open_turn(place: str) -> int:
    try:
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise QueueReadOnly(
            f"{place} cannot be written: {error.strerror}",
            hint="check its owner and mode, and that the disk is not mounted read-only; nothing is lost",
        ) from error


class Turn:
    """Who begins the next transaction: taken before the write lock, so that no one barges in."""

    def __init__(self, path: str) -> None:
        self._file = -1 if path == ":memory:" else _open_turn(f"{path}-turn")
        self.taken = False

    def take(self) -> bool:
        if not self.taken and self._file >= 0:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        self.taken = True
        return True

    def give(self) -> None:
        if self.taken and self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.taken = False

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


def file_system(folder: Path) -> str:
    """The type of the file system a folder is on, '' if it cannot be known."""
    try:
        if sys.platform == "darwin":
            return _mounted(
                subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout,
                str(folder.resolve()),
                mac=True,
            )
        return _mounted(
            Path("/proc/self/mounts").read_text("utf-8", "replace"), str(folder.resolve()), mac=False
        )
    except OSError:
        return ""


def _mounted(table: str, folder: str, *, mac: bool) -> str:
    best, kind = "", ""
    for line in table.splitlines():
        if mac:  # "//host/share on /Volumes/share (smbfs, …)"
            _, _, rest = line.partition(" on ")
            point, _, options = rest.rpartition(" (")
            this = options.split(",")[0].rstrip(")")
        else:
            fields = line.split()
            if len(fields) < 3:
                continue
            point, this = fields[1].replace("\\040", " "), fields[2]
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, this
    return kind
