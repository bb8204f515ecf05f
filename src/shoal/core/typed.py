"""Typed: work that is not a page, as a type and a payload, and how it lies in the queue.

Typed tasks live in standing runs, one per type and UTC day, so that retention removes them whole.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from shoal.core import measure
from shoal.core.lane import FREE, Pace
from shoal.core.retry import OVERALL
from shoal.core.task import Task as QueueTask
from shoal.core.task import digest
from shoal.errors import Usage

PREFIX = "task:"  # of everything that is named after a type: scrapers, keys of runs, lanes, addresses
LANES = 8  # synthetic lanes over which a type without a lane of its own is spread
DEEPEST = 60
LARGEST = 1_000_000  # bytes of a payload
_INTEGERS = range(-(2**63), 2**63)

_type = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch
_seconds, _seconds_or_none = measure.seconds(), measure.seconds(zero=True)
_encode = msgspec.json.Encoder().encode


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a type, with what its handler needs to know as a payload of JSON values.

    key: the same key is the same task, for its UTC day. delay, ttl: seconds, or "5m". lane and rate: all
    tasks of a lane start at most so often, "10/m"; a rate alone is for the whole type.
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

    def __post_init__(self) -> None:
        check_type(self.type)
        check_payload(self.payload, self.type)
        if self.key is not None and not (isinstance(self.key, str) and 0 < len(self.key) <= 500):
            raise Usage(f"the key of a task is a short text, not {self.key!r}", hint='key="user1", or none')
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise Usage(f"priority {self.priority!r} is not a whole number", hint="higher is sooner")
        check_retries(self.retries)
        if not isinstance(self.lane, str) or len(self.lane) > 300:
            raise Usage(
                f"the lane of a task is a short text, not {self.lane!r:.100}", hint='lane="shop.example"'
            )
        self.core(self.key or "-")
        self.pace()

    def core(self, key: str = "", *, parent: int | None = None) -> QueueTask:
        """The task as queues keep it; without any key it is like no other."""
        name = self.key or key or uuid.uuid4().hex
        url = f"{PREFIX}{self.type}/{name}"
        identity = digest(url)
        meta: dict[str, Any] = {"payload": self.payload}
        if self.retries is not None:
            meta["retries"] = self.retries
        return QueueTask(
            url=url,
            lane=self.lane or self._own_lane(identity),
            digest=identity,
            kind=self.type,
            priority=self.priority,
            parent=parent,
            meta=meta,
            delay=_read("delay", _seconds_or_none, self.delay),
            ttl=None if self.ttl is None else _read("ttl", _seconds, self.ttl),
        )

    def _own_lane(self, identity: bytes) -> str:
        own = f"{PREFIX}{self.type}"
        return own if self.rate is not None else f"{own}:{identity[0] % LANES}"

    def pace(self) -> Pace | None:
        """What it asks of its lane; None leaves a named lane as it is."""
        if self.rate is not None:
            return Pace(1.0 / _read("rate", measure.rate, self.rate), 0)
        return None if self.lane else FREE


def _read(name: str, parse: Any, value: object) -> float:
    try:
        return float(parse(value))
    except (ValueError, TypeError):
        wanted = 'a rate such as "10/m"' if name == "rate" else 'seconds, or a duration such as "5m"'
        raise Usage(f"{name} {value!r} is not understood", hint=f"give {wanted}") from None


def check_type(name: object) -> None:
    if not isinstance(name, str) or not _type(name) or name == "page":
        raise Usage(
            f"{name!r} cannot be a type of tasks",
            hint="Use up to 64 letters, digits, _, . and -, like scrape_profile; page is taken.",
        )


def check_retries(retries: object) -> None:
    if retries is None:
        return
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= OVERALL:
        raise Usage(f"retries {retries!r} cannot be kept", hint=f"a whole number from 0 to {OVERALL}")


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
        raise Usage(
            f"the payload of a {owner} task must be a dict, not {_named(payload)}", hint='{"username": …}'
        )
    wrong = _foreign(payload, "payload", 0)
    if wrong:
        raise Usage(f"a {owner} task cannot be queued: {wrong}", hint="give JSON values, or a text for it")
    size = len(_encode(payload))
    if size > LARGEST:
        raise Usage(
            f"the payload of a {owner} task has {size:,} bytes, {LARGEST:,} are the most",
            hint="keep it elsewhere and give its name",
        )


def _named(value: object) -> str:
    return f"a value of the type {type(value).__name__}"


def _foreign(value: object, place: str, depth: int) -> str:
    """What is not JSON, in words; empty if all is well."""
    if value is None or value is True or value is False:
        return ""
    if depth > DEEPEST:
        return f"{place} is nested too deeply, or holds itself"
    if type(value) is str:
        return "" if value.isascii() or _is_text(value) else f"{place} holds half a character"
    if type(value) is int:
        return "" if value in _INTEGERS else f"{place} is a number with more than 64 bits"
    if type(value) is float:
        return "" if isfinite(value) else f"{place} is {value}, which JSON does not know"
    if type(value) is list or type(value) is tuple:
        return next(filter(None, (_foreign(v, f"{place}[{i}]", depth + 1) for i, v in enumerate(value))), "")
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str:
                return f"{place} has the key {key!r}, and JSON keys are texts"
            if found := _foreign(key, f"a key of {place}", depth) or _foreign(
                inner, f"{place}[{key!r}]", depth + 1
            ):
                return found
        return ""
    return f"{place} is {_named(value)}, which JSON does not know"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def standing_name(type: str) -> str:
    """What workers with a handler for this type say they serve."""
    return PREFIX + type


def unwrap(record: Any) -> Any:
    """What a handler gave, from the record that was made of it."""
    return record["value"] if isinstance(record, dict) and record.keys() == {"value"} else record


def is_wrapped(data: bytes) -> bool:
    """Whether an encoded record would be taken for a wrapped value."""
    return data.startswith(b'{"value":') and bool(msgspec.json.decode(data).keys() == {"value"})
