"""Typed tasks: work that is not a page, as a type and a payload, and how the queue stores it.

Typed tasks live in daily runs, one per type and UTC day, so that retention removes them whole.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from shoal.core import units
from shoal.core.capability import capability_names
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.retry import MAX_RETRIES
from shoal.core.task import Ack, digest
from shoal.core.task import Task as QueueTask
from shoal.core.task_kind import PAGE
from shoal.errors import UsageError

TYPE_PREFIX = "task:"  # of everything that is named after a type: scrapers, keys of runs, lanes, URLs
DEFAULT_LANES = 8  # synthetic lanes over which a type without a lane of its own is spread
MAX_DEPTH = 60
MAX_PAYLOAD_BYTES = 1_000_000  # bytes of a payload
_INTEGERS = range(-(2**63), 2**63)

_type = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch
_seconds, _seconds_or_none = units.seconds(), units.seconds(zero=True)
_encode = msgspec.json.Encoder().encode


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a type, with what its handler needs to know as a payload of JSON values.

    key: the same key is the same task, for its UTC day. delay, ttl: seconds, or "5m". lane and rate: all
    tasks of a lane start at most so often, "10/m"; a rate alone is for the whole type. retry_backoff: seconds
    before the first retry, doubled each time. ack: "manual" is done at least once; "auto" at most once, it is
    never tried again. needs: capabilities, such as "browser"; only workers that have all of them
    (--has browser) get it.
    """

    type: str
    payload: dict[str, Any] = {}
    priority: int = 0
    key: str | None = None
    delay: float | str = 0.0
    ttl: float | str | None = None
    lane: str = ""
    rate: float | str | None = None
    retries: int | None = None
    retry_backoff: float | str | None = None
    ack: Ack = "manual"
    needs: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_type(self.type)
        check_payload(self.payload, self.type)
        if self.key is not None and not (isinstance(self.key, str) and 0 < len(self.key) <= 500):
            raise UsageError(f"the key of a task is a short text, not {self.key!r}", hint='key="user1", or none')
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise UsageError(f"priority {self.priority!r} is not a whole number", hint="higher runs sooner")
        check_retries(self.retries)
        if not isinstance(self.lane, str) or len(self.lane) > 300:
            raise UsageError(f"the lane of a task is a short text, not {self.lane!r:.100}", hint='lane="shop.example"')
        if self.ack not in ("manual", "auto"):
            raise UsageError(f"ack {self.ack!r} is not known", hint='"manual" (at least once) or "auto" (at most once)')
        self.to_queue_task(self.key or "-")
        self.pace()

    def to_queue_task(self, key: str = "", *, parent: int | None = None) -> QueueTask:
        """The task as queues keep it; without any key it is like no other."""
        name = self.key or key or uuid.uuid4().hex
        url = f"{TYPE_PREFIX}{self.type}/{name}"
        identity = digest(url)
        meta: dict[str, Any] = {"payload": self.payload}
        if self.retries is not None:
            meta["retries"] = self.retries
        if self.retry_backoff is not None:
            meta["retry_backoff"] = parse_backoff(self.retry_backoff)
        return QueueTask(
            url=url,
            lane=self.lane or self._default_lane(identity),
            digest=identity,
            kind=self.type,
            priority=self.priority,
            parent=parent,
            meta=meta,
            delay=_parse_field("delay", _seconds_or_none, self.delay),
            ttl=None if self.ttl is None else _parse_field("ttl", _seconds, self.ttl),
            ack=self.ack,
            needs=capability_names(self.needs) if self.needs else (),
        )

    def _default_lane(self, identity: bytes) -> str:
        own = f"{TYPE_PREFIX}{self.type}"
        return own if self.rate is not None else f"{own}:{identity[0] % DEFAULT_LANES}"

    def pace(self) -> Pace | None:
        """What it asks of its lane; None leaves a named lane as it is."""
        if self.rate is not None:
            return Pace(1.0 / _parse_field("rate", units.rate, self.rate), 0)
        return None if self.lane else UNLIMITED_PACE


def _parse_field(name: str, parse: Any, value: object) -> float:
    try:
        return float(parse(value))
    except (ValueError, TypeError):
        wanted = 'a rate such as "10/m"' if name == "rate" else 'seconds, or a duration such as "5m"'
        raise UsageError(f"{name} {value!r} is not understood", hint=f"give {wanted}") from None


def check_type(name: object) -> None:
    if not isinstance(name, str) or not _type(name) or name == PAGE:
        raise UsageError(
            f"{name!r} cannot be a task type",
            hint="Use up to 64 letters, digits, _, . and -, like scrape_profile; page is taken.",
        )


def check_retries(retries: object) -> None:
    if retries is None:
        return
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
        raise UsageError(f"retries {retries!r} cannot be kept", hint=f"a whole number from 0 to {MAX_RETRIES}")


def parse_backoff(value: float | str) -> float:
    """Seconds before the first retry."""
    return _parse_field("retry_backoff", _seconds_or_none, value)


def backoff_of(meta: Mapping[str, Any]) -> float | None:
    """A task's own word on the delay before its first retry, if it is one."""
    found = meta.get("retry_backoff")
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if isfinite(found) and found >= 0 else None


def retries_of(meta: Mapping[str, Any]) -> int | None:
    """A task's own word on retries; whatever else stands there counts for nothing."""
    found = meta.get("retries")
    return found if type(found) is int and found >= 0 else None


def payload_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    found = meta.get("payload")
    return found if isinstance(found, dict) else {}


def check_payload(payload: object, owner: str) -> None:
    """Refuse what would not come out of the queue as it went in."""
    if not isinstance(payload, dict):
        raise UsageError(
            f"the payload of a {owner} task must be a dict, not {_type_name(payload)}", hint='{"username": …}'
        )
    wrong = _json_problem(payload, "payload", 0)
    if wrong:
        raise UsageError(f"a {owner} task cannot be queued: {wrong}", hint="give JSON values, or a text for it")
    size = len(_encode(payload))
    if size > MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"the payload of a {owner} task has {size:,} bytes, {MAX_PAYLOAD_BYTES:,} are the most",
            hint="store it elsewhere and pass its name",
        )


def _type_name(value: object) -> str:
    return f"a value of the type {type(value).__name__}"


def _json_problem(value: object, place: str, depth: int) -> str:
    """What is not JSON, in words; empty if all is well."""
    if value is None or value is True or value is False:
        return ""
    if depth > MAX_DEPTH:
        return f"{place} is nested too deeply, or contains itself"
    if type(value) is str:
        return "" if value.isascii() or _is_encodable(value) else f"{place} contains half a character"
    if type(value) is int:
        return "" if value in _INTEGERS else f"{place} is a number with more than 64 bits"
    if type(value) is float:
        return "" if isfinite(value) else f"{place} is {value}, which JSON cannot express"
    if type(value) is list or type(value) is tuple:
        return next(filter(None, (_json_problem(v, f"{place}[{i}]", depth + 1) for i, v in enumerate(value))), "")
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str:
                return f"{place} has the key {key!r}, and JSON keys are texts"
            if found := _json_problem(key, f"a key of {place}", depth) or _json_problem(
                inner, f"{place}[{key!r}]", depth + 1
            ):
                return found
        return ""
    return f"{place} is {_type_name(value)}, which JSON cannot express"


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def daily_scraper_name(type: str) -> str:
    """The scraper name of a type's daily runs: workers with a handler for the type serve it."""
    return TYPE_PREFIX + type


def unwrap(record: Any) -> Any:
    """What a handler gave, from the record that was made of it."""
    return record["value"] if isinstance(record, dict) and record.keys() == {"value"} else record


def is_wrapped(data: bytes) -> bool:
    """Whether an encoded record would be taken for a wrapped value."""
    return data.startswith(b'{"value":') and bool(msgspec.json.decode(data).keys() == {"value"})
