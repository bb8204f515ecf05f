"""Lane: what a queue knows of one host, so that the whole fleet is polite as one.

A lane is named `host`, or `host@exit` where its requests leave by an exit of their own: the host sees other
visitors there, so each has a pace of its own. The name of a task's lane is fixed when it is admitted; with `cache:`
before it, it is for pages that were in the cache then. Requests of a session that the fleet shares (core/session.py)
have the lane `host@session:NAME`: it has a pace of its own, and waits alone while nobody is logged in.
"""

from __future__ import annotations

import re

import msgspec

EXIT_RULE = "1 to 63 small letters, digits, dots, dashes and underscores, beginning with a letter or a digit"
DIRECT = "direct"  # the exit of requests that leave their worker's machine by itself
SESSION_MARK = "session:"  # after the @, before the name of a session: no exit is called so
CACHE_PREFIX = "cache:"  # no host is called so: what follows a colon there is a port
_EXIT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def is_exit_name(name: str) -> bool:
    return _EXIT.fullmatch(name) is not None


def lane_name(host: str, exit: str = "") -> str:
    """The lane of a host's requests by an exit; ValueError for what cannot be the name of one."""
    if not exit:
        return host
    if not is_exit_name(exit):
        raise ValueError(f"{exit!r} is not the name of an exit: {EXIT_RULE}")
    return f"{host}@{exit}"


def host_of_lane(lane: str) -> str:
    return lane.partition("@")[0]


def exit_of_lane(lane: str) -> str:
    """The exit by which its requests leave; empty: the usual way, or as its session says."""
    owner = lane.partition("@")[2]
    return "" if owner.startswith(SESSION_MARK) else owner


def session_lane(host: str, session: str) -> str:
    return f"{host}@{SESSION_MARK}{session}"


def session_of_lane(lane: str) -> str:
    """The session whose requests have this lane; empty: of none."""
    owner = lane.partition("@")[2]
    return owner.removeprefix(SESSION_MARK) if owner.startswith(SESSION_MARK) else ""


def same_owner_lane(host: str, lane: str) -> str:
    """The lane of another host for requests of whoever has this one: by the same exit, or of the same session."""
    owner = lane.partition("@")[2]
    return f"{host}@{owner}" if owner else host


def cache_lane(lane: str) -> str:
    """The lane of pages that need not be asked for: each host has one without a pace beside its own."""
    return lane if lane.startswith(CACHE_PREFIX) else CACHE_PREFIX + lane


def lane_without_cache(lane: str) -> str:
    """The lane of the requests of a task, wherever it waited."""
    return lane.removeprefix(CACHE_PREFIX)


class Pace(msgspec.Struct, frozen=True, gc=False):
    """What one run asks of a lane. Where runs disagree the slowest wins."""

    spacing: float = 1.0  # seconds between two requests; 0 is unlimited
    max_in_flight: int = 2  # 0 is unlimited


UNLIMITED_PACE = Pace(0.0, 0)
INDEFINITELY = 10 * 365 * 86_400.0  # seconds; parked for so long is until it is released


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
    requested: float  # spacing: the slowest any unfinished run asks for
    learned: float  # from robots, 429 and the like
    max_in_flight: int
    in_flight: int
    ready: int
    held_until: int = 0
    parked: bool = False
    reason: str = ""
    spacing_override: float = -1.0  # the spacing that a person set; below 0: nobody did
    limit: int = -1  # likewise the requests at once

    def is_held_indefinitely(self, now: int) -> bool:
        """Whether it waits for a person, not for a moment."""
        return self.held_until - now > INDEFINITELY / 2 * 1e6


class WorkerStatus(msgspec.Struct, frozen=True, gc=False):
    """A worker as the registry knows it: who it is, what it does, what it has counted."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    started_at: int
    seen_at: int
    state: str = "working"
    activity: str = ""
    leased: int = 0
    serves: tuple[str, ...] = ()  # scrapers it has the code for
    code: str = ""  # which version of them
    done: int = 0  # since it started
    failed: int = 0
    memory: int = 0  # bytes
    command: str = ""  # drain or pause, as a person asked; the worker may not have obeyed yet
    capabilities: tuple[str, ...] = ()  # what tasks may need of it, such as "browser"
    counters: bytes = b""  # what it has counted, as core.counters packs it; the queue only keeps it
