"""Formats numbers, times and short sentences for people, the same on terminal, page and API."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from shoal.core.forecast import Forecast, lane_seconds
from shoal.core.lane import LaneState
from shoal.core.run_counters import SitemapUsage
from shoal.core.stats import Stats
from shoal.queue.base import TaskView
from shoal.runs.host_limits import HostLimit


def clean(text: object) -> str:
    """Text from outside, made harmless: one line, no control characters."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in str(text)
    )


def count(number: int, word: str = "") -> str:
    """1,234 or, with a word, "1 page" and "2 pages"."""
    if not word:
        return f"{number:,}"
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def format_share(some: int, of: int) -> str:
    """Whole percents, but neither 0 for some nor 100 for all but a few."""
    if not some or some >= of:
        return "100 %" if some else "0 %"
    return f"{min(99, max(1, round(100 * some / of)))} %"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def format_rate(per_second: float) -> str:
    """Requests per second as people write them, never as 1.5e+03."""
    return f"{per_second:.0f}" if per_second >= 100 else f"{per_second:.3g}"


def format_pace(spacing: float) -> str:
    """How often a host may be asked, by the seconds between two pages: 2 pages/s · 1 page/s · 1 page every 5 s."""
    if not spacing:
        return "no limit"
    if spacing > 1:
        return f"1 page every {f'{spacing:.3g} s' if spacing < 60 else format_duration(spacing)}"
    return f"{format_rate(1 / spacing)} {'page' if spacing == 1 else 'pages'}/s"


def format_duration(seconds: float) -> str:
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
    return "just now" if seconds < 2 else f"{format_duration(seconds)} ago"


def local_time(at: int) -> str:
    """A moment in local time."""
    when = datetime.fromtimestamp(at / 1e6, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")


def iso_time(at: int) -> str | None:
    """A moment for machines: ISO 8601 in UTC, None when it never came."""
    if not at:
        return None
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sitemap_words(usage: SitemapUsage) -> str:
    """What was read, how many URLs that gave, what was lost, and what failed."""
    failed = f"{count(usage.failed)} failed" if usage.failed else ""
    if not usage.read:
        return failed
    lost = f", {count(usage.lost)} more could not be read" if usage.lost else ""
    cut = f"; of {count(usage.cut)} only the beginning, for their length" if usage.cut else ""
    read = f"{count(usage.read, 'sitemap')} read: {count(usage.entries, 'URL')} listed{lost}{cut}"
    return f"{read}; {failed}" if failed else read


def failed_words(stats: Stats, sitemaps: SitemapUsage | None) -> str:
    """What failed for good, each by its name: "3 pages and 1 sitemap"; empty where nothing did."""
    aside = sitemaps.failed if sitemaps else 0
    parts = [count(number, word) for number, word in ((stats.failed - aside, "page"), (aside, "sitemap")) if number]
    return " and ".join(parts)


def format_account(stats: Stats) -> str:
    """The account of a run, for people to check."""
    sign = "=" if stats.is_balanced else "≠"
    removed = f" + discarded {count(stats.discarded)}" if stats.discarded else ""
    coming = f" + in transit {count(stats.in_transit)}" if stats.in_transit else ""
    return (
        f"  seen {count(stats.seen)}{coming} {sign} done {count(stats.done)} + dead {count(stats.dead)}{removed}"
        f" + cancelled {count(stats.cancelled)} + open {count(stats.open)}"
    )


def format_open_tasks(stats: Stats) -> str:
    """What is open: waiting, in progress, retrying."""
    waiting = stats.ready - stats.delayed
    parts = [f"waiting {count(waiting)}", f"in progress {count(stats.leased)}"]
    if stats.delayed:
        parts.append(f"retrying {count(stats.delayed)}")
    return " · ".join(parts)


def format_time_left(ahead: Forecast) -> str:
    if not ahead.seconds:
        return ""
    return f"{format_about(ahead)} left"


def format_about(ahead: Forecast) -> str:
    """How long it takes: a figure that more pages can only raise is not told as if it were certain."""
    return f"{'at least' if ahead.at_least else 'about'} {format_duration(ahead.seconds or 0.0)}"


def format_slowest_host(ahead: Forecast) -> str:
    return f"slowest: {format_host_forecast(ahead)}  ← this site is the bottleneck"


def format_host_forecast(ahead: Forecast) -> str:
    """How the deciding host comes to its time: "shop.example  84 left at 1 page/s = 1:24"."""
    at = f" at {format_pace(ahead.lane_spacing)}" if ahead.lane_spacing else ""
    held = f"held for {format_duration(ahead.lane_held)}, then " if ahead.lane_held else ""
    total = format_about(ahead) if ahead.at_least else format_duration(ahead.seconds or 0)
    return f"{clean(ahead.lane)}  {held}{count(ahead.lane_left)} left{at} = {total}"


def format_retry(view: TaskView, now: int) -> str:
    """Why a page waits to be tried again: "http://… again in 54 s after connect: refused"."""
    last = next((attempt for attempt in reversed(view.history) if attempt.cause), None)
    after = f" after {last.cause}" if last else ""
    said = f": {last.message}" if last and last.message not in ("", last.cause) else ""
    return clean(f"{view.url}  again in {format_duration(max(0.0, (view.due_at - now) / 1e6))}{after}{said}")


def format_held_host(lane: LaneState, now: int) -> str:
    """Why a host gets no requests right now."""
    word = "parked" if lane.parked else "slowed down"
    reason = f": {clean(lane.reason)}" if lane.reason else ""
    return f"{word} {format_hold(lane, now)}: {clean(lane.name)}{reason}"


def format_host_limit(limit: HostLimit, now: int) -> str:
    """What keeps a host below the pace that a run asks for: "shop.example at 1 page/s, not 20 pages/s: …"."""
    lane = limit.lane
    if limit.kind == "held":
        return format_held_host(lane, now)
    name, reason = clean(lane.name), limit_reason(limit)
    if limit.kind == "override":
        reason += f"; shoal hosts set {name} --reset removes it"
    if limit.is_idle:
        reason += f"; nobody works on it, and shoal cancel {clean(limit.run)} ends it"
    if limit.kind == "in_flight":
        return f"{name}: {reason}"
    asked = f", not {format_pace(limit.asked)}" if limit.asked else ""
    return f"{name} at {format_pace(lane.spacing)}{asked}: {reason}"


def limit_reason(limit: HostLimit) -> str:
    """The same without the host, its pace and what to do about it."""
    if limit.kind == "override":
        return "a person set that"
    if limit.kind == "other_run":
        return f"run {clean(limit.run)} asks for that"
    if limit.kind == "in_flight":
        return f"{count(limit.lane.max_in_flight, 'request')} in flight, its limit (--in-flight)"
    return describe_reason(limit.lane)


def describe_reason(lane: LaneState) -> str:
    """Why a host is held, or slower than runs ask for; empty where its last reason holds no more."""
    if lane.held_until:
        return clean(lane.reason)
    if lane.spacing_override >= 0 or lane.learned <= lane.requested:
        return ""
    words = {"crawl-delay": "Crawl-delay in its robots.txt", "": "learned from its answers"}
    return words.get(lane.reason, clean(lane.reason))


def format_least_time(lane: LaneState, now: int) -> str:
    """The least time a host needs for what waits; nothing where nothing does."""
    if lane.ready and lane.is_held_indefinitely(now):
        return format_hold(lane, now)
    least = lane_seconds(lane, now)
    return format_duration(least) if least else ""


def format_hold(lane: LaneState, now: int) -> str:
    if lane.is_held_indefinitely(now):
        return "until released"
    return f"for {format_duration(max(0.0, (lane.held_until - now) / 1e6))}"


def format_in_flight(lane: LaneState) -> str:
    """Requests in progress, of those it may have: "1/2"."""
    return f"{lane.in_flight}/{lane.max_in_flight}" if lane.max_in_flight else str(lane.in_flight)


def first_and_more(names: list[str]) -> str:
    """ "a" or "a and 3 more"."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def relative_path(path: str) -> str:
    """A path as people would type it from here."""
    if not path:
        return ""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
