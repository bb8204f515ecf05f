"""Place: whose an output file is, and how far it is known to be whole."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from shoal import locks
from shoal.core.run import Run
from shoal.errors import OutputTaken, RunBusy
from shoal.store.base import Mark
from shoal.store.rows import fingerprint, refused, set_aside, sync_folder


class Position(msgspec.Struct, frozen=True):
    """What is known of an output: whose it is, how far it is whole, and what it is about to become."""

    run: str
    started: int  # when the run was created: names may come again
    path: str
    mark: Mark = Mark()
    pending: Mark | None = None  # a new file that is about to be renamed to `path`


class Place:
    """An output file, claimed for one run; what is known of it is kept in the state's folder."""

    def __init__(self, run: Run, path: Path, state: Path) -> None:
        self.path = path
        self._run = run
        folder = state / "exports"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
        self._file = folder / f"{name}.json"
        self._locks = [_lock(folder / f"{name}.lock", path)]
        try:
            if (common := _common_folder()) is not None:
                self._locks.append(_lock(common / f"{name}.lock", path))
        except RunBusy:
            self.release()
            raise

    @property
    def owner(self) -> tuple[str, int]:
        return self._run.name, self._run.began_at

    @property
    def beside(self) -> Path:
        """Where a file is written that is to take this one's place."""
        return self.path.with_name(f".{self.path.name}.shoal")

    def held(self) -> Position | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Position)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def keep(self, mark: Mark, *, pending: Mark | None = None) -> None:
        """Remember how far the file is whole; what it says must be durable before."""
        position = Position(self._run.name, self._run.began_at, str(self.path), mark, pending)
        temporary = self._file.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(position))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._file)
            sync_folder(self._file.parent)
        except OSError as error:
            raise refused(self._file, error) from error

    def recover(self, *, fresh: bool, replace: bool = False, appended: bool = True) -> Mark | None:
        """Where to go on, None to begin anew. Refuses a file that is not this run's, or was changed.

        fresh: set such a file aside, or remove it if it is as we wrote it. replace: only the latter.
        """
        held = self.held()
        ours = held is not None and (held.run, held.started) == self.owner
        if held is not None and ours and (mark := self.whole(held)):
            return mark
        if self.empty():
            return None
        if appended and held is not None and ours and not held.mark.size and not held.pending:
            return None  # begun by this run and never committed: all of it is copied again
        known = held is not None and self.whole(held) is not None
        if known and (fresh or replace):
            self.path.unlink()
        elif fresh:
            set_aside(self.path)
        elif ours:
            raise self.taken("was changed since this run wrote it")
        else:
            raise self.taken(f"holds the records of run {held.run}" if held else "")
        return None

    def whole(self, held: Position) -> Mark | None:
        """Which of the marks fits the file as it is."""
        for mark in filter(None, (held.pending, held.mark)):
            if mark.size and fingerprint(self.path, mark.size) == mark.print:
                return mark
        return None

    def replace(self, mark: Mark, *, was: Mark) -> None:
        """Put the new file, which is durable, in the old one's place; any crash leaves one of them."""
        # Both marks are on disk before the rename: whichever file a crash leaves is recognised.
        self.keep(was, pending=mark)
        try:
            self.beside.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise refused(self.path, error) from error
        self.keep(mark)

    def empty(self) -> bool:
        return not self.path.exists() or self.path.stat().st_size == 0

    def taken(self, why: str = "") -> OutputTaken:
        why = why or "exists and was not written by this run"
        return OutputTaken(f"{self.path.name} {why}", hint="another name after -o, or --fresh to begin anew")

    def release(self) -> None:
        for lock in self._locks:
            locks.release(lock)


def _common_folder() -> Path | None:
    """A folder for locks that all projects of this user have in common; None where it cannot be had."""
    folder = Path(tempfile.gettempdir()) / f"shoal-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        known = folder.lstat()
    except OSError:
        return None
    # Anybody may write to /tmp: a folder or link that somebody else put there is not used.
    return folder if stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid() else None


def _lock(place: Path, output: Path) -> int:
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not locks.take(handle):
        os.close(handle)
        raise RunBusy(
            f"{output.name} is being written by another process", hint="wait for it, or use another name"
        )
    return handle
