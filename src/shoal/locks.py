"""File locks that are held by this process and by none that it forks.

A lock belongs to the open file, which a forked child shares: without this, a helper process that a
handler left behind would keep a dead worker alive in everybody's eyes.
"""

from __future__ import annotations

import fcntl
import os

_held: set[int] = set()


def take(file: int) -> bool:
    """Lock an open file for ourselves; False if somebody else has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    _held.add(file)
    return True


def release(file: int) -> None:
    """Close a file and give up its lock; harmless for one that is not ours any more."""
    if file in _held:
        _held.discard(file)
        os.close(file)


def _forget() -> None:
    for file in tuple(_held):
        release(file)


os.register_at_fork(after_in_child=_forget)
