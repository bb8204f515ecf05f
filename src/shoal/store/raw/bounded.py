"""BoundedPageStore: pages kept as long as there is room for them, the oldest out first.

For runs that nobody asked to save their pages. Whatever goes wrong here costs pages, never a run: a page
that is not kept is fetched again when somebody wants to read it once more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from shoal.core.page import Response
from shoal.errors import ActionRequired
from shoal.store.raw.page_store import RawPageStore

log = logging.getLogger("shoal.store")

MAX_BYTES = 1_000_000_000
SHARE_OF_FREE_DISK = 0.1
SHRINK_TO = 0.95  # of the limit, so that not every page pushes one out
LOCK_TIMEOUT = 2.0  # seconds; a run does not wait longer for what it can do without


class BoundedPageStore:
    """Takes pages in; they are read with a RawPageStore of the same folder.

    free_bytes: of the disk that a folder is on.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int = MAX_BYTES, free_bytes: Callable[[Path], int] | None = None
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._free_bytes = free_bytes or _free_bytes
        self._store: RawPageStore | None = None
        try:
            # Not durable: after a power loss the pages of the last seconds are fetched again.
            self._store = RawPageStore(folder, durable=False, lock_timeout=LOCK_TIMEOUT)
        except ActionRequired as error:
            self._give_up(error)

    @property
    def is_full(self) -> bool:
        return self._store is not None and self._store.is_full

    def put(self, run: str, digest: bytes, response: Response) -> None:
        if self._store is not None:
            self._store.put(run, digest, response)

    async def sync(self) -> None:
        """Write what was put, and make room for it; where that fails, nothing is kept from here on."""
        if self._store is None:
            return
        try:
            await self._store.sync()
            limit = self._limit(self._store)
            if self._store.used_bytes() > limit:
                await self._store.shrink(int(limit * SHRINK_TO))
        except (ActionRequired, OSError) as error:
            self._give_up(error)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _limit(self, store: RawPageStore) -> int:
        """Our own space counts as free: else what is kept would lower the limit by itself."""
        free = self._free_bytes(self._folder) + store.used_bytes()
        return min(self._max_bytes, int(free * SHARE_OF_FREE_DISK))

    def _give_up(self, error: Exception) -> None:
        hint = getattr(error, "hint", "")
        log.warning("pages_not_kept", extra={"folder": str(self._folder), "why": str(error), "hint": hint})
        self.close()


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
