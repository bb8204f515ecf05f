"""HandlerOutput: what one handler yielded, checked and encoded the moment it was yielded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from shoal.core.celery_task import CeleryTask
from shoal.core.record_key import record_key
from shoal.core.typed_task import Task
from shoal.errors import GiveUp
from shoal.extract.page import Follow

MAX_RECORD_BYTES = 64_000_000  # of records from one page


def _encode_foreign(value: Any) -> Any:
    """Values of libraries that msgspec does not know; pydantic models say how they want to be written."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_Encode = Callable[[Any], bytes]
_encode = msgspec.json.Encoder(enc_hook=_encode_foreign).encode
_encode_meta = msgspec.json.Encoder().encode  # as queues do: what travels comes back as it was


class HandlerOutput:
    __slots__ = (
        "bytes",
        "celery_tasks",
        "follows",
        "links",
        "missed",
        "record_keys",
        "records",
        "skipped",
        "tasks",
        "yielded",
    )

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.record_keys: list[bytes] = []  # one per record, where they are unique by a key
        self.follows: list[Follow] = []
        self.tasks: list[Task] = []
        self.celery_tasks: list[CeleryTask] = []
        self.yielded = 0  # records before they were made unique
        self.bytes = 0
        self.links = 0  # of a page without a handler
        self.missed: list[str] = []  # selectors that found nothing
        self.skipped: tuple[tuple[str, str], ...] = ()  # (reason, url) of links beside those to be followed

    def add_item(self, item: Any) -> None:
        """One yielded thing: a record, links to follow, a task of another type or of Celery, or a list of such."""
        if type(item) is tuple or type(item) is list:
            for one in item:
                self.add_item(one)
            return
        if isinstance(item, Follow):
            if item.meta is not None:
                _encode_checked(item.meta, "meta", _encode_meta)
            self.follows.append(item)
            return
        if isinstance(item, Task):
            self.tasks.append(item)
            return
        if isinstance(item, CeleryTask):
            self.celery_tasks.append(item)
            return
        # Encoded at once: a handler may go on changing the dict it yielded.
        self.add_record(_encode_record(item))

    def add_record(self, data: bytes) -> None:
        """One record that is encoded already."""
        self.bytes += len(data)
        if self.bytes > MAX_RECORD_BYTES:
            raise GiveUp("records_too_large", f"one page yielded more than {MAX_RECORD_BYTES:,} bytes of records")
        self.records.append(data)

    def make_unique(self, fields: Sequence[str]) -> None:
        """Of records with the same values of these fields keep the first; between pages the queue decides."""
        self.yielded = len(self.records)
        first: dict[bytes | int, tuple[bytes, bytes]] = {}
        for at, record in enumerate(self.records):
            key = record_key(record, fields)
            first.setdefault(key or at, (record, key))
        self.records = [record for record, _ in first.values()]
        self.record_keys = [key for _, key in first.values()]

    def add_follows(self, follows: Iterable[Follow]) -> None:
        self.follows.extend(follows)


def encode_json(item: Any) -> bytes:
    """Anything as JSON; says which part of it cannot be."""
    return _encode_checked(item, "record")


def _encode_record(item: Any) -> bytes:
    data = encode_json(item)
    if data[:1] != b"{":
        raise TypeError(
            f"a handler yields records (dict, dataclass, model), page.follow(…) and Task(…), not {type(item).__name__}"
        )
    return data


def _encode_checked(item: Any, what: str, encode: _Encode = _encode) -> bytes:
    try:
        return encode(item)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise TypeError(_encoding_error(item, what, error, encode)) from error


def _encoding_error(item: Any, what: str, error: Exception, encode: _Encode) -> str:
    """Name the key that cannot be written."""
    if not isinstance(item, dict):
        return f"{type(item).__name__}: {error}"
    for key, value in item.items():
        try:
            encode({key: value})
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as why:
            return f"{what} key {key!r}: {why}"
    return str(error)
