"""RawStores: the stores of saved pages that the runs of one process need, each opened when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.app import bounded_raw_folder, open_raw_store, open_saved_pages
from shoal.config.load import Settings
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.store.raw.bounded import BoundedPageStore
    from shoal.store.raw.page_store import RawPageStore


class RawStores:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._raw: RawPageStore | None = None

    def raw(self) -> RawPageStore:
        """Where a run keeps pages that somebody wants saved."""
        if self._raw is None:
            self._raw = open_raw_store(self._settings)
        return self._raw

    def saved_by(self, run: str) -> RawPageStore:
        """Where the pages of a run are."""
        stores = open_saved_pages(self._settings)
        found = next((store for store in stores if store.has_run(run)), None)
        for store in stores:
            if store is not found:
                store.close()
        if found is None:
            raise UsageError(f"run {run} saved no responses", hint="shoal raw list shows which runs did")
        return found

    def bounded(self) -> BoundedPageStore:
        """Where pages are kept as long as there is room."""
        from shoal.store.raw.bounded import BoundedPageStore

        return BoundedPageStore(bounded_raw_folder(self._settings))

    async def sync(self) -> None:
        """Return when every page that somebody wants saved is safe."""
        if self._raw is not None:
            await self._raw.sync()
