"""A worker of an edition that was frozen by tools/freeze-worker, as it runs beside newer code."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "data" / "frozen-worker.tar.xz"
FOLDER_VARIABLE = "SHOAL_FROZEN_WORKER"  # a folder to use instead, while it is being frozen
MANIFEST = "frozen-worker.json"


def editions() -> dict[str, int]:
    """What this edition declares of its messages and of what it keeps; older workers refuse what is beyond theirs."""
    from shoal.queue.postgres import migrate
    from shoal.queue.redis.server import LAYOUT
    from shoal.queue.wire import PROTOCOL

    return {"http": PROTOCOL, "redis": LAYOUT, "postgres": len(migrate.scripts())}


@dataclass(frozen=True)
class FrozenWorker:
    source: Path  # goes first on its path
    version: str
    editions: dict[str, int]

    def is_declared_older(self, kind: str) -> bool:
        """Whether the newest code says that workers of that edition do not understand it."""
        return self.editions[kind] != editions()[kind]


def unpack(folder: Path) -> FrozenWorker | None:
    """The frozen worker, or None if there is none."""
    if FOLDER_VARIABLE in os.environ:
        folder = Path(os.environ[FOLDER_VARIABLE])
    elif ARCHIVE.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
    else:
        return None
    about = json.loads((folder / MANIFEST).read_text())
    return FrozenWorker(folder, about["version"], about["editions"])
