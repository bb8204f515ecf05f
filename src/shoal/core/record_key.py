"""Record keys: what makes two records of a run the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.core.task import digest

_encode = msgspec.json.Encoder(order="sorted").encode


def record_key(data: bytes, fields: Sequence[str]) -> bytes:
    """The digest of these fields of an encoded record; empty where it has none of them."""
    record: dict[str, Any] = msgspec.json.decode(data)
    values = [record.get(name) for name in fields]
    if all(value is None for value in values):
        return b""
    return digest(f"record {_encode(values).decode()}")  # no request begins like that
