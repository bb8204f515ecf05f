"""Headroom: a bound on the memory that one piece of parsing may take in this process.

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

ALWAYS = 6_000  # bytes of a page that needs no bound: it cannot become 100 MB
LEAST = 64_000_000  # what any page may take
MOST = 150_000_000
GROWTH = 24  # bytes of memory per byte of a page; ordinary pages take 14
LOOK_EVERY = 16  # pages, where they are not big
BIG = 500_000
WHOLE = 230_000_000  # of the process, unless it has grown so far by itself that honest pages find no room
TIGHT, TIGHT_GROWTH, TIGHT_MOST = 40_000_000, 16, 100_000_000  # what a page may take even then

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TRIM_AGAIN = 16_000_000
_lowest = -_TRIM_AGAIN
_statm = -1
_usual: tuple[int, int] | None = None
_seen, _looks = 0, 0


class Headroom:
    """`with Headroom(len(body)):` around work in C; that work sees allocations fail beyond its room."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        if self._size > ALWAYS and (_usual is not None or _ready()):
            used, room = (
                _used_lately() if self._size < BIG else _used(),
                min(LEAST + GROWTH * self._size, MOST),
            )
            if used + room > WHOLE:
                used = _trimmed(_used())
            tight = min(TIGHT + TIGHT_GROWTH * self._size, TIGHT_MOST)
            _limit(max(min(used + room, WHOLE), used + tight))

    def __exit__(self, *_: object) -> None:
        if self._size > ALWAYS and _usual is not None:
            resource.setrlimit(resource.RLIMIT_DATA, _usual)


def _used() -> int:
    return int(os.pread(_statm, 128, 0).split()[5]) * _PAGE


def _used_lately() -> int:
    """What is in use, looked at now and then: that costs as much as all the rest."""
    global _seen, _looks
    _looks += 1
    if _looks % LOOK_EVERY == 1:
        _seen = _used()
    return _seen


def _trimmed(used: int) -> int:
    """What is in use after free memory was given back, which is slow and not done again without need."""
    global _lowest
    if used < _lowest + _TRIM_AGAIN:
        return used
    import ctypes  # late: hardly ever needed

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _lowest = _used()
    return _lowest


def _limit(data: int) -> None:
    assert _usual is not None
    soft, hard = _usual
    for other in (soft, hard):
        if other != resource.RLIM_INFINITY:
            data = min(data, other)
    resource.setrlimit(resource.RLIMIT_DATA, (data, hard))


def _ready() -> bool:
    """Open what is needed, once per process; False where the system cannot do it."""
    global _statm, _usual
    if resource is None or not _STATM.exists():
        return False
    _statm = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    _usual = resource.getrlimit(resource.RLIMIT_DATA)
    return True


def _forget() -> None:
    global _statm, _usual
    if _statm >= 0:
        os.close(_statm)  # it speaks of the parent
    _statm, _usual = -1, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
