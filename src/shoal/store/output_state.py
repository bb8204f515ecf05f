"""OutputState: whose an output file is, and how far it is known to be whole."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from shoal.core.run import Run
from shoal.errors import OutputTaken, RunBusy
from shoal.files import flock
from shoal.store.append_file import fingerprint, set_aside, sync_folder, write_error
from shoal.store.base import Checkpoint


class SavedState(msgspec.Struct, frozen=True):
    """What is known of an output: whose it is, how far it is whole, and what it is about to become."""

    run: str
    started: int  # when the run was created: names may come again
    path: str
    checkpoint: Checkpoint = msgspec.field(name="mark", default=Checkpoint())
    pending: Checkpoint | None = None  # a new file that is about to be renamed to `path`
    restored: str = ""  # which restore of the queue it was written after


class OutputState:
    """An output file, claimed for one run; what is known of it is kept in the state's folder."""

    def __init__(self, run: Run, path: Path, state: Path, restored: str = "") -> None:
        """restored: the last restore of the queue from a backup."""
        self.path = path
        self.kept_as = ""  # the name of what was there and is not ours
        self.was_restored = False  # it is kept because the queue was restored since
        self._run = run
        self._restored = restored
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
    def temporary_path(self) -> Path:
        """Where a file is written that is to take this one's place."""
        return self.path.with_name(f".{self.path.name}.shoal")

    def begin_temporary(self) -> Path:
        """Make that file, empty: no more people may read what is written there than may read this one."""
        other = self.temporary_path
        try:
            mode = self.path.stat().st_mode if self.path.exists() else 0o666
            other.unlink(missing_ok=True)
            os.close(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o666 | 0o600))
        except OSError as error:
            raise write_error(self.path, error) from error
        return other

    def load(self) -> SavedState | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=SavedState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def save(self, checkpoint: Checkpoint, *, pending: Checkpoint | None = None) -> None:
        """Remember how far the file is whole; what it says must be durable before."""
        saved = SavedState(self._run.name, self._run.began_at, str(self.path), checkpoint, pending, self._restored)
        temporary = self._file.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(saved))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._file)
            sync_folder(self._file.parent)
        except OSError as error:
            raise write_error(self._file, error) from error

    def keep_former(self) -> None:
        """Set aside what this run wrote before its queue was restored, which gives numbers a second time since."""
        saved = self.load()
        if saved is None or (saved.run, saved.started) != self.owner or saved.restored == self._restored:
            return
        if not self.is_empty():
            other = set_aside(self.path)
            journal = self.path.with_name(f"{self.path.name}-journal")
            if journal.exists():  # of a database: it belongs to the file it was made for
                journal.replace(other.with_name(f"{other.name}-journal"))
            self.kept_as, self.was_restored = other.name, True
        self.save(Checkpoint())

    def recover(self, *, fresh: bool, replace: bool = False, incremental: bool = True) -> Checkpoint | None:
        """Where to go on, None to begin anew. Refuses a file that is not this run's, or was changed.

        fresh: set such a file aside, or remove it if it is as we wrote it. replace: only the latter.
        """
        saved = self.load()
        ours = saved is not None and (saved.run, saved.started) == self.owner
        if saved is not None and ours and (checkpoint := self.matching_checkpoint(saved)):
            return checkpoint
        if self.is_empty():
            return None
        if incremental and saved is not None and ours and not saved.checkpoint.size and not saved.pending:
            return None  # begun by this run and never committed: all of it is copied again
        known = saved is not None and self.matching_checkpoint(saved) is not None
        if known and (fresh or replace):
            self.path.unlink()
        elif fresh:
            self.kept_as = set_aside(self.path).name
        elif ours:
            raise self.conflict_error("was changed since this run wrote it")
        else:
            raise self.conflict_error(f"holds the records of run {saved.run}" if saved else "", replaceable=known)
        return None

    def matching_checkpoint(self, saved: SavedState) -> Checkpoint | None:
        """Which of the marks fits the file as it is."""
        for checkpoint in filter(None, (saved.pending, saved.checkpoint)):
            if checkpoint.size and fingerprint(self.path, checkpoint.size) == checkpoint.fingerprint:
                return checkpoint
        return None

    def replace(self, checkpoint: Checkpoint, *, previous: Checkpoint) -> None:
        """Put the new file, which is durable, in the old one's place; any crash leaves one of them."""
        # Both marks are on disk before the rename: whichever file a crash leaves is recognised.
        self.save(previous, pending=checkpoint)
        try:
            self.temporary_path.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise write_error(self.path, error) from error
        self.save(checkpoint)

    def is_empty(self) -> bool:
        return not self.path.exists() or self.path.stat().st_size == 0

    def conflict_error(self, why: str = "", *, replaceable: bool = False) -> OutputTaken:
        why = why or "exists and was not written by this run"
        hint = "another name after -o, or --fresh to start over"
        if not replaceable:
            hint += f"; what is in {self.path.name} now is kept under another name then"
        error = OutputTaken(f"{self.path.name} {why}", hint=hint)
        error.is_replaceable = replaceable
        return error

    def release(self) -> None:
        for lock in self._locks:
            flock.release(lock)


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


def _lock(lock_path: Path, output: Path) -> int:
    handle = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not flock.try_lock(handle):
        os.close(handle)
        raise RunBusy(f"{output.name} is being written by another process", hint="wait for it, or use another name")
    return handle
