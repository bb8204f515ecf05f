"""Words: numbers, times and short sentences as people read them, the same on terminal, page and API."""

from __future__ import annotations

from datetime import UTC, datetime

from shoal.core.forecast import Forecast, lane_seconds
from shoal.core.lane import LaneState
from shoal.core.stats import Stats
from shoal.queue.base import TaskView


def clean(text: object) -> str:
    """Text from outside, made harmless: one line, no control characters."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
        for char in str(text)
    )


def count(number: int, word: str = "") -> str:
    """1,234 or, with a word, "1 page" and "2 pages"."""
    if not word:
        return f"{number:,}"
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def pace(per_second: float) -> str:
    """Requests per second as people write them, never as 1.5e+03."""
    return f"{per_second:.0f}" if per_second >= 100 else f"{per_second:.3g}"


def lasting(seconds: float) -> str:
    """How long: 0.02 s · 0.4 s · 7 s · 1:24 · 12h21 · 3 d 4 h."""
    if 0.001 <= seconds < 0.1:
        return f"{seconds:.2g} s"
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86_400 * 2:
        return f"{whole // 3600}h{whole % 3600 // 60:02}"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def ago(at: int, now: int) -> str:
    """How long before `now`, both in microseconds."""
    seconds = max(0.0, (now - at) / 1e6)
    return "just now" if seconds < 2 else f"{lasting(seconds)} ago"


def moment(at: int) -> str:
    """A moment in local time."""
    when = datetime.fromtimestamp(at / 1e6, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")


def stamp(at: int) -> str | None:
    """A moment for machines: ISO 8601 in UTC, None when it never came."""
    if not at:
        return None
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def account(stats: Stats) -> str:
    """The account of a run, for people to check."""
    sign = "=" if stats.balanced else "≠"
    return (
        f"  seen {count(stats.seen)} {sign} done {count(stats.done)} + dead {count(stats.dead)}"
        f" + cancelled {count(stats.cancelled)} + open {count(stats.open)}"
    )


def queue_words(stats: Stats) -> str:
    """What is open: waiting, under way, to be tried again."""
    waiting = stats.ready - stats.delayed
    parts = [f"waiting {count(waiting)}", f"under way {count(stats.leased)}"]
    if stats.delayed:
        parts.append(f"trying again later {count(stats.delayed)}")
    return " · ".join(parts)


def left_words(ahead: Forecast) -> str:
    if not ahead.seconds:
        return ""
    return f"about {lasting(ahead.seconds)} left"


def deciding(ahead: Forecast) -> str:
    return f"slowest: {lane_sum(ahead)}  ← this site decides the end"


def lane_sum(ahead: Forecast) -> str:
    """How the deciding host comes to its time: "shop.example  84 left at 1/s = 1:24"."""
    at = f" at {pace(1 / ahead.lane_spacing)}/s" if ahead.lane_spacing else ""
    held = f"held for {lasting(ahead.lane_held)}, then " if ahead.lane_held else ""
    total = lasting(ahead.seconds or 0)
    return f"{clean(ahead.lane)}  {held}{count(ahead.lane_left)} left{at} = {total}"


def again_words(view: TaskView, now: int) -> str:
    """Why a page waits to be tried again: "http://… again in 54 s after connect: refused"."""
    last = next((attempt for attempt in reversed(view.history) if attempt.cause), None)
    after = f" after {last.cause}" if last else ""
    said = f": {last.message}" if last and last.message not in ("", last.cause) else ""
    return clean(f"{view.url}  again in {lasting(max(0.0, (view.due_at - now) / 1e6))}{after}{said}")


def lane_words(lane: LaneState, now: int) -> str:
    """Why a host gets no requests right now."""
    word = "parked" if lane.parked else "slowed down"
    reason = f": {clean(lane.reason)}" if lane.reason else ""
    return f"{word} {held_words(lane, now)}: {clean(lane.name)}{reason}"


def least_words(lane: LaneState, now: int) -> str:
    """The least time a host needs for what waits; nothing where nothing does."""
    least = lane_seconds(lane, now)
    return held_words(lane, now) if lane.ready and lane.for_good(now) else lasting(least) if least else ""


def held_words(lane: LaneState, now: int) -> str:
    return (
        "until released" if lane.for_good(now) else f"for {lasting(max(0.0, (lane.held_until - now) / 1e6))}"
    )


def under_way(lane: LaneState) -> str:
    """Requests under way, of those it may have: "1/2"."""
    return f"{lane.in_flight}/{lane.max_in_flight}" if lane.max_in_flight else str(lane.in_flight)


def some(names: list[str]) -> str:
    """ "a" or "a and 3 more"."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
