"""Seen-set: how long a task that one run has had is kept from others, reckoned in hours to be small."""

from __future__ import annotations

import re

HOUR = 3_600_000_000  # µs
SWEEP_INTERVAL = HOUR  # between two passes that remove what is no longer remembered
CLEAR_STEPS = 100  # in which a set that is cleared is removed at once
NAME_RULE = "1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def hour_of(now: int, created_at: int) -> int:
    """The hour of a set's life in which a task joins it."""
    return max(0, now - created_at) // HOUR


def oldest_hour(now: int, created_at: int, seen_for: int) -> int:
    """The first hour whose tasks are still remembered; `seen_for` is in µs, 0 is for ever."""
    return max(0, (now - created_at - seen_for) // HOUR) if seen_for else 0
