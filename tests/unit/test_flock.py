"""Locks are held by us and by nobody we fork."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from shoal.files import flock
from shoal.worker.pool.crash_note import CrashNote, is_alive


def test_a_lock_is_taken_once_and_free_after_release(tmp_path: Path) -> None:
    first = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "lock", os.O_RDWR)
    assert flock.try_lock(first) and not flock.try_lock(second)
    flock.release(first)
    flock.release(first)
    assert flock.try_lock(second)
    flock.release(second)


def test_a_forked_child_keeps_no_worker_alive(tmp_path: Path) -> None:
    note = CrashNote.create(tmp_path, "w-1")
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b".")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        note.leave()
        flock.release(note.file)  # as the kernel does when the worker is killed
        assert not is_alive(tmp_path / "w-1")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
