"""Outlet: where the records of a run that this process drives go, beside the queue: a file, a store, both."""

from __future__ import annotations

import asyncio

from shoal.config import Settings
from shoal.control.records import RecordsReader
from shoal.control.relay import Relay
from shoal.core.run import Run
from shoal.errors import StoreUnavailable
from shoal.logs import log
from shoal.queue.base import Queue
from shoal.store.export import Exporter
from shoal.store.results import ResultStore, open_results

TURN = 0.05


class Outlet:
    """`records` reads a run's records wherever they are by now."""

    def __init__(self, queue: Queue, store: ResultStore | None) -> None:
        self.records = RecordsReader(queue, store)
        self._queue = queue
        self._relay = Relay(queue, store) if store else None
        self._run: Run | None = None
        self._exporter: Exporter | None = None
        self._told = ""

    @classmethod
    async def open(cls, queue: Queue, settings: Settings) -> Outlet:
        return cls(queue, await open_results(settings.store) if settings.store else None)

    def serve(self, run: Run, exporter: Exporter | None) -> None:
        self._run, self._exporter = run, exporter

    async def drain(self) -> int:
        """Copy what is new; while pages are open, a store that is away is waited for."""
        added = await self._exporter.drain() if self._exporter else 0
        if self._relay is None or self._run is None:
            return added
        try:
            added += await self._relay.drain(self._run)
            while not await self._open(self._run) and await self._relay.pending(self._run):
                await asyncio.sleep(TURN)  # another relay is at it
                added += await self._relay.drain(self._run)
        except StoreUnavailable as error:
            if not await self._open(self._run):
                raise
            if str(error) != self._told:
                self._told = str(error)
                log("store.away", "warning", reason=self._told, hint=error.hint)
        return added

    async def _open(self, run: Run) -> int:
        return (await self._queue.stats(run.id)).open

    async def close(self) -> None:
        if self._exporter:
            self._exporter.close()
        await self.records.close()
