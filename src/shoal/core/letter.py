"""Letter: a dead letter as it leaves the queue: one death of one task, as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_LETTER_BYTES = 256_000  # of a letter; from a longer one payload and meta are left out
MAX_WORDS = 2_000  # letters of its message


class Letter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """`letter` is the id of the task; with `died_at`, UTC microseconds, it names one death of it."""

    letter: int
    died_at: int = 0
    run: str = ""
    scraper: str = ""
    url: str = ""
    type: str = ""
    payload: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    cause: str = ""
    message: str = ""
    status: int = 0
    attempts: int = 0
    added_at: int = 0
    worker: str = ""

    @property
    def name(self) -> str:
        """The same for every copy of the same death."""
        return f"{self.letter}.{self.died_at}"

    def encode(self) -> bytes:
        body = msgspec.json.encode(self)
        if len(body) > MAX_LETTER_BYTES:
            body = msgspec.json.encode(msgspec.structs.replace(self, payload=None, meta=None))
        return body
