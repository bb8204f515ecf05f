"""URLs of new queues and result stores, for tests that run on every kind of backend."""

from __future__ import annotations

import uuid
from pathlib import Path

from servers import postgres, redis

QUEUE_KINDS = ("sqlite", "redis", "postgres")
STORE_KINDS = ("sqlite", "postgres")


def backend_url(kind: str, folder: Path, file: str = "") -> str:
    """The URL of a queue or store that no test has used before; `file` is what a file is called."""
    name = f"t{uuid.uuid4().hex}"
    if kind == "sqlite":
        return f"sqlite:///{folder / (file or name)}.db"
    return redis.url(name) if kind == "redis" else postgres.shared().url(name)
