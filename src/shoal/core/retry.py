"""Retry policy: whether a failed task is tried again, and when. Pure: the caller brings the random number."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

MAX_RETRIES = 10  # retries of one task, whatever the mixture of causes
MAX_RETRY_DELAY = 3600.0  # seconds; also the most that a Retry-After can make us wait


class RetryRule(msgspec.Struct, frozen=True, gc=False):
    retries: float  # how many failures of this class are tried again
    base: float = 2.0  # seconds; doubled with every failure of the class
    max_delay: float = 300.0
    min_delay: float = 0.0  # seconds; sooner is no use, whatever a person asked for
    is_free: bool = False  # it has its own limit, and does not count towards that of all causes together


# By cause. A class may stand for all that begin with it: "timeout" for "timeout.slow", "http.5" for
# "http.502". The longest match counts, and the failures of a class are counted together.
RULES: dict[str, RetryRule] = {
    "dns": RetryRule(2, base=5.0),
    "connect": RetryRule(4),
    "tls": RetryRule(1, base=5.0),
    "timeout": RetryRule(3),
    "bad_response": RetryRule(2),
    "http.429": RetryRule(8),
    "http.503": RetryRule(4),
    "http.408": RetryRule(3),
    "http.425": RetryRule(3),
    "http.5": RetryRule(3),
    "http.501": RetryRule(0),
    "http.505": RetryRule(0),
    "http.511": RetryRule(0),
    "http": RetryRule(0),
    "handler": RetryRule(1),
    "handler_timeout": RetryRule(1),
    "memory": RetryRule(1),
    "browser": RetryRule(2),
    "client": RetryRule(inf, base=2.0, max_delay=60.0),  # what its handler works with cannot be opened: not its fault
    "exit": RetryRule(inf, base=5.0, max_delay=300.0),  # no proxy of its exit works: not its fault
    "session": RetryRule(1, base=30.0),  # the page is for nobody who is logged in
    "robots_unreachable": RetryRule(5, base=60.0, max_delay=MAX_RETRY_DELAY, min_delay=60.0),
    "lane_busy": RetryRule(inf, base=1.0, max_delay=60.0),  # a host it leads to has no slot for us: not its fault
    "stalled": RetryRule(inf, base=1.0, max_delay=10.0),  # our own fault, not the task's: never counted
    "closed": RetryRule(inf, base=1.0, max_delay=10.0),
    "decode": RetryRule(0),
    "too_large": RetryRule(0),
    "redirects": RetryRule(0),
    "blocked": RetryRule(0),
    "block_page": RetryRule(5, base=60.0, max_delay=900.0, is_free=True),  # the site's doing, not the page's
    "robots": RetryRule(0),
    "too_complex": RetryRule(0),
    "missing_field": RetryRule(0),
    "bad_field": RetryRule(0),
    "not_kept": RetryRule(0),
    "garbled": RetryRule(0),
    "not_a_sitemap": RetryRule(0),
    "bad_url": RetryRule(0),
    "bad_request": RetryRule(0),
}
DEFAULT_RULE = RetryRule(1)  # a cause nobody has thought of yet


def retry_delay(
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
    group, rule = _rule_for(cause)
    retries = _limit(cause, group, limits, rule.retries)
    earlier = sum(count for known, count in failures.items() if _rule_for(known)[0] == group)
    is_counted = retries < inf and not rule.is_free
    if earlier >= retries or (is_counted and _counted_failures(failures) >= MAX_RETRIES):
        return None
    doubled = 2.0 ** min(earlier, 30)
    if base is None or retries == inf:
        wait = jitter * min(rule.max_delay, rule.base * doubled)
    else:
        first = max(base, rule.min_delay)
        wait = min(max(rule.max_delay, first), first * doubled) * (1.0 + jitter / 4)
    return max(wait, min(after or 0.0, MAX_RETRY_DELAY), 0.0)


def status_cause(status: int) -> tuple[str, bool]:
    """The cause of an HTTP error status, and whether it may pass."""
    cause = f"http.{status}"
    return cause, _rule_for(cause)[1].retries > 0


def _rule_for(cause: str) -> tuple[str, RetryRule]:
    for length in range(len(cause), 0, -1):
        rule = RULES.get(cause[:length])
        if rule is not None and _is_word_boundary(cause, length):
            return cause[:length], rule
    return cause, DEFAULT_RULE


def _is_word_boundary(cause: str, length: int) -> bool:
    """ "handler" stands for "handler.KeyError" but not for "handlers"; "http.5" stands for "http.502"."""
    return length == len(cause) or cause[length] == "." or cause[length].isdigit()


def _limit(cause: str, group: str, limits: Mapping[str, int] | None, default: float) -> float:
    if limits is None or default == inf:
        return default
    for name in (cause, group):
        if name in limits:
            return limits[name]
    return limits.get("*", default) if default else default  # what is final stays final


def _counted_failures(failures: Mapping[str, int]) -> int:
    rules = ((_rule_for(cause)[1], count) for cause, count in failures.items())
    return sum(count for rule, count in rules if rule.retries < inf and not rule.is_free)
