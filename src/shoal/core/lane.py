"""Lane: what a queue knows of one host, so that the whole fleet is polite as one."""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True, gc=False):
    """What one run asks of a lane. Where runs disagree the slowest wins."""

    spacing: float = 1.0  # seconds between two requests; 0 is unlimited
    max_in_flight: int = 2  # 0 is unlimited


FREE = Pace(0.0, 0)
FOR_GOOD = 10 * 365 * 86_400.0  # seconds; parked for so long is until somebody releases it


class Slot(msgspec.Struct, frozen=True, gc=False):
    """The answer to `reserve`: wait so long, then send exactly one request."""

    wait: float
    parked: str = ""  # not empty: the lane is parked for this reason and no slot was taken
    spacing: float = 0.0  # of the lane, in force now
    taken: bool = True  # False: it lies further away than the caller would wait, and was left to others


class LaneState(msgspec.Struct, frozen=True, gc=False):
    name: str
    next_at: int
    spacing: float  # in force
    asked: float  # the slowest pace any unfinished run asks for
    learned: float  # from robots, 429 and the like
    max_in_flight: int
    in_flight: int
    ready: int
    held_until: int = 0
    parked: bool = False
    reason: str = ""
    rule: float = -1.0  # the spacing that a person set; below 0: nobody did
    limit: int = -1  # likewise the requests at once

    def for_good(self, now: int) -> bool:
        """Whether it waits for a person, not for a moment."""
        return self.held_until - now > FOR_GOOD / 2 * 1e6


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A worker in the registry."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    started_at: int
    seen_at: int
    state: str = "working"
    doing: str = ""
    leased: int = 0
    serves: tuple[str, ...] = ()  # scrapers it has the code for
    code: str = ""  # which version of them
    done: int = 0  # since it started
    failed: int = 0
    memory: int = 0  # bytes
    asked: str = ""  # what a person asked of it and it may not have done yet: drain, pause
    figures: bytes = b""  # what it has counted, as core.figures packs it; the queue only keeps it
