"""Places: the address of a fresh queue or store of each kind, for tests that go over all of them."""

from __future__ import annotations

import uuid
from pathlib import Path

from servers import postgres, redis

QUEUES = ("sqlite", "redis", "postgres")
STORES = ("sqlite", "postgres")


def place(kind: str, folder: Path) -> str:
    """An address that nobody has used before."""
    name = f"t{uuid.uuid4().hex}"
    if kind == "sqlite":
        return f"sqlite:///{folder / name}.db"
    return redis.url(name) if kind == "redis" else postgres.shared().url(name)
