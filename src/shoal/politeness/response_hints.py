"""Response hints: what a response says about how fast its server wants to be asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil

from shoal.core.task import LaneChange

MAX_RETRY_AFTER = 3600.0  # no server holds a lane for longer than this at a time
THROTTLE_STATUSES = frozenset({429, 503})
INITIAL_HOLD = 5.0  # without Retry-After; doubled with every such answer in a row
MAX_HOLD = 300.0
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?").fullmatch


def retry_after(value: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for; None if it makes no sense. `now` is Unix time."""
    value = value.strip()
    if _NUMBER(value):  # of whole seconds by the standard, but not by every server
        return min(float(value[:12]), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(0.0, date.timestamp() - now), MAX_RETRY_AFTER)


def throttle_change(
    lane: str, status: int, headers: Iterable[tuple[str, str]], *, now: float, consecutive: int = 0
) -> LaneChange | None:
    """How a 429 or 503 moves its lane. consecutive: such responses of this lane just before this one."""
    if status not in THROTTLE_STATUSES:
        return None
    asked = retry_after(next((value for name, value in headers if name == "retry-after"), ""), now)
    if asked:  # "now" from a server that just refused is not an answer
        return LaneChange(lane, hold_for=asked, reason=f"{status}, Retry-After {ceil(asked)} s")
    hold = min(INITIAL_HOLD * 2.0 ** min(consecutive, 10), MAX_HOLD)
    return LaneChange(lane, hold_for=hold, reason=f"{status}, waiting {hold:.0f} s")
