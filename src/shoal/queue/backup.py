"""QueueBackup: how what one queue holds is copied to a file as of one moment, and back. One class per backend."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

MAX_PAUSE = 8.0  # seconds in which writes may be held up: with a heartbeat's age less than workers give up leases after


class QueueBackup(Protocol):
    namespace: str  # a backup goes back to the one it was taken from; empty where a queue is a file
    edition: int  # of how this version keeps its data; newer data is refused

    async def save(self, file: Path, *, max_pause: float = MAX_PAUSE) -> None:
        """Copy everything to a new file, as it is at one moment, while others go on working."""
        ...

    async def is_empty(self) -> bool:
        """Whether nothing is there that a restore would mix with."""
        ...

    async def remove(self) -> None:
        """Remove everything; refused where that is seen to be in use."""
        ...

    async def load(self, file: Path) -> None:
        """Put back what was saved, where nothing is."""
        ...
