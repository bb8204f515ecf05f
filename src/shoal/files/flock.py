"""File locks that are held by this process and by none that it forks.

A lock belongs to the open file, which a forked child shares: without this, a helper process that a
handler left behind would make a dead worker look alive.
"""

from __future__ import annotations

import fcntl
import os

_locked: set[int] = set()


def try_lock(file: int) -> bool:
    """Lock an open file for this process; returns False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    _locked.add(file)
    return True


def release(file: int) -> None:
    """Close a file and release its lock; does nothing if the lock is no longer ours."""
    if file in _locked:
        _locked.discard(file)
        os.close(file)


def _release_in_child() -> None:
    for file in tuple(_locked):
        release(file)


os.register_at_fork(after_in_child=_release_in_child)
