"""Job: what the worker processes of a run are told to work on."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.config import Settings
from shoal.core.run import Run


class Job(msgspec.Struct, frozen=True):
    """What a worker process is told to work on."""

    target: str
    run: Run
    settings: Settings

    def orders(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made
