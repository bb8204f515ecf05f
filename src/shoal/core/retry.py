"""Retry: whether a failed task is tried again, and when. Pure; the caller brings the dice."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

OVERALL = 10  # retries of one task, whatever the mixture of causes
LONGEST = 3600.0  # seconds; also the most that a Retry-After can make us wait


class Rule(msgspec.Struct, frozen=True, gc=False):
    retries: float  # how many failures of this class are tried again
    base: float = 2.0  # seconds; doubled with every failure of the class
    cap: float = 300.0
    least: float = 0.0  # seconds; sooner is no use, whatever a person asked for


# By cause. A class may stand for all that begin with it: "timeout" for "timeout.slow", "http.5" for
# "http.502". The longest match counts, and the failures of a class are counted together.
RULES: dict[str, Rule] = {
    "dns": Rule(2, base=5.0),
    "connect": Rule(4),
    "tls": Rule(1, base=5.0),
    "timeout": Rule(3),
    "bad_response": Rule(2),
    "http.429": Rule(8),
    "http.503": Rule(4),
    "http.408": Rule(3),
    "http.425": Rule(3),
    "http.5": Rule(3),
    "http.501": Rule(0),
    "http.505": Rule(0),
    "http.511": Rule(0),
    "http": Rule(0),
    "handler": Rule(1),
    "handler_timeout": Rule(1),
    "memory": Rule(1),
    "client": Rule(inf, base=2.0, cap=60.0),  # what its handler works with cannot be opened: not its fault
    "robots_unreachable": Rule(5, base=60.0, cap=LONGEST, least=60.0),
    "lane_busy": Rule(inf, base=1.0, cap=60.0),  # a host it leads to has no slot for us: not its fault
    "stalled": Rule(inf, base=1.0, cap=10.0),  # our own fault, not the task's: never counted
    "closed": Rule(inf, base=1.0, cap=10.0),
    "decode": Rule(0),
    "too_large": Rule(0),
    "redirects": Rule(0),
    "blocked": Rule(0),
    "robots": Rule(0),
    "too_complex": Rule(0),
    "missing_field": Rule(0),
    "bad_field": Rule(0),
    "not_kept": Rule(0),
    "bad_url": Rule(0),
    "bad_request": Rule(0),
}
OTHERWISE = Rule(1)  # a cause nobody has thought of yet


def decide(
    cause: str,
    failures: Mapping[str, int],
    *,
    jitter: float,
    after: float | None = None,
    limits: Mapping[str, int] | None = None,
    base: float | None = None,
) -> float | None:
    """Seconds until the next try, or None when the task is dead.

    failures: earlier failures by cause, without this one. jitter: drawn from [0, 1). after: what the
    server asked for, a floor. limits: retries by cause or class, in place of those of the table; "*" is
    for all that is tried again at all. base: a person's delay before the second try, in place of the table's;
    it is never cut short, only spread by up to a quarter.
    """
    group, rule = _rule(cause)
    retries = _limit(cause, group, limits, rule.retries)
    earlier = sum(count for known, count in failures.items() if _rule(known)[0] == group)
    if earlier >= retries or (retries < inf and _counted(failures) >= OVERALL):
        return None
    doubled = 2.0 ** min(earlier, 30)
    if base is None or retries == inf:
        wait = jitter * min(rule.cap, rule.base * doubled)
    else:
        first = max(base, rule.least)
        wait = min(max(rule.cap, first), first * doubled) * (1.0 + jitter / 4)
    return max(wait, min(after or 0.0, LONGEST), 0.0)


def status_cause(status: int) -> tuple[str, bool]:
    """The cause of an HTTP error status, and whether it may pass."""
    cause = f"http.{status}"
    return cause, _rule(cause)[1].retries > 0


def _rule(cause: str) -> tuple[str, Rule]:
    for length in range(len(cause), 0, -1):
        rule = RULES.get(cause[:length])
        if rule is not None and _ends_a_word(cause, length):
            return cause[:length], rule
    return cause, OTHERWISE


def _ends_a_word(cause: str, length: int) -> bool:
    """ "handler" stands for "handler.KeyError" but not for "handlers"; "http.5" stands for "http.502"."""
    return length == len(cause) or cause[length] == "." or cause[length].isdigit()


def _limit(cause: str, group: str, limits: Mapping[str, int] | None, default: float) -> float:
    if limits is None or default == inf:
        return default
    for name in (cause, group):
        if name in limits:
            return limits[name]
    return limits.get("*", default) if default else default  # what is final stays final


def _counted(failures: Mapping[str, int]) -> int:
    return sum(count for cause, count in failures.items() if _rule(cause)[1].retries < inf)
