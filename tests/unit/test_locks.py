"""Locks are held by us and by nobody we fork."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from shoal import locks
from shoal.worker.note import Note, is_alive


def test_a_lock_is_taken_once_and_free_after_release(tmp_path: Path) -> None:
    first = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "lock", os.O_RDWR)
    assert locks.take(first) and not locks.take(second)
    locks.release(first)
    locks.release(first)
    assert locks.take(second)
    locks.release(second)


def test_a_forked_child_keeps_no_worker_alive(tmp_path: Path) -> None:
    note = Note.create(tmp_path, "w-1")
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b".")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        note.leave()
        locks.release(note.file)  # as the kernel does when the worker is killed
        assert not is_alive(tmp_path / "w-1")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
