"""Measured: how much one message of a worker may ask of the queue, so that all others get their turn."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shoal.queue.http.verbs import ADD_AT_ONCE, LISTED, MOST, VERBS

LONGEST_LEASE = 86_400.0  # seconds
FOUND_AT_ONCE = 10_000  # tasks found by all outcomes of one message
AT_ONCE = {"add": ADD_AT_ONCE, "settle": 1_000, "carry_in": 5_000, "stats_of": 1_000}
LARGEST_NUMBER = 2**63 - 1


class NotMeasured(ValueError):
    """More than one message may bring; the words say what."""


def within_measure(verb: str, args: list[Any], named: dict[str, Any]) -> None:
    """Cut what is asked for to what is given at once; refuse what is brought beyond that."""
    positional = VERBS[verb].positional
    at = positional.index("limit") if "limit" in positional else None
    if at is not None:
        args[at] = _cut(verb, args[at])
    elif "limit" in named:
        named["limit"] = _cut(verb, named["limit"])
    if isinstance(lease := named.get("lease"), float | int):
        named["lease"] = min(lease, LONGEST_LEASE)
    most = AT_ONCE.get(verb, LISTED)
    for value in (*args, *named.values()):
        if isinstance(value, list | set | frozenset | tuple | dict) and len(value) > most:
            raise NotMeasured(f"at most {most:,} at once")
        if len(getattr(value, "ids", ())) > LISTED:
            raise NotMeasured(f"at most {LISTED:,} ids at once")
    if verb == "start_run" and not isinstance(args[0].spec.get("api", {}), dict):
        raise NotMeasured("what a run's spec says under api is a table")
    if verb == "settle" and sum(len(outcome.found) for outcome in args[0]) > FOUND_AT_ONCE:
        raise NotMeasured(f"at most {FOUND_AT_ONCE:,} found tasks at once")


def _cut(verb: str, limit: int) -> int:
    return max(0, min(limit, MOST.get(verb, LISTED)))


def odd(value: Any) -> str | None:
    """What no store can keep, if there is anything of the kind in a message."""
    if isinstance(value, bool) or value is None or isinstance(value, bytes):
        return None
    if isinstance(value, int):
        return "a number is too large" if abs(value) > LARGEST_NUMBER else None
    if isinstance(value, float):
        return "a number is none, or too large" if not math.isfinite(value) or abs(value) > 1e12 else None
    if isinstance(value, str):
        return "a text has a character that cannot be kept" if "\0" in value else None
    if isinstance(value, msgspec.Struct):
        return odd([getattr(value, name) for name in value.__struct_fields__])
    if isinstance(value, Mapping):
        return odd([*value.keys(), *value.values()])
    if isinstance(value, Collection):
        return next((what for what in map(odd, value) if what is not None), None)
    return None
