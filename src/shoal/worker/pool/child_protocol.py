"""What a supervisor tells a child process (ChildConfig, PushedBatch), and why one gave up (ExitMessage)."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal import errors
from shoal.core.task import Claim
from shoal.errors import ActionRequired, ShoalError

EXIT_GAVE_UP = 70  # exit code: a person must act; the note says why
EXIT_ORPHANED = 71
EXIT_DRAINED = 72  # it was asked to drain, and has


class ChildConfig(msgspec.Struct, frozen=True):
    worker: str
    folder: str  # of the crash notes
    parent: int
    memory_limit: int = 0  # bytes; 0 is none
    settings: dict[str, Any] = {}  # for whoever builds the worker's context


class PushedBatch(msgspec.Struct, frozen=True):
    """Tasks that were leased to a worker by Queue.push."""

    claim: Claim
    sent: float  # when that was asked for, by the clock that processes of a machine share


class ExitMessage(msgspec.Struct, frozen=True):
    """Why a worker gave up, in a form that the supervisor can raise again."""

    error: str
    message: str
    hint: str = ""

    def as_error(self) -> ShoalError:
        kind = getattr(errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, ActionRequired):
            return kind(self.message, hint=self.hint)
        return ActionRequired(f"{self.error}: {self.message}", hint=self.hint)


def exit_error(message: str) -> ShoalError:
    """Why a worker gave up, from what it left."""
    try:
        return msgspec.json.decode(message, type=ExitMessage).as_error()
    except msgspec.MsgspecError:
        return ActionRequired("a worker exited without a reason", hint="its last messages are above")
