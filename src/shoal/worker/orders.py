"""Orders: what a supervisor tells a child, and what a child that gives up leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal import errors
from shoal.errors import Act, ShoalError

GAVE_UP = 70  # exit code: a person must act; the note says why
ORPHANED = 71
DRAINED = 72  # it was asked to drain, and has


class Orders(msgspec.Struct, frozen=True):
    worker: str
    folder: str  # of the notes
    parent: int
    memory_limit: int = 0  # bytes; 0 is none
    settings: dict[str, Any] = {}  # whatever the one who builds the tools wants to know


class LastWords(msgspec.Struct, frozen=True):
    """Why a worker gave up, in a form that the supervisor can raise again."""

    error: str
    message: str
    hint: str = ""

    def as_error(self) -> ShoalError:
        kind = getattr(errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, Act):
            return kind(self.message, hint=self.hint)
        return Act(f"{self.error}: {self.message}", hint=self.hint)
