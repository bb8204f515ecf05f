"""Request cost: how much one message of a worker may ask of the queue, so that others get their turn."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shoal.queue.base import MAX_PAGE_STATES, MAX_PUSH
from shoal.queue.cache_limits import check_cache_entry, check_cache_keys
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.page_state_limits import check_page_states
from shoal.queue.wire import LIMITS, MAX_ADD, MAX_LIMIT, VERBS

MAX_LEASE = 86_400.0  # seconds
MAX_FOUND = 10_000  # tasks found by all outcomes of one message
MAX_ITEMS = {
    "add": MAX_ADD, "push": MAX_PUSH, "settle": 1_000, "import_run": 5_000, "stats_of": 1_000,
    "save_page_states": MAX_PAGE_STATES,
}  # fmt: skip
MAX_INT = 2**63 - 1


class RequestTooCostly(ValueError):
    """More than one message may bring; the words say what."""


def limit_cost(verb: str, args: list[Any], named: dict[str, Any]) -> None:
    """Cut what is asked for to what is given at once; refuse what is brought beyond that."""
    positional = VERBS[verb].positional
    at = positional.index("limit") if "limit" in positional else None
    if at is not None:
        args[at] = _clamp(verb, args[at])
    elif "limit" in named:
        named["limit"] = _clamp(verb, named["limit"])
    if isinstance(lease := named.get("lease"), float | int):
        named["lease"] = min(lease, MAX_LEASE)
    most = MAX_ITEMS.get(verb, MAX_LIMIT)
    for value in (*args, *named.values()):
        if isinstance(value, list | set | frozenset | tuple | dict) and len(value) > most:
            raise RequestTooCostly(f"at most {most:,} at once")
        if isinstance(value, dict) and sum(len(it) for it in value.values() if isinstance(it, list)) > MAX_LIMIT:
            raise RequestTooCostly(f"at most {MAX_LIMIT:,} tasks at once")  # of all leases, or all workers
        if len(getattr(value, "ids", ())) > MAX_LIMIT:
            raise RequestTooCostly(f"at most {MAX_LIMIT:,} ids at once")
    if verb == "start_run" and not isinstance(args[0].spec.get("api", {}), dict):
        raise RequestTooCostly("what a run's spec says under api is a table")
    if verb == "settle" and sum(len(outcome.found) for outcome in args[0]) > MAX_FOUND:
        raise RequestTooCostly(f"at most {MAX_FOUND:,} found tasks at once")
    try:
        _check_contents(verb, args, named)
    except ValueError as error:
        raise RequestTooCostly(str(error)) from None


def _check_contents(verb: str, args: list[Any], named: dict[str, Any]) -> None:
    """ValueError for what a backend, too, would refuse, or would keep without being able to."""
    if verb == "cache_get":
        check_cache_keys(args[0], named["bodies"])
    elif verb == "cache_put":
        check_cache_entry(args[0])
    elif verb == "save_page_states":
        check_page_states(*args)
    elif verb == "settle":
        check_outbox(args[0])
        counter_totals(args[0])


def _clamp(verb: str, limit: int) -> int:
    return max(0, min(limit, LIMITS.get(verb, MAX_LIMIT)))


def unstorable(value: Any) -> str | None:
    """What no store can keep, if there is anything of the kind in a message."""
    if isinstance(value, bool) or value is None or isinstance(value, bytes):
        return None
    if isinstance(value, int):
        return "a number is too large" if abs(value) > MAX_INT else None
    if isinstance(value, float):
        return "a number is invalid or too large" if not math.isfinite(value) or abs(value) > 1e12 else None
    if isinstance(value, str):
        return "a text has a character that cannot be stored" if "\0" in value else None
    if isinstance(value, msgspec.Struct):
        return unstorable([getattr(value, name) for name in value.__struct_fields__])
    if isinstance(value, Mapping):
        return unstorable([*value.keys(), *value.values()])
    if isinstance(value, Collection):
        return next((what for what in map(unstorable, value) if what is not None), None)
    return None
