"""MemoryLimit: a bound on the memory that one piece of parsing may take in this process.

A few kilobytes of HTML can ask for gigabytes: open <b a=1><b a=2>… are made anew in every paragraph.
While a page is parsed, the process may only grow by so much; what asks for more gets none, and says so.
"""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # not on every system; then there is no bound
    resource = None  # type: ignore[assignment]

UNLIMITED_SIZE = 6_000  # bytes of a page that needs no bound: it cannot become 100 MB
MIN_ROOM = 64_000_000  # what any page may take
MAX_ROOM = 150_000_000
ROOM_PER_BYTE = 24  # bytes of memory per byte of a page; ordinary pages take 14
MEASURE_EVERY = 16  # pages, where they are not big
BIG_PAGE = 500_000
# Of the process, unless it has grown so far by itself that honest pages find no room.
PROCESS_LIMIT = 230_000_000
# What a page may take even then.
MIN_ROOM_TIGHT, ROOM_PER_BYTE_TIGHT, MAX_ROOM_TIGHT = 40_000_000, 16, 100_000_000

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TRIM_INTERVAL = 16_000_000
_lowest = -_TRIM_INTERVAL
_statm = -1
_original_limit: tuple[int, int] | None = None
_last_used, _measured = 0, 0


class MemoryLimit:
    """`with MemoryLimit(len(body)):` around work in C; that work sees allocations fail beyond its room."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        if self._size > UNLIMITED_SIZE and (_original_limit is not None or _initialize()):
            used, room = (
                _recently_used() if self._size < BIG_PAGE else _used(),
                min(MIN_ROOM + ROOM_PER_BYTE * self._size, MAX_ROOM),
            )
            if used + room > PROCESS_LIMIT:
                used = _used_after_trim(_used())
            tight = min(MIN_ROOM_TIGHT + ROOM_PER_BYTE_TIGHT * self._size, MAX_ROOM_TIGHT)
            _limit(max(min(used + room, PROCESS_LIMIT), used + tight))

    def __exit__(self, *_: object) -> None:
        if self._size > UNLIMITED_SIZE and _original_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, _original_limit)


def _used() -> int:
    return int(os.pread(_statm, 128, 0).split()[5]) * _PAGE


def _recently_used() -> int:
    """What is in use, looked at now and then: that costs as much as all the rest."""
    global _last_used, _measured
    _measured += 1
    if _measured % MEASURE_EVERY == 1:
        _last_used = _used()
    return _last_used


def measure_again() -> None:
    """Something other than a page has made the process bigger: what is in use is looked at before the next page."""
    global _measured
    _measured = 0


def _used_after_trim(used: int) -> int:
    """What is in use after free memory was given back, which is slow and not done again without need."""
    global _lowest
    if used < _lowest + _TRIM_INTERVAL:
        return used
    import ctypes  # late: hardly ever needed

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _lowest = _used()
    return _lowest


def _limit(data: int) -> None:
    assert _original_limit is not None
    soft, hard = _original_limit
    for other in (soft, hard):
        if other != resource.RLIM_INFINITY:
            data = min(data, other)
    resource.setrlimit(resource.RLIMIT_DATA, (data, hard))


def _initialize() -> bool:
    """Open what is needed, once per process; False where the system cannot do it."""
    global _statm, _original_limit
    if resource is None or not _STATM.exists():
        return False
    _statm = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    _original_limit = resource.getrlimit(resource.RLIMIT_DATA)
    return True


def _reset_after_fork() -> None:
    global _statm, _original_limit
    if _statm >= 0:
        os.close(_statm)  # it speaks of the parent
    _statm, _original_limit = -1, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
