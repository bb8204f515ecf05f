"""Lane: what a queue knows of one host, so that the whole fleet is polite as one."""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True, gc=False):
    """What one run asks of a lane. Where runs disagree the slowest wins."""

    spacing: float = 1.0  # seconds between two requests; 0 is unlimited
    max_in_flight: int = 2  # 0 is unlimited


FREE = Pace(0.0, 0)


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
