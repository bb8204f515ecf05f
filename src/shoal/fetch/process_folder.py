"""ProcessFolder: where the programs that this process starts keep their files, and who removes them when it dies."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shoal.fetch import folder_watch
from shoal.files import flock

CLOSE_TIMEOUT = 10.0  # seconds


class ProcessFolder:
    """A folder of this process. Short, as sockets are kept in it, and locked, so that others know it is in use."""

    def __init__(self, path: Path, lock: int, watch: subprocess.Popen[bytes]) -> None:
        self.path = path
        self._lock = lock
        self._watch = watch

    @classmethod
    def make(cls, kind: str) -> ProcessFolder:
        """kind: of the programs, such as browsers; what was left of the same kind is removed."""
        root = Path(tempfile.gettempdir()) / f"shoal-{kind}-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid() or root.is_symlink():
            raise PermissionError(13, "the folder belongs to somebody else", str(root))
        path = root / f"{os.getpid()}-{secrets.token_hex(4)}"
        watch = _start_watch(path)  # before there is anything to remove: we may be killed at any moment
        turn = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)  # or else a folder is swept that is being made
            sweep(root)
            path.mkdir(mode=0o700)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            flock.try_lock(lock)
        finally:
            os.close(turn)
        return cls(path, lock, watch)

    def close(self) -> None:
        """Blocks until nothing is left."""
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        try:
            self._watch.wait(CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._watch.kill()
            self._watch.wait()
        flock.release(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


def _start_watch(path: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: it must outlive whoever kills all of ours."""
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", folder_watch.__file__, str(os.getpid()), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def sweep(root: Path) -> None:
    """Remove what processes left that died together with their watch. The caller has its turn at the root."""
    for path in root.iterdir():
        try:
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # it is our turn, so nobody is making it: its maker or its watch died midway
            shutil.rmtree(path, ignore_errors=True)
            continue
        except OSError:
            continue
        if not flock.try_lock(lock):
            os.close(lock)
            continue
        shutil.rmtree(path, ignore_errors=True)
        flock.release(lock)
